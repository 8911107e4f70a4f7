"""Computes the loss of a few labels, and its derivative by their logits."""

from typing import NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from xjax.core.numerics import total
from xjax.core.types import PAD
from xjax.losses.loss import ChunkLoss, LabelWeights, Reduction


class Gold(NamedTuple):
  """Holds the gold labels of a batch."""

  # int32. Each gold label of a document occurs once. All other entries are PAD.
  # Rows that only fill the batch have no gold labels.
  positives_BP: jax.Array
  mask_B: jax.Array  # bool, False for rows that only fill the batch


def gold_of(
  positives_BP: Int32[Array, 'B P'], mask_B: Bool[Array, ' B']
) -> Gold:
  """Prepares gold labels for `chunk_loss`, and removes repeated labels."""
  sorted_BP = jnp.sort(positives_BP, axis=1)
  repeated_BP = sorted_BP == jnp.roll(sorted_BP, 1, axis=1)
  repeated_BP = repeated_BP.at[:, 0].set(False)
  return Gold(jnp.where(repeated_BP | ~mask_B[:, None], PAD, sorted_BP), mask_B)


class Chunk(NamedTuple):
  """Describes consecutive labels that are scored at the same time."""

  first: jax.Array  # int32, index of the chunk's first label
  learnt_C: jax.Array  # bool, True for the labels that the loss includes
  weights: LabelWeights | None


def chunk_loss(
  loss: ChunkLoss, logits_BC: Float32[Array, 'B C'], gold: Gold, chunk: Chunk
) -> tuple[Float32[Array, ''], Float32[Array, 'B C']]:
  """Computes the loss of a chunk, summed over its documents and labels.

  The losses of the B x P gold labels are computed separately, so that no [B, C]
  array has to mark gold labels.
  """
  at_BP, inside_BP = _places(gold, chunk)
  row_B1 = jnp.arange(len(at_BP))[:, None]
  gold_logits_BP = jnp.where(inside_BP, logits_BC[row_B1, at_BP], 0.0)
  # Labels outside the chunk get a column after the last column. mode='drop'
  # ignores these labels.
  write_BP = jnp.where(inside_BP, at_BP, logits_BC.shape[1])
  logits_BC = _mask_logits(logits_BC, gold, chunk)
  if not loss.normalised:
    logits_BC = logits_BC.at[row_B1, write_BP].set(-jnp.inf, mode='drop')
  weights = chunk.weights
  negative_C = None if weights is None else weights.negative_L
  loss_sum, dlogits_BC = loss.absent(logits_BC, negative_C)
  loss_BP, dlogits_BP = loss.gold(gold_logits_BP)
  if weights is not None:
    positive_BP = weights.positive_L[at_BP]
    loss_BP, dlogits_BP = loss_BP * positive_BP, dlogits_BP * positive_BP
  loss_sum += jnp.where(inside_BP, loss_BP, 0.0).sum()
  return loss_sum, dlogits_BC.at[row_B1, write_BP].add(dlogits_BP, mode='drop')


def slot_loss(
  loss: ChunkLoss,
  logits_BA: Float32[Array, 'B A'],
  gold_BA: Bool[Array, 'B A'],
  weights_BA: Float32[Array, 'B A'] | None = None,
  scale_B: Float32[Array, ' B'] | None = None,
) -> tuple[Float32[Array, ''], Float32[Array, 'B A']]:
  """Computes the loss of labels that documents need not share, summed.

  For a chunk of labels, the results are those of chunk_loss. Logits are -inf
  for entries without a label, and finite for gold labels. Factors are 1 where
  None. A normalised loss, whose normaliser is known, uses only the weights of
  gold labels, and scale_B must be None.
  """
  if not loss.normalised and weights_BA is None and scale_B is None:
    return loss.summed(logits_BA, gold_BA)
  if not loss.normalised:
    loss_BA, dlogits_BA = loss(logits_BA, gold_BA)
    for factor in (weights_BA, None if scale_B is None else scale_B[:, None]):
      if factor is not None:
        loss_BA, dlogits_BA = loss_BA * factor, dlogits_BA * factor
    return total(loss_BA), dlogits_BA
  gold_loss_BA, dgold_BA = loss.gold(jnp.where(gold_BA, logits_BA, 0.0))
  if weights_BA is not None:
    gold_loss_BA, dgold_BA = gold_loss_BA * weights_BA, dgold_BA * weights_BA
  gold_loss_BA = jnp.where(gold_BA, gold_loss_BA, 0.0)
  dlogits_BA = loss.absent(logits_BA)[1] + jnp.where(gold_BA, dgold_BA, 0.0)
  return gold_loss_BA.sum(), dlogits_BA


def labels_per_loss(loss: ChunkLoss, n_labels: int) -> int:
  """Returns the number by which a loss over all labels is divided."""
  return n_labels if loss.reduction is Reduction.MEAN_LABELS else 1


class Normaliser(NamedTuple):
  """Holds sums over the labels of some chunks, for a normalised loss."""

  highest_B: jax.Array  # float32, the largest logit, or -inf at the start
  sum_B: jax.Array  # float32, sum of exp(logit - highest)
  gold_B: jax.Array  # float32, sum of the gold labels' weights

  @classmethod
  def start(cls, documents: int) -> 'Normaliser':
    zero_B = jnp.zeros(documents, jnp.float32)
    return cls(jnp.full(documents, -jnp.inf), zero_B, zero_B)

  def with_chunk(
    self, logits_BC: Float32[Array, 'B C'], gold: Gold, chunk: Chunk
  ) -> 'Normaliser':
    at_BP, inside_BP = _places(gold, chunk)
    weight_BP = 1.0
    if chunk.weights is not None:
      weight_BP = chunk.weights.positive_L[at_BP]
    logits_BC = _mask_logits(logits_BC, gold, chunk)
    return self.plus(logits_BC, jnp.where(inside_BP, weight_BP, 0.0))

  def plus(
    self, logits_BC: Float32[Array, 'B C'], gold_BP: Float32[Array, 'B P']
  ) -> 'Normaliser':
    """Adds labels, -inf if excluded; gold_BP are the weights of gold labels."""
    highest_B = jnp.maximum(self.highest_B, logits_BC.max(axis=1))
    base_B = jnp.where(highest_B == -jnp.inf, 0.0, highest_B)
    new_B = jnp.exp(logits_BC - base_B[:, None]).sum(axis=1)
    return Normaliser(
      highest_B,
      self.sum_B * jnp.exp(self.highest_B - base_B) + new_B,
      self.gold_B + gold_BP.sum(axis=1),
    )

  def normalised(self, loss: ChunkLoss, axes: tuple[str, ...]) -> ChunkLoss:
    """Returns the loss, normalised by the sums over labels of all shards."""
    highest_B = lax.pmax(self.highest_B, axes)
    base_B = jnp.where(highest_B == -jnp.inf, 0.0, highest_B)
    sum_B = lax.psum(self.sum_B * jnp.exp(self.highest_B - base_B), axes)
    # A row without any label gets 0 instead of -inf, so that the row adds 0 to
    # the loss.
    log_B = jnp.where(sum_B > 0, base_B + jnp.log(sum_B), 0.0)
    return loss.with_normaliser(log_B, lax.psum(self.gold_B, axes))


def _mask_logits(logits_BC: jax.Array, gold: Gold, chunk: Chunk) -> jax.Array:
  """Sets logits to -inf for excluded labels and for masked documents."""
  learnt_BC = gold.mask_B[:, None] & chunk.learnt_C
  return jnp.where(learnt_BC, logits_BC, -jnp.inf)


def _places(gold: Gold, chunk: Chunk) -> tuple[jax.Array, jax.Array]:
  """Finds the columns of gold labels in a chunk, 0 for all other entries.

  The second result is True for the gold labels that the loss includes.
  """
  at_BP = gold.positives_BP - chunk.first
  # PAD and the labels of other chunks and shards are outside of the chunk.
  inside_BP = (at_BP >= 0) & (at_BP < len(chunk.learnt_C))
  at_BP = jnp.where(inside_BP, at_BP, 0)
  return at_BP, inside_BP & chunk.learnt_C[at_BP]
