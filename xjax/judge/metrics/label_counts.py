"""Per-label counts of decisions: correct, predicted and gold.

A decision is a label given to a document: by being among the first k of its
list, or by a score above a threshold.
"""

from flax import struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from xjax.core.types import PAD


@struct.dataclass
class LabelCounts:
  """Mergeable counts per label; sums over documents.

  Every document counts, those without gold as well: what is predicted for
  them is wrong.

  Attributes:
    correct_QL: int64, predicted and gold, for each set of decisions.
    predicted_QL: int64.
    gold_L: int64.
  """

  correct_QL: jax.Array
  predicted_QL: jax.Array
  gold_L: jax.Array

  @classmethod
  def empty(cls, n_sets: int, n_labels: int) -> 'LabelCounts':
    """The counts of no document."""
    shape = (n_sets, n_labels)
    # Each its own buffer: updates donate them.
    return cls(
      jnp.zeros(shape, jnp.int64),
      jnp.zeros(shape, jnp.int64),
      jnp.zeros(n_labels, jnp.int64),
    )

  def add(
    self,
    ids_BK: Int[Array, 'B K'],
    hits_BK: Bool[Array, 'B K'],
    set_BK: Int[Array, 'B K'],
    gold_BP: Int[Array, 'B P'],
  ) -> 'LabelCounts':
    """Adds documents.

    Args:
      ids_BK: int32 labels; PAD is no decision.
      hits_BK: whether they are gold.
      set_BK: the set that a decision is in; beyond the sets: none.
      gold_BP: int32, PAD beyond them.
    """
    return LabelCounts(
      _count(self.correct_QL, set_BK, jnp.where(hits_BK, ids_BK, PAD)),
      _count(self.predicted_QL, set_BK, ids_BK),
      _count(self.gold_L[None], jnp.zeros_like(gold_BP), gold_BP)[0],
    )


def rank_sets(
  ids_BK: Int[Array, 'B K'], ks: tuple[int, ...]
) -> Int[Array, 'B K']:
  """The first of the cut-offs, ascending, that each place is within.

  A place beyond them all is in set len(ks).
  """
  places = jnp.arange(ids_BK.shape[1])
  return jnp.broadcast_to(
    jnp.searchsorted(jnp.asarray(ks), places, side='right'), ids_BK.shape
  )


def above(
  scores_BK: Float[Array, 'B K'], threshold: Float[Array, '']
) -> Bool[Array, 'B K']:
  """Where a score is greater than the threshold, at its precision."""
  return scores_BK.astype(threshold.dtype) > threshold


def _count(
  counts_QL: Int[Array, 'Q L'],
  set_BK: Int[Array, 'B K'],
  ids_BK: Int[Array, 'B K'],
) -> Int[Array, 'Q L']:
  # L is beyond the array and dropped; PAD itself would wrap around to L - 1.
  ids_BK = jnp.where(ids_BK == PAD, counts_QL.shape[1], ids_BK)
  return counts_QL.at[set_BK, ids_BK].add(1, mode='drop')
