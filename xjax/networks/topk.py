"""Selects the k best labels of a head, on its devices."""

from collections.abc import Sequence
import functools
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Float32, Int32

from xjax.core.mesh import BATCH, DATA, LABEL, padded_labels
from xjax.core.types import AS_LOGITS
from xjax.networks.best_labels import BestLabels, with_chunk
from xjax.networks.heads import chunks
from xjax.networks.heads.chunks import HeadParts, row_spec, split_head
from xjax.networks.heads.head import Head


def head_topk(
  head: Head,
  features: Any,
  k: int,
  *,
  weights: Float[Array, ' L_or_more'] | None = None,
  slices: Sequence[Bool[Array, ' L_or_more']] = (),
  allowed: Bool[Array, '*documents _'] | None = None,
  sigmoid: tuple[float, float] = AS_LOGITS,
  recall: float = 1.0,
) -> tuple[Int32[Array, 'G B K'], Float32[Array, 'G B K']]:
  """Returns the k labels with the best scores, without making a [B, L] array.

  The function runs on the mesh of the context. Each shard of labels makes lists
  from its chunks of labels, and only these lists are gathered and merged. If
  `recall` is 1, the result is exact, and the lower index comes first if scores
  are equal; chunks and meshes have no effect on it as long as they do not
  change the scores. With chunks of 1024 labels or more, memory holds the lists
  and at most two chunks of logits, for any number of slices.

  Args:
    features: result of the head's `prepare`.
    weights, slices, allowed: as in ranking.Query. Entries beyond the head's
      labels are ignored. An array is not copied if it has one entry for each
      label row and is divided over the mesh like the label rows.
    sigmoid: a and b below, a static argument.
    recall: the share of the k best labels that a list is expected to have, if
      labels are in random order. A value below 1 has an effect only on TPUs.
      There, each chunk is expected to keep this share of its own k best labels,
      and drops a label only in favour of a better label of the same chunk.

  Returns:
    ids_GBK, with G = 1 + len(slices), and PAD where a list has fewer than k
    labels; and scores_GBK, -inf at PAD. A score is a logit. With weights, it is
    log weight + log sigmoid(a * logit + b).
  """
  graphdef, rows, shared = split_head(head)
  filters = _filters(head.n_labels, weights, slices, allowed)
  mesh = jax.sharding.get_abstract_mesh()
  if any(mesh.shape[axis] > 1 for axis in head.axes):
    width = padded_labels(head.n_labels)
    filters = jax.tree.map(functools.partial(_resized, width), filters)
  static = (graphdef, head.n_labels, head.chunk, k, sigmoid, recall, head.axes)
  row = row_spec(head.axes)
  # Filters are divided like label rows, so that a shard reads only its own.
  run = jax.shard_map(
    functools.partial(_shard_topk, static),
    in_specs=(
      row,
      P(),
      BATCH,
      jax.tree.map(functools.partial(_filter_spec, head.axes), filters),
    ),
    out_specs=P(None, DATA),
    check_vma=False,
  )
  return tuple(run(rows, shared, features, filters))


def restricted_topk(
  head: Head,
  features: Any,
  k: int,
  *,
  weights: Float[Array, ' L_or_more'] | None = None,
  slices: Sequence[Bool[Array, ' L_or_more']] = (),
  allowed: Bool[Array, '*documents _'] | None = None,
  **others: Any,
) -> tuple[Int32[Array, 'G B K'], Float32[Array, 'G B K']]:
  """Returns the k labels with the best scores of a head that scores a few.

  For each list, the head chooses what it scores among the labels that may be in
  the list (Head.narrowed), which filters could not do afterwards.

  The head has a shortlist_size, and `features` are the result of its `prepare`.
  The other arguments and the results are those of head_topk.
  """
  # The arrays may have different lengths.
  n = head.n_labels
  logs = jnp.zeros(n) if weights is None else jnp.log(weights[:n])
  lists = []
  for mask in (None, *slices):
    masks = [x[..., :n] for x in (mask, allowed) if x is not None]
    inside = functools.reduce(jnp.logical_and, masks) if masks else None
    chosen = features
    if inside is not None:
      chosen = head.narrowed(features, jnp.where(inside, logs, -jnp.inf))
    elif weights is not None:
      chosen = head.narrowed(features, logs)
    filters = {'weights': weights, 'allowed': inside, **others}
    lists.append(head_topk(head, chosen, k, **filters))
  ids, scores = (jnp.concatenate(x) for x in zip(*lists))
  return ids, scores


def _filter_spec(axes: tuple[str, ...], x: jax.Array) -> P:
  """Returns how a filter, [L] or [B, L], is divided over the mesh."""
  if x.ndim == 1:
    return row_spec(axes)
  # Labels are divided like label rows, and documents like the documents that a
  # device scores.
  documents = None if DATA in axes else DATA
  return P(documents, *row_spec(axes))


def _filters(n_labels, weights, slices, allowed) -> dict[str, Any]:
  filters = {}
  if weights is not None:
    filters['weights_L'] = jnp.asarray(weights, jnp.float32)
  if len(slices):
    # Stacking would copy the arrays.
    filters['slices_L'] = tuple(jnp.asarray(x, bool) for x in slices)
  if allowed is not None:
    filters['allowed'] = jnp.asarray(allowed, bool)
  for name, arrays in filters.items():
    for x in jax.tree.leaves(arrays):
      if x.shape[-1] < n_labels:
        raise ValueError(
          f'the last axis of {name} has the length {x.shape[-1]}, which is '
          f'less than the number of labels, {n_labels}'
        )
  return filters


def _resized(width: int, x: jax.Array) -> jax.Array:
  missing = max(0, width - x.shape[-1])
  return jnp.pad(x[..., :width], [(0, 0)] * (x.ndim - 1) + [(0, missing)])


def _shard_topk(static, rows, shared, features, filters):
  """Runs on each shard of labels, and returns the merged lists of shards."""
  graphdef, n_labels, chunk, k, sigmoid, recall, axes = static
  parts = HeadParts(graphdef, rows, shared)
  features = chunks.all_documents(features, axes)
  documents = jax.tree.leaves(features)[0].shape[0]

  per_shard = chunks.shard_rows(rows, n_labels)
  size = chunks.chunk_size(per_shard, chunk)

  def body(i, best):
    # The last chunk starts early enough to have the full size, and overlaps the
    # chunk before it. So all chunks have one size, and one program is compiled.
    start = jnp.minimum(i * size, per_shard - size)
    span = chunks.RowSpan(start, size)
    logits_BC = parts.logits(features, span.cut(rows), shared)
    ids_C = chunks.labels(rows, axes, span)
    real_C = (ids_C < n_labels) & (start + jnp.arange(size) >= i * size)
    cut = jax.tree.map(
      lambda x: lax.dynamic_slice_in_dim(x, start, size, axis=-1), filters
    )
    first = ids_C[0]
    return _with_chunk(best, logits_BC, first, real_C, cut, sigmoid, recall)

  best = BestLabels.none(1 + len(filters.get('slices_L', ())), documents, k)
  best = lax.fori_loop(0, -(-per_shard // size), body, best)
  if lax.axis_size(axes) == 1:
    return best
  # Shards come in the order of their labels. So if scores are equal, the lower
  # index still comes first.
  if DATA in axes:
    best = lax.all_to_all(best, DATA, split_axis=1, concat_axis=2, tiled=True)
  return lax.all_gather(best, LABEL, axis=2, tiled=True).first(k)


def _with_chunk(best, logits_BC, first, real_C, filters, sigmoid, recall=1.0):
  """Adds the labels of a chunk with real_C to the lists [G, B, K]."""
  scores_BC = _scores(logits_BC, real_C, filters, sigmoid)
  all_C = jnp.ones_like(real_C)
  masks_GC = jnp.stack([all_C, *filters.get('slices_L', ())])

  def add_to_slice(best_and_mask):
    best, mask_C = best_and_mask
    masked_BC = jnp.where(mask_C, scores_BC, -jnp.inf)
    return with_chunk(best, masked_BC, first, recall)

  # A loop over slices needs only one masked copy of the scores at a time.
  return lax.map(add_to_slice, (best, masks_GC))


def _scores(logits_BC, real_C, filters, sigmoid) -> jax.Array:
  scores_BC = logits_BC.astype(jnp.float32)
  allowed_BC = real_C[None]
  if 'weights_L' in filters:
    # Logarithms keep high probabilities apart. The probabilities themselves
    # would be rounded to 1.
    if sigmoid != AS_LOGITS:
      scores_BC = sigmoid[0] * scores_BC + sigmoid[1]
    scores_BC = jax.nn.log_sigmoid(scores_BC) + jnp.log(filters['weights_L'])
  if 'allowed' in filters:
    allowed_BC = allowed_BC & filters['allowed']
  return jnp.where(allowed_BC, scores_BC, -jnp.inf)
