"""Selects the k best labels of a head, on its devices."""

from collections.abc import Sequence
import functools
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Float32, Int, Int32

from xjax.core.mesh import BATCH, DATA, LABEL, padded_labels
from xjax.core.types import AS_LOGITS, PAD
from xjax.networks.heads import chunks
from xjax.networks.heads.chunks import HeadParts, row_spec, split_head
from xjax.networks.heads.head import Head

# A chunk of at least _LEAST labels is divided into blocks of _BLOCK labels.
# After the first chunks, usually at most _FEW blocks per document have labels
# that enter the list. If so, only the labels of these blocks are sorted.
_LEAST, _BLOCK, _FEW = 1024, 16, 8


class BestLabels(NamedTuple):
  """Holds lists of labels, sorted by descending score, then ascending index."""

  ids: jax.Array  # int32 [..., K], PAD where labels run out
  scores: jax.Array  # float32 [..., K], -inf where ids are PAD

  @classmethod
  def none(cls, *shape: int) -> 'BestLabels':
    """Returns empty lists of this shape, [..., K]."""
    return cls(jnp.full(shape, PAD, jnp.int32), jnp.full(shape, -jnp.inf))

  def first(self, k: int) -> 'BestLabels':
    """Returns the k best labels of each row.

    In each row, labels with equal scores must be in ascending order.
    """
    scores, places = lax.top_k(self.scores, k)
    ids = jnp.take_along_axis(self.ids, places, axis=-1)
    return BestLabels(jnp.where(scores == -jnp.inf, PAD, ids), scores)


def with_chunk(
  best: BestLabels,
  scores_BC: Float32[Array, 'B C'],
  first: Int[Array, ''],
  recall: float = 1.0,
) -> BestLabels:
  """Returns the lists [B, K] after a chunk of labels has been added.

  The chunk's first label has index `first`, and all labels of the chunk must
  have higher indices than the labels in the lists. Labels with score -inf are
  not listed. A chunk of 1024 labels or more needs at most one more array as
  large as the scores (a padded copy, unless the size is a multiple of 16).

  On TPUs, `recall` is the expected share of a chunk's K best labels that are
  found (jax.lax.approx_max_k; Chern et al. 2022). If it is below 1, labels with
  equal scores may come in any order. On other devices, the lists are exact.
  """
  # top_k ranks 0.0 above -0.0, but both must have the same rank.
  scores_BC = jnp.where(scores_BC == 0, 0.0, scores_BC)
  if recall == 1:
    return _add_exactly(best, scores_BC, first)
  approximately = functools.partial(_add_approximately, recall=recall)
  return lax.platform_dependent(
    best, scores_BC, first, tpu=approximately, default=_add_exactly
  )


def _add_exactly(best, scores_BC, first) -> BestLabels:
  documents, size = scores_BC.shape
  if size < _LEAST:
    place_BC = jnp.broadcast_to(jnp.arange(size), scores_BC.shape)
    return _merge(best, scores_BC, place_BC, first)
  scores_BC = jnp.pad(
    scores_BC, [(0, 0), (0, -size % _BLOCK)], constant_values=-jnp.inf
  )
  # If scores are equal, the label with the lower index wins, and this label is
  # in the list already. `>` would drop NaN.
  new_BC = ~(scores_BC <= best.scores[:, -1:])
  # With n blocks, block i has the labels i, i + n, i + 2n, ...
  new_by_block = new_BC.reshape(documents, _BLOCK, -1).any(axis=1)
  return lax.cond(
    (new_by_block.sum(axis=1) > _FEW).any(),
    lambda best, scores_BC, first, _: _add_all(best, scores_BC, first),
    _add_few_blocks,
    *(best, scores_BC, first, new_by_block),
  )


def _add_all(best, scores_BC, first) -> BestLabels:
  k = min(best.ids.shape[1], scores_BC.shape[1])
  return _merge(best, *lax.top_k(scores_BC, k), first)


def _add_few_blocks(best, scores_BC, first, new_by_block) -> BestLabels:
  """Adds the labels of at most _FEW blocks per document to the lists."""
  documents, blocks = new_by_block.shape
  earliest = -jnp.arange(blocks, dtype=jnp.float32)
  _, chosen_blocks = lax.top_k(
    jnp.where(new_by_block, earliest, -jnp.inf), _FEW
  )
  # _merge needs labels in ascending order, and so are the blocks with new
  # labels. Others, if there are fewer than _FEW, need not: they enter no list.
  place_BC = chosen_blocks[:, None, :] + blocks * jnp.arange(_BLOCK)[:, None]
  place_BC = place_BC.reshape(documents, -1)
  new_scores_BC = jnp.take_along_axis(scores_BC, place_BC, axis=1)
  return _merge(best, new_scores_BC, place_BC, first)


def _add_approximately(best, scores_BC, first, recall) -> BestLabels:
  """Adds a chunk of labels, but may miss some of the chunk's best labels."""
  k = min(best.ids.shape[1], scores_BC.shape[1])
  scores_and_places = lax.approx_max_k(scores_BC, k, recall_target=recall)
  return _merge(best, *scores_and_places, first)


def _merge(best, scores_BC, place_BC, first) -> BestLabels:
  both = BestLabels(
    jnp.concatenate([best.ids, first + place_BC], axis=1),
    jnp.concatenate([best.scores, scores_BC], axis=1),
  )
  return both.first(best.ids.shape[1])


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
