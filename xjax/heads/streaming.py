"""The loss over all labels, streamed over label chunks and mesh shards.

One pass: each chunk's logits, loss, derivative and gradients are computed while
they are in cache, and neither a [B, L] array nor a second forward pass is
needed (Renee, Jain et al. 2023, Section 4; here for any head).
"""

import functools
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float32, Int32

from xjax.core.mesh import DATA, LABEL, SPECS
from xjax.heads import chunks
from xjax.heads.contract import Head, HeadParts, split_head
from xjax.losses.contract import ChunkLoss, LabelWeights


def head_loss(
  head: Head,
  features: Any,
  positives_BP: Int32[Array, 'B P'],
  mask_B: Bool[Array, ' B'],
  loss: ChunkLoss,
  weights: LabelWeights | None = None,
) -> Float32[Array, '']:
  """Sum of the loss over documents and labels.

  Runs on the context mesh (`jax.set_mesh`), documents over its data axis and
  label rows over its label axis. The gradients are made in the forward
  pass; the backward pass only scales them.

  Args:
    head: the head; padded label rows cost nothing.
    features: the encoder's, a pytree of arrays with documents first.
    positives_BP: int32 gold labels, PAD elsewhere; labels this head does not
      score are ignored.
    mask_B: bool, False for rows that only fill the batch: they cost nothing.
    loss: gives (loss_BC, dlogits_BC) of a chunk.
    weights: float32, of as many rows as the head's parameters have, and cut and
      sharded like them; None: all labels count alike.

  Returns:
    float32 scalar.
  """
  graphdef, rows, shared = split_head(head)
  static = (graphdef, loss, head.n_labels, head.chunk)
  gold = (positives_BP, mask_B)
  return _head_loss(static, rows, shared, features, weights, *gold)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _head_loss(static, rows, shared, features, weights, positives_BP, mask_B):
  given = (rows, shared, features, weights, positives_BP, mask_B)
  return _forward(static, *given)[0]


def _forward(static, *given):
  run = jax.shard_map(
    functools.partial(_shard_gradients, static),
    in_specs=_IN_SPECS,
    out_specs=(P(), SPECS['label_row'], P(), SPECS['batch']),
    check_vma=False,
  )
  total, *gradients = run(*given)
  return total, tuple(gradients)


def _backward(static, gradients, cotangent):
  del static
  d_rows, d_shared, d_features = jax.tree.map(
    lambda x: (x * cotangent).astype(x.dtype), gradients
  )
  return d_rows, d_shared, d_features, None, None, None


_head_loss.defvjp(_forward, _backward)

_IN_SPECS = (
  SPECS['label_row'],
  P(),
  SPECS['batch'],
  SPECS['label_row'],
  SPECS['batch'],
  SPECS['batch'],
)


def _shard_gradients(
  static, rows, shared, features, weights, positives_BP, mask_B
):
  """The loss and its gradients by rows, shared and features."""
  graphdef, loss, n_labels, chunk = static
  parts = HeadParts(graphdef, rows, shared)
  floats, filled = _floats(features)

  def logits(cut, shared, floats):
    return parts.logits(filled(floats), cut, shared)

  def body(carry, start, size):
    total, d_rows, d_wide = carry
    cut = chunks.cut(rows, start, size)
    logits_BC, pull = jax.vjp(logits, cut, shared, floats)
    ids_C = chunks.labels(rows, start, size)
    learnt_C = ids_C < n_labels
    if (learns_C := parts.learns(cut, shared)) is not None:
      learnt_C &= learns_C
    targets_BC = _targets(positives_BP, ids_C) & learnt_C
    loss_BC, dlogits_BC = _weighted(
      loss(jnp.where(learnt_C, logits_BC, -jnp.inf), targets_BC),
      targets_BC,
      chunks.cut(weights, start, size),
    )
    total += jnp.where(mask_B, loss_BC.sum(axis=1), 0.0).sum()
    d_cut, *d_new = pull(jnp.where(mask_B[:, None], dlogits_BC, 0.0))
    d_rows = jax.tree.map(
      lambda all_, new: lax.dynamic_update_slice_in_dim(all_, new, start, 0),
      d_rows,
      d_cut,
    )
    d_wide = jax.tree.map(jnp.add, d_wide, tuple(d_new))
    return total, d_rows, d_wide

  # Sums over chunks are kept in float32, whatever the products' dtype.
  wide = jax.tree.map(
    lambda x: jnp.zeros(x.shape, jnp.float32), (shared, floats)
  )
  total, d_rows, (d_shared, d_floats) = chunks.scan_chunks(
    body,
    (jnp.float32(0), jax.tree.map(jnp.zeros_like, rows), wide),
    chunks.shard_rows(rows, n_labels),
    chunk,
  )
  d_floats = [
    d.astype(x.dtype) for d, x in zip(lax.psum(d_floats, LABEL), floats)
  ]
  return (
    lax.psum(total, (DATA, LABEL)),
    lax.psum(d_rows, DATA),
    lax.psum(d_shared, (DATA, LABEL)),
    filled(d_floats, gradient=True),
  )


def _floats(features):
  """The leaves that have gradients, and how to put such leaves back."""
  leaves, structure = jax.tree.flatten(features)
  at = [i for i, x in enumerate(leaves) if jnp.issubdtype(x.dtype, jnp.inexact)]

  def filled(floats, gradient=False):
    new = [None] * len(leaves) if gradient else list(leaves)
    for i, x in zip(at, floats):
      new[i] = x
    return jax.tree.unflatten(structure, new)

  return [leaves[i] for i in at], filled


def _targets(positives_BP, ids_C):
  """bool_BC, whether a label of the chunk is gold."""
  (documents, _), (size,) = positives_BP.shape, ids_C.shape
  # PAD and other shards' labels fall outside [0, size) and are dropped.
  at_BP = positives_BP - ids_C[0]
  at_BP = jnp.where((at_BP >= 0) & (at_BP < size), at_BP, size)
  return (
    jnp.zeros((documents, size), bool)
    .at[jnp.arange(documents)[:, None], at_BP]
    .set(True, mode='drop')
  )


def _weighted(found, targets_BC, weights):
  """(loss_BC, dlogits_BC) times the labels' weights, if there are any."""
  if weights is None:
    return found
  weight_BC = jnp.where(targets_BC, weights.positive_L, weights.negative_L)
  return jax.tree.map(lambda x_BC: x_BC * weight_BC, found)
