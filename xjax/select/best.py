"""The best labels so far, which chunk after chunk is added to."""

import functools
from typing import NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Float32, Int, Int32

from xjax.core.types import PAD

# A chunk of _LEAST labels or more is looked through before anything is sorted,
# in blocks of _BLOCK labels. After the first chunks no more than _FEW blocks of
# a document have anything new, and only the labels of these are sorted in.
_LEAST, _BLOCK, _FEW = 1024, 16, 8


class Best(NamedTuple):
  """Lists of labels, by score descending, then index ascending.

  Attributes:
    ids: int32 [..., K], PAD where labels run out.
    scores: float32 [..., K], -inf where ids are PAD.
  """

  ids: jax.Array
  scores: jax.Array

  @classmethod
  def none(cls, *shape: int) -> 'Best':
    """Lists without any label."""
    return cls(jnp.full(shape, PAD, jnp.int32), jnp.full(shape, -jnp.inf))

  def first(self, k: int) -> 'Best':
    """The k best of each row, in which labels of equal scores ascend."""
    scores, at = lax.top_k(self.scores, k)
    ids = jnp.take_along_axis(self.ids, at, axis=-1)
    return Best(jnp.where(scores == -jnp.inf, PAD, ids), scores)


def with_chunk(
  best: Best,
  scores_BC: Float32[Array, 'B C'],
  first: Int[Array, ''],
  recall: float = 1.0,
) -> Best:
  """The lists [B, K] after a chunk of labels, all of higher index than theirs.

  Of 1024 labels or more, nothing as large as the scores is held beside them; a
  padded copy, where they are no multiple of 16.

  Args:
    best: lists so far.
    scores_BC: -inf where a label may not be listed. NaN is where
      jax.lax.top_k puts it.
    first: index of the chunk's first label.
    recall: below 1, on a TPU: the share of a chunk's K best labels that is
      expected to be found (jax.lax.approx_max_k; Chern et al. 2022), and then
      equal scores may come in any order. Elsewhere nothing is approximate.
  """
  # Zeros of either sign are equal, which top_k would tell apart.
  scores_BC = jnp.where(scores_BC == 0, 0.0, scores_BC)
  if recall == 1:
    return _exactly(best, scores_BC, first)
  nearly = functools.partial(_nearly, recall=recall)
  return lax.platform_dependent(
    best, scores_BC, first, tpu=nearly, default=_exactly
  )


def _exactly(
  best: Best, scores_BC: Float32[Array, 'B C'], first: Int[Array, '']
) -> Best:
  documents, size = scores_BC.shape
  if size < _LEAST:
    at_BC = jnp.broadcast_to(jnp.arange(size), scores_BC.shape)
    return _joined(best, scores_BC, at_BC, first)
  scores_BC = jnp.pad(
    scores_BC, [(0, 0), (0, -size % _BLOCK)], constant_values=-jnp.inf
  )
  # Only what is above the last of a list enters it: of two equal scores that
  # with the lower index is there. Not `>`, in which NaN would be lost.
  new_BC = ~(scores_BC <= best.scores[:, -1:])
  # Block n is labels n, n + N, n + 2N ...
  new_by_block = new_BC.reshape(documents, _BLOCK, -1).any(axis=1)
  return lax.cond(
    (new_by_block.sum(axis=1) > _FEW).any(),
    lambda *given: _of_all(*given[:3]),
    _of_few,
    *(best, scores_BC, first, new_by_block),
  )


def _of_all(
  best: Best, scores_BC: Float32[Array, 'B C'], first: Int[Array, '']
) -> Best:
  k = min(best.ids.shape[1], scores_BC.shape[1])
  return _joined(best, *lax.top_k(scores_BC, k), first)


def _of_few(
  best: Best,
  scores_BC: Float32[Array, 'B C'],
  first: Int[Array, ''],
  new_by_block: jax.Array,
) -> Best:
  """As _of_all, where no more than _FEW blocks have anything new."""
  documents, blocks = new_by_block.shape
  earliest = -jnp.arange(blocks, dtype=jnp.float32)
  _, at_block = lax.top_k(jnp.where(new_by_block, earliest, -jnp.inf), _FEW)
  # In the order of labels, but for blocks without anything new.
  at_BC = at_block[:, None, :] + blocks * jnp.arange(_BLOCK)[:, None]
  at_BC = at_BC.reshape(documents, -1)
  found_BC = jnp.take_along_axis(scores_BC, at_BC, axis=1)
  return _joined(best, found_BC, at_BC, first)


def _nearly(
  best: Best,
  scores_BC: Float32[Array, 'B C'],
  first: Int[Array, ''],
  recall: float,
) -> Best:
  k = min(best.ids.shape[1], scores_BC.shape[1])
  found = lax.approx_max_k(scores_BC, k, recall_target=recall)
  return _joined(best, *found, first)


def _joined(
  best: Best,
  scores_BC: Float32[Array, 'B C'],
  at_BC: Int32[Array, 'B C'],
  first: Int[Array, ''],
) -> Best:
  """The best of the lists and of labels of the chunk, by their places in it."""
  both = Best(
    jnp.concatenate([best.ids, first + at_BC], axis=1),
    jnp.concatenate([best.scores, scores_BC], axis=1),
  )
  return both.first(best.ids.shape[1])
