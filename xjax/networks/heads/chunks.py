"""Splits label rows from a head, and loops over chunks of a shard's rows."""

from collections.abc import Callable, Sequence
import functools
from typing import Any, NamedTuple

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from xjax.core.mesh import DATA, LABEL

ALL_DEVICES = (LABEL, DATA)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def with_gradients(
  run: Callable[[Any, Any], tuple[Any, Any]], given: Any, trained: Any
) -> Any:
  """Returns the first of the two results of run(given, trained).

  It is a loss, or a tuple whose first entry is a loss. The second result is the
  loss's gradient by `trained`, which the backward pass only scales.
  """
  return run(given, trained)[0]


def _scale_gradients(run, gradients, cotangents) -> tuple[None, Any]:
  del run
  by_loss = jax.tree.leaves(cotangents)[0]
  return None, jax.tree.map(lambda x: (x * by_loss).astype(x.dtype), gradients)


with_gradients.defvjp(
  lambda run, given, trained: run(given, trained), _scale_gradients
)


class HeadParts(NamedTuple):
  """Holds the structure and two groups of parameters of a head."""

  graphdef: nnx.GraphDef
  rows: nnx.State  # parameters with one row per label
  shared: nnx.State  # all other parameters

  @property
  def head(self) -> Any:
    """Returns the head; in a shard, it has the rows of the shard."""
    return nnx.merge(self.graphdef, self.rows, self.shared)

  def logits(
    self, features: Any, rows: nnx.State, shared: nnx.State
  ) -> jax.Array:
    """Computes logits_BC of a chunk, as a pure function of the parameters."""
    head = nnx.merge(self.graphdef, rows, shared)
    return head.logits(features, nnx.to_pure_dict(rows))

  def learns(self) -> jax.Array | None:
    """Returns which of the rows the loss includes; None for all."""
    return self.head.learns(nnx.to_pure_dict(self.rows))


def split_head(head: nnx.Module) -> HeadParts:
  """Separates a head's label rows from its other parameters."""
  return HeadParts(*nnx.split(head, is_label_row, ...))


def is_label_row(path: tuple, variable: Any) -> bool:
  """Returns whether a variable has one row per label (a filter for nnx)."""
  del path
  return on_labels(variable.get_metadata().get('out_sharding'))


def on_labels(spec: Any) -> bool:
  """Returns whether a partition spec divides the first axis like label rows."""
  return bool(spec) and spec[0] in (LABEL, ALL_DEVICES)


def row_spec(axes: tuple[str, ...]) -> P:
  """Returns the partition spec of label rows on the given mesh axes."""
  return P(axes) if len(axes) > 1 else P(*axes)


def shard_rows(rows: Any, n_labels: int) -> int:
  """Returns the number of this shard's rows that can belong to labels."""
  per_shard = jax.tree.leaves(rows)[0].shape[0]
  # The number is static, so padding rows are left out only if one shard has all
  # labels. With several shards, the caller masks padding rows by the indices
  # that `labels` returns.
  return min(per_shard, n_labels)


class RowSpan(NamedTuple):
  """Stands for consecutive rows of a shard."""

  start: jax.Array  # int32, counted in the shard
  size: int

  @property
  def row_C(self) -> jax.Array:
    return self.start + jnp.arange(self.size, dtype=jnp.int32)

  def cut(self, rows: Any) -> Any:
    return jax.tree.map(
      lambda x: lax.dynamic_slice_in_dim(x, self.start, self.size), rows
    )

  def write(self, rows: Any, new: Any) -> Any:
    """Returns the rows with new ones, in place if a loop carries them."""
    return jax.tree.map(
      lambda old, x: lax.dynamic_update_slice_in_dim(old, x, self.start, 0),
      rows,
      new,
    )


def scan_chunks(
  body: Callable[[Any, RowSpan], Any],
  carry: Any,
  rows: int,
  chunk: int,
  used: jax.Array | None = None,
) -> Any:
  """Calls body(carry, span) for each chunk of rows, one after the other.

  All chunks have the same size, except the last, which has the remaining rows.
  If `used` is not None, chunks after the first `used` rows are skipped.
  """
  most = chunk_size(rows, chunk)
  whole, rest = divmod(rows, most)
  parts = [(0, whole, most), (whole * most, 1, rest)]
  for first, count, size in parts if rest else parts[:1]:

    def step(i: jax.Array, carry: Any, first=first, size=size) -> Any:
      return body(carry, RowSpan(first + i * size, size))

    if used is not None:
      # Loops skip chunks without copies of the carry, unlike lax.cond.
      count = jnp.clip(-(-(used - first) // size), 0, count)
    elif count == 1:
      carry = body(carry, RowSpan(jnp.int32(first), size))
      continue
    carry = lax.fori_loop(0, count, step, carry)
  return carry


def chunk_size(rows: int, chunk: int) -> int:
  """Returns the size, at most `chunk`, that divides the rows most evenly."""
  # A multiple of 16 where possible, the number of floats in a vector register.
  count = -(-rows // chunk)
  even = -(-rows // count)
  return min(chunk, rows, -(-even // 16) * 16)


class PickedRows(NamedTuple):
  """Stands for rows of a shard that are not consecutive.

  Numbers beyond the shard are no row: any row is read, and nothing is written.
  """

  row_C: jax.Array  # int32, ascending, each row once, counted in the shard

  def cut(self, rows: Any) -> Any:
    # XLA on CPUs gathers bfloat16 rows from float32 copies. With the barrier,
    # it copies only these rows; without, it copies the array before the loop.
    rows, row_C = lax.optimization_barrier((rows, self.row_C))
    return jax.tree.map(
      lambda x: x.at[row_C].get(mode='clip', **_ASCENDING), rows
    )

  def write(self, rows: Any, new: Any) -> Any:
    return jax.tree.map(self._write, rows, new)

  def _write(self, rows: jax.Array, new: jax.Array) -> jax.Array:

    def together(rows: jax.Array, new: jax.Array) -> jax.Array:
      return rows.at[self.row_C].set(new, mode='drop', **_ASCENDING)

    def one_by_one(rows: jax.Array, new: jax.Array) -> jax.Array:
      def write(i: jax.Array, rows: jax.Array) -> jax.Array:
        row = lax.dynamic_slice_in_dim(new, i, 1)
        return lax.dynamic_update_slice_in_dim(rows, row, self.row_C[i], 0)

      inside = (self.row_C < len(rows)).sum(dtype=jnp.int32)
      return lax.fori_loop(0, inside, write, rows)

    if rows.dtype != jnp.bfloat16:
      return together(rows, new)
    # XLA on CPUs would convert the entire array to float32 to scatter rows.
    return lax.platform_dependent(rows, new, cpu=one_by_one, default=together)


_ASCENDING = {'indices_are_sorted': True, 'unique_indices': True}


def labels(rows: Any, axes: Sequence[str], span: RowSpan) -> jax.Array:
  """Returns the label indices of a chunk of this shard, int32 [C].

  `axes` are the mesh axes over which label rows are divided.
  """
  per_shard = jax.tree.leaves(rows)[0].shape[0]
  return lax.axis_index(tuple(axes)) * per_shard + span.row_C


def all_documents(documents: Any, axes: Sequence[str]) -> Any:
  """Returns the documents that a shard of label rows scores."""
  if DATA not in axes:
    # If label rows are divided over the data axis as well, no other device has
    # the rows of this device. So it scores the documents of all devices.
    return documents
  return jax.tree.map(
    lambda x: lax.all_gather(x, DATA, axis=0, tiled=True), documents
  )


def own_documents(sums: Any, axes: Sequence[str]) -> Any:
  """Adds up sums over shards; returns those of this device's documents."""
  if DATA in axes:
    sums = jax.tree.map(
      lambda x: lax.psum_scatter(x, DATA, scatter_dimension=0, tiled=True), sums
    )
  return lax.psum(sums, LABEL)
