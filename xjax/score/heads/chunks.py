"""Walking over a shard's label rows, a chunk at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp

from xjax.core.mesh import DATA, LABEL


def shard_rows(rows: Any, n_labels: int) -> int:
  """Rows of this shard that can be labels (static; padding is left out).

  Only where one shard has all labels is it known which rows are padding;
  elsewhere all of a shard's rows count, and are masked by `labels`.
  """
  per_shard = jax.tree.leaves(rows)[0].shape[0]
  return min(per_shard, n_labels)


def scan_chunks(
  body: Callable[[Any, jax.Array, int], Any], carry: Any, rows: int, chunk: int
) -> Any:
  """Carries body(carry, start, size) over chunks; sizes are static.

  All chunks have one size but the last, which has what is left.
  """
  size = chunk_size(rows, chunk)
  whole = rows // size
  if whole == 1:
    carry = body(carry, jnp.int32(0), size)
  else:
    carry = lax.fori_loop(
      0, whole, lambda i, carry: body(carry, i * size, size), carry
    )
  if rows % size:
    carry = body(carry, jnp.int32(whole * size), rows % size)
  return carry


def chunk_size(rows: int, chunk: int) -> int:
  """The largest even cut of rows into chunks of at most `chunk`.

  A multiple of 16 where possible: a vector register's worth of floats.
  """
  count = -(-rows // chunk)
  even = -(-rows // count)
  return min(chunk, rows, -(-even // 16) * 16)


def cut(rows: Any, start: jax.Array, size: int) -> Any:
  """Rows start to start + size of every array."""
  return jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, size), rows)


def write_rows(rows: Any, new: Any, start: jax.Array) -> Any:
  """The rows with a chunk replaced, in place where they are carried."""
  return jax.tree.map(
    lambda all_, x: lax.dynamic_update_slice_in_dim(all_, x, start, 0),
    rows,
    new,
  )


def labels(
  rows: Any, axes: Sequence[str], start: jax.Array, size: int
) -> jax.Array:
  """int32 [C] label indices of a chunk of this shard."""
  per_shard = jax.tree.leaves(rows)[0].shape[0]
  first = lax.axis_index(tuple(axes)) * per_shard + start
  return first + jnp.arange(size, dtype=jnp.int32)


def all_documents(documents: Any, axes: Sequence[str]) -> Any:
  """The documents that a shard of label rows scores.

  Where rows lie on the data axis as well, each device has the rows of no other
  one: it scores the documents of all.

  Args:
    documents: a tree of arrays of this device's documents.
    axes: the mesh axes of label rows.
  """
  if DATA not in axes:
    return documents
  return jax.tree.map(
    lambda x: lax.all_gather(x, DATA, axis=0, tiled=True), documents
  )


def own_documents(sums: Any, axes: Sequence[str]) -> Any:
  """Sums over label shards, of this device's documents: of all_documents."""
  if DATA in axes:
    sums = jax.tree.map(
      lambda x: lax.psum_scatter(x, DATA, scatter_dimension=0, tiled=True), sums
    )
  return lax.psum(sums, LABEL)
