"""Exact selection of the k best labels, dense or streamed over chunks."""

from collections.abc import Mapping, Sequence
import functools
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Float32, Int32

from xjax.core.mesh import DATA, LABEL, SPECS, padded_labels
from xjax.core.types import PAD
from xjax.heads import chunks
from xjax.heads.contract import Head, HeadParts, split_head


def head_topk(
  head: Head,
  features: Any,
  k: int,
  *,
  weights: Float[Array, ' L_or_more'] | None = None,
  slices: Sequence[Bool[Array, ' L_or_more']] = (),
  allowed: Bool[Array, '*documents L_or_more'] | None = None,
) -> tuple[Int32[Array, 'G B K'], Float32[Array, 'G B K']]:
  """The k best labels of a head, without a [B, L] array.

  Runs on the context mesh: each shard of labels keeps its own lists over its
  chunks, and only those lists are gathered and merged. Exact, ties to the
  lower index, the same for any chunk size and mesh given the same scores.

  Args:
    head: the head, whose scores are logits.
    features: the encoder's, a pytree of arrays with documents first.
    k: length of the lists.
    weights, slices, allowed: as in core.types.Scorer; entries beyond the head's
      labels are ignored.

  Returns:
    ids_GBK: int32, G = 1 + len(slices); PAD where labels run out.
    scores_GBK: float32 logits, or log weight + log sigmoid(logit) where weights
      are given; -inf where ids are PAD.
  """
  graphdef, rows, shared = split_head(head)
  filters = _filters(head.n_labels, weights, slices, allowed)
  width = padded_labels(head.n_labels)
  filters = {
    name: jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])])
    for name, x in filters.items()
  }
  run = jax.shard_map(
    functools.partial(_shard_topk, (graphdef, head.n_labels, head.chunk, k)),
    in_specs=(
      SPECS['label_row'],
      P(),
      SPECS['batch'],
      {name: _FILTER_SPECS[name] for name in filters},
    ),
    out_specs=(P(None, DATA), P(None, DATA)),
    check_vma=False,
  )
  return run(rows, shared, features, filters)


def dense_topk(
  scores_BL: Float[Array, 'B L'],
  k: int,
  *,
  weights: Float[Array, ' L_or_more'] | None = None,
  slices: Sequence[Bool[Array, ' L_or_more']] = (),
  allowed: Bool[Array, '*documents L_or_more'] | None = None,
) -> tuple[Int32[Array, 'G B K'], Float32[Array, 'G B K']]:
  """The same selection from logits that are all there.

  Args:
    scores_BL: float32 logits.
    k, weights, slices, allowed: as in head_topk.

  Returns:
    ids_GBK, scores_GBK: as head_topk.
  """
  documents, n_labels = scores_BL.shape
  filters = _filters(n_labels, weights, slices, allowed)
  ids_L = jnp.arange(n_labels, dtype=jnp.int32)
  candidates_GBC = _candidates(scores_BL, ids_L, n_labels, filters)
  return _merge(_empty(filters, documents, k), ids_L, candidates_GBC)


_FILTER_SPECS = {
  'weights_L': P(LABEL),
  'slices_GL': P(None, LABEL),
  'allowed_L': P(LABEL),
  'allowed_BL': P(DATA, LABEL),
}


def _filters(
  n_labels: int,
  weights: jax.Array | None,
  slices: Sequence[jax.Array],
  allowed: jax.Array | None,
) -> dict[str, jax.Array]:
  """The filters that are given, by name, cut to the scored labels."""
  filters = {}
  if weights is not None:
    filters['weights_L'] = jnp.asarray(weights, jnp.float32)
  if len(slices):
    filters['slices_GL'] = jnp.stack([jnp.asarray(x, bool) for x in slices])
  if allowed is not None:
    allowed = jnp.asarray(allowed, bool)
    filters['allowed_L' if allowed.ndim == 1 else 'allowed_BL'] = allowed
  for name, x in filters.items():
    if x.shape[-1] < n_labels:
      raise ValueError(f'{name} has {x.shape[-1]} of {n_labels} labels')
  return {name: x[..., :n_labels] for name, x in filters.items()}


def _shard_topk(static, rows, shared, features, filters):
  graphdef, n_labels, chunk, k = static
  parts = HeadParts(graphdef, rows, shared)
  documents = jax.tree.leaves(features)[0].shape[0]

  def body(best, start, size):
    logits_BC = parts.logits(features, chunks.cut(rows, start, size), shared)
    ids_C = chunks.labels(rows, (LABEL,), start, size)
    cut = {
      name: lax.dynamic_slice_in_dim(x, start, size, axis=-1)
      for name, x in filters.items()
    }
    return _merge(best, ids_C, _candidates(logits_BC, ids_C, n_labels, cut))

  ids_GBK, scores_GBK = chunks.scan_chunks(
    body,
    _empty(filters, documents, k),
    chunks.shard_rows(rows, n_labels),
    chunk,
  )
  if lax.axis_size(LABEL) == 1:
    return ids_GBK, scores_GBK
  # Shards come in the order of their labels: ties still go to the lower index.
  ids = lax.all_gather(ids_GBK, LABEL, axis=2, tiled=True)
  scores = lax.all_gather(scores_GBK, LABEL, axis=2, tiled=True)
  return _best(ids, scores, k)


def _candidates(
  logits_BC: jax.Array,
  ids_C: jax.Array,
  n_labels: int,
  filters: Mapping[str, jax.Array],
) -> jax.Array:
  """Ranking scores per slice, -inf where a label may not be selected."""
  scores_BC = logits_BC.astype(jnp.float32)
  allowed_BC = (ids_C < n_labels)[None]
  if 'weights_L' in filters:
    # In logs: the product with a probability would saturate.
    scores_BC = jax.nn.log_sigmoid(scores_BC) + jnp.log(filters['weights_L'])
  if 'allowed_L' in filters:
    allowed_BC = allowed_BC & filters['allowed_L']
  if 'allowed_BL' in filters:
    allowed_BC = allowed_BC & filters['allowed_BL']
  masks_GBC = allowed_BC[None]
  if 'slices_GL' in filters:
    sliced = allowed_BC & filters['slices_GL'][:, None]
    masks_GBC = jnp.concatenate([masks_GBC, sliced])
  return jnp.where(masks_GBC, scores_BC, -jnp.inf)


def _empty(
  filters: Mapping[str, jax.Array], documents: int, k: int
) -> tuple[jax.Array, jax.Array]:
  count = 1 + (len(filters['slices_GL']) if 'slices_GL' in filters else 0)
  shape = (count, documents, k)
  return jnp.full(shape, PAD, jnp.int32), jnp.full(shape, -jnp.inf)


def _merge(best, ids_C, candidates_GBC):
  """Lists of the k best of the lists so far and of a chunk of higher ids."""
  ids_GBK, scores_GBK = best
  scores = jnp.concatenate([scores_GBK, candidates_GBC], axis=2)
  ids_GBC = jnp.broadcast_to(ids_C, candidates_GBC.shape)
  ids = jnp.concatenate([ids_GBK, ids_GBC], axis=2)
  return _best(ids, scores, ids_GBK.shape[2])


def _best(ids, scores, k):
  """top_k keeps the order of equal scores, and ids of a list ascend in them."""
  scores_GBK, at_GBK = lax.top_k(scores, k)
  ids_GBK = jnp.take_along_axis(ids, at_GBK, axis=2)
  return jnp.where(scores_GBK == -jnp.inf, PAD, ids_GBK), scores_GBK
