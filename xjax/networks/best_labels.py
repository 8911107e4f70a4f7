"""Keeps lists of the best labels while chunks of labels are added."""

import functools
from typing import NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Float32, Int

from xjax.core.types import PAD

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
