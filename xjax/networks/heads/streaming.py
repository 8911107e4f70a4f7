"""Computes the loss over all labels, in chunks of labels and mesh shards.

The logits, loss, derivative and gradients of a chunk are all computed while the
chunk is in cache. So neither a [B, L] array nor a second forward pass for the
gradient is needed. A normalised loss takes one more pass over the chunks. Renee
(Jain et al. 2023, Section 4) uses this method for one-vs-all heads. Here, the
method works for any head.
"""

from collections.abc import Callable
import functools
from typing import Any

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float32, Int32

from xjax.core.mesh import BATCH, DATA, LABEL
from xjax.losses.loss import ChunkLoss, LabelWeights
from xjax.networks.heads import chunks
from xjax.networks.heads.chunks import HeadParts, row_spec, split_head
from xjax.networks.heads.loss_terms import (
  Chunk,
  Normaliser,
  chunk_loss,
  gold_of,
  labels_per_loss,
)


def head_loss(
  head: nnx.Module,
  features: Any,
  positives_BP: Int32[Array, 'B P'],
  mask_B: Bool[Array, ' B'],
  loss: ChunkLoss,
  weights: LabelWeights | None = None,
) -> Float32[Array, '']:
  """Computes the loss over all labels, summed over documents.

  The function runs on the context mesh (`jax.set_mesh`). Documents are divided
  over the data axis, and label rows over the head's axes. The gradients are
  computed in the forward pass; the backward pass only scales them.

  Args:
    features: result of the head's `prepare`, a pytree of arrays whose first
      axis is documents.
    positives_BP: gold labels, PAD elsewhere; only the head's labels count.
    mask_B: False for rows that only fill the batch and add nothing to the loss.
    loss: its reduction says whether the loss of a document is the sum or the
      mean over all labels.
    weights: for each label row, with padding, or None if labels count equally.
      They are cut and sharded like the label rows.
  """
  graphdef, rows, shared = split_head(head)
  static = (graphdef, loss, head.n_labels, head.chunk, head.axes)
  gold = (positives_BP, mask_B)
  total = _head_loss(static, rows, shared, features, weights, *gold)
  return total / labels_per_loss(loss, head.n_labels)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _head_loss(static, rows, shared, features, weights, positives_BP, mask_B):
  """Computes head_loss, with gradients for rows, shared and features."""
  arrays = (rows, shared, features, weights, positives_BP, mask_B)
  return _forward(static, *arrays)[0]


def _forward(static, *arrays):
  row = row_spec(static[-1])
  batch = BATCH
  run = jax.shard_map(
    functools.partial(_shard_gradients, static),
    in_specs=(row, P(), batch, row, batch, batch),
    out_specs=(P(), row, P(), batch),
    check_vma=False,
  )
  total, *gradients = run(*arrays)
  return total, tuple(gradients)


def _backward(static, gradients, cotangent):
  del static
  d_rows, d_shared, d_features = jax.tree.map(
    lambda x: (x * cotangent).astype(x.dtype), gradients
  )
  return d_rows, d_shared, d_features, None, None, None


_head_loss.defvjp(_forward, _backward)


def _shard_gradients(
  static, rows, shared, features, weights, positives_BP, mask_B
):
  """Returns one shard's loss and gradients for rows, shared and features."""
  graphdef, loss, n_labels, chunk, axes = static
  parts = HeadParts(graphdef, rows, shared)
  gold = chunks.all_documents(gold_of(positives_BP, mask_B), axes)
  floats, replace_floats = split_floats(chunks.all_documents(features, axes))

  def logits(chunk_rows, shared, floats):
    return parts.logits(replace_floats(floats), chunk_rows, shared)

  def chunk_at(start, size, chunk_rows):
    ids_C = chunks.labels(rows, axes, start, size)
    learnt_C = ids_C < n_labels
    if (learns_C := parts.learns(chunk_rows, shared)) is not None:
      learnt_C &= learns_C
    return Chunk(ids_C[0], learnt_C, chunks.cut(weights, start, size))

  def add_chunk(normaliser, start, size):
    chunk_rows = chunks.cut(rows, start, size)
    logits_BC = logits(chunk_rows, shared, floats)
    return normaliser.with_chunk(
      logits_BC, gold, chunk_at(start, size, chunk_rows)
    )

  def body(carry, start, size):
    total, d_rows, d_wide = carry
    chunk_rows = chunks.cut(rows, start, size)
    logits_BC, pull = jax.vjp(logits, chunk_rows, shared, floats)
    new, dlogits_BC = chunk_loss(
      loss, logits_BC, gold, chunk_at(start, size, chunk_rows)
    )
    d_cut, *d_new = pull(dlogits_BC)
    d_rows = chunks.write_rows(d_rows, d_cut, start)
    return total + new, d_rows, jax.tree.map(jnp.add, d_wide, tuple(d_new))

  scan = functools.partial(
    chunks.scan_chunks, rows=chunks.shard_rows(rows, n_labels), chunk=chunk
  )
  if loss.normalised:
    normaliser = scan(add_chunk, Normaliser.start(len(gold.mask_B)))
    loss = normaliser.normalised(loss, axes)
  # Sums over chunks are float32, whatever the dtype of the products is.
  wide = jax.tree.map(
    lambda x: jnp.zeros(x.shape, jnp.float32), (shared, floats)
  )
  start = (jnp.float32(0), jax.tree.map(jnp.zeros_like, rows), wide)
  total, d_rows, (d_shared, d_floats) = scan(body, start)
  d_floats = [
    d.astype(x.dtype)
    for d, x in zip(chunks.own_documents(d_floats, axes), floats)
  ]
  return (
    lax.psum(total, (DATA, LABEL)),
    d_rows if DATA in axes else lax.psum(d_rows, DATA),
    lax.psum(d_shared, (DATA, LABEL)),
    replace_floats(d_floats, gradient=True),
  )


def split_floats(features: Any) -> tuple[list[jax.Array], Callable[..., Any]]:
  """Returns the float leaves, and a function that replaces their values.

  With gradient=True, the function puts None in place of all other leaves.
  """
  leaves, structure = jax.tree.flatten(features)
  at = [i for i, x in enumerate(leaves) if jnp.issubdtype(x.dtype, jnp.inexact)]

  def replace_floats(floats, gradient=False):
    new = [None] * len(leaves) if gradient else list(leaves)
    for i, x in zip(at, floats):
      new[i] = x
    return jax.tree.unflatten(structure, new)

  return [leaves[i] for i in at], replace_floats
