"""F1 at a threshold, from top-k lists."""

import dataclasses
from functools import partial

from flax import struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from xjax.core.types import PAD
from xjax.metrics.exact import exact
from xjax.metrics.ranking import hits


@struct.dataclass
class ThresholdF1:
  """Mergeable counts per label of the predictions above a threshold.

  A label is predicted where its score is greater than the threshold. Every
  document counts, those without gold as well: what is predicted for them is
  wrong.

  Attributes:
    correct_L: int64 [L], predicted and gold.
    predicted_L: int64 [L].
    gold_L: int64 [L].
    unknown: int64, documents that may have more labels above the threshold
      than their list has: their predictions are not all known.
  """

  correct_L: jax.Array
  predicted_L: jax.Array
  gold_L: jax.Array
  unknown: jax.Array

  @classmethod
  def empty(cls, n_labels: int) -> 'ThresholdF1':
    """The state before any document, for label indices below n_labels."""
    with exact():
      # Each its own buffer: update donates them.
      return cls(
        *(jnp.zeros(n_labels, jnp.int64) for _ in range(3)),
        jnp.zeros((), jnp.int64),
      )

  def update(
    self,
    ids_BK: Int[Array | np.ndarray, 'B K'],
    scores_BK: Float[Array | np.ndarray, 'B K'],
    gold_BP: Int[Array | np.ndarray, 'B P'],
    mask_B: Bool[Array | np.ndarray, ' B'],
    floor_B: Float[Array | np.ndarray, ' B'],
    threshold: float,
  ) -> 'ThresholdF1':
    """Adds documents; this state's buffers are given up (donated).

    Args:
      ids_BK: int32 labels by score descending, PAD beyond the list.
      scores_BK: float32 scores.
      gold_BP: int32 gold labels, each once, PAD beyond them.
      mask_B: False for rows that only fill the batch.
      floor_B: float32, a score that no label outside the list is above; -inf
        where the list has every label there is.
      threshold: in the unit of the scores.
    """
    with exact():
      return _update(
        self,
        ids_BK,
        scores_BK,
        gold_BP,
        mask_B,
        floor_B,
        np.float64(threshold),
      )

  def merge(self, other: 'ThresholdF1') -> 'ThresholdF1':
    """The state over the documents of both."""
    with exact():
      return jax.tree.map(jnp.add, self, other)

  def compute(self, n_labels: int) -> 'F1':
    """F1 = 2 TP / (predicted + gold), 0 where that is 0 / 0.

    Args:
      n_labels: labels that macro-F1 is the mean over.

    Returns:
      None for both where a list is too short, or no document has gold.
    """
    correct_L, predicted_L, gold_L = (
      np.asarray(x) for x in (self.correct_L, self.predicted_L, self.gold_L)
    )
    if int(self.unknown) or not gold_L.any():
      return F1(None, None)
    both_L = predicted_L + gold_L
    each_L = 2 * correct_L / np.maximum(both_L, 1)
    micro = 2 * correct_L.sum() / both_L.sum()
    return F1(float(micro), float(each_L.sum() / n_labels))


@dataclasses.dataclass(frozen=True)
class F1:
  """F1 of all decisions together, and the mean of the labels' own."""

  micro: float | None
  macro: float | None


@partial(jax.jit, donate_argnames='state')
def _update(
  state: ThresholdF1,
  ids_BK: Int[Array, 'B K'],
  scores_BK: Float[Array, 'B K'],
  gold_BP: Int[Array, 'B P'],
  mask_B: Bool[Array, ' B'],
  floor_B: Float[Array, ' B'],
  threshold: Float[Array, ''],
) -> ThresholdF1:
  above_BK = scores_BK.astype(jnp.float64) > threshold
  real_BK = mask_B[:, None] & (ids_BK != PAD)
  unknown_B = floor_B.astype(jnp.float64) > threshold
  correct_BK = hits(ids_BK, gold_BP) & above_BK
  return ThresholdF1(
    correct_L=_count(state.correct_L, ids_BK, real_BK & correct_BK),
    predicted_L=_count(state.predicted_L, ids_BK, real_BK & above_BK),
    gold_L=_count(state.gold_L, gold_BP, mask_B[:, None] & (gold_BP != PAD)),
    unknown=state.unknown + (mask_B & unknown_B).sum(),
  )


def _count(
  counts_L: Int[Array, ' L'],
  ids_BK: Int[Array, 'B K'],
  keep: Bool[Array, 'B K'],
) -> Int[Array, ' L']:
  # L is beyond the array and dropped; PAD itself would wrap around to L - 1.
  ids_BK = jnp.where(keep, ids_BK, len(counts_L))
  return counts_L.at[ids_BK].add(1, mode='drop')
