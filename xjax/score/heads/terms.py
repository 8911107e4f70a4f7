"""The loss of one chunk of labels and its derivative by their logits."""

from typing import NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from xjax.core.types import PAD
from xjax.losses.contract import ChunkLoss, LabelWeights


class Gold(NamedTuple):
  """The gold labels of a batch.

  Attributes:
    positives_BP: int32, each label once, PAD elsewhere and in filling rows.
    mask_B: bool, False for rows that only fill the batch.
  """

  positives_BP: jax.Array
  mask_B: jax.Array


def gold_of(
  positives_BP: Int32[Array, 'B P'], mask_B: Bool[Array, ' B']
) -> Gold:
  """Gold labels as `chunk_loss` takes them; what is named twice counts once."""
  sorted_BP = jnp.sort(positives_BP, axis=1)
  again_BP = sorted_BP == jnp.roll(sorted_BP, 1, axis=1)
  again_BP = again_BP.at[:, 0].set(False)
  return Gold(jnp.where(again_BP | ~mask_B[:, None], PAD, sorted_BP), mask_B)


class Chunk(NamedTuple):
  """Labels that are scored at a time.

  Attributes:
    first: int32, the index of its first label.
    learnt_C: bool, those that the loss is over.
    weights: of its labels, or None.
  """

  first: jax.Array
  learnt_C: jax.Array
  weights: LabelWeights | None


def chunk_loss(
  loss: ChunkLoss, logits_BC: Float32[Array, 'B C'], gold: Gold, chunk: Chunk
) -> tuple[Float32[Array, ''], Float32[Array, 'B C']]:
  """The sum of the loss over documents and labels, and its derivative.

  Gold labels are looked at by themselves, B P of them: no [B, C] array says
  which they are.
  """
  at_BP, inside_BP = _places(gold, chunk)
  row_B1 = jnp.arange(len(at_BP))[:, None]
  seen_BP = jnp.where(inside_BP, logits_BC[row_B1, at_BP], 0.0)
  # Beyond the last column: nothing is written there.
  write_BP = jnp.where(inside_BP, at_BP, logits_BC.shape[1])
  logits_BC = _visible(logits_BC, gold, chunk)
  if not loss.normalised:
    logits_BC = logits_BC.at[row_B1, write_BP].set(-jnp.inf, mode='drop')
  weights = chunk.weights
  negative_C = None if weights is None else weights.negative_L
  total, dlogits_BC = loss.absent(logits_BC, negative_C)
  loss_BP, dlogits_BP = loss.gold(seen_BP)
  if weights is not None:
    positive_BP = weights.positive_L[at_BP]
    loss_BP, dlogits_BP = loss_BP * positive_BP, dlogits_BP * positive_BP
  total += jnp.where(inside_BP, loss_BP, 0.0).sum()
  return total, dlogits_BC.at[row_B1, write_BP].add(dlogits_BP, mode='drop')


class Normaliser(NamedTuple):
  """What a normalised loss needs of all logits, so far.

  Attributes:
    highest_B: float32, the greatest logit; -inf before the first.
    sum_B: float32 sum of exp(logit - highest).
    gold_B: float32 sum of the gold labels' weights.
  """

  highest_B: jax.Array
  sum_B: jax.Array
  gold_B: jax.Array

  @classmethod
  def start(cls, documents: int) -> 'Normaliser':
    zero_B = jnp.zeros(documents, jnp.float32)
    return cls(jnp.full(documents, -jnp.inf), zero_B, zero_B)

  def with_chunk(
    self, logits_BC: Float32[Array, 'B C'], gold: Gold, chunk: Chunk
  ) -> 'Normaliser':
    """With the logits of one more chunk."""
    at_BP, inside_BP = _places(gold, chunk)
    weight_BP = 1.0
    if chunk.weights is not None:
      weight_BP = chunk.weights.positive_L[at_BP]
    logits_BC = _visible(logits_BC, gold, chunk)
    highest_B = jnp.maximum(self.highest_B, logits_BC.max(axis=1))
    base_B = jnp.where(highest_B == -jnp.inf, 0.0, highest_B)
    new_B = jnp.exp(logits_BC - base_B[:, None]).sum(axis=1)
    return Normaliser(
      highest_B,
      self.sum_B * jnp.exp(self.highest_B - base_B) + new_B,
      self.gold_B + jnp.where(inside_BP, weight_BP, 0.0).sum(axis=1),
    )

  def over(self, axes: tuple[str, ...], loss: ChunkLoss) -> ChunkLoss:
    """The loss, given the logits of all shards on these mesh axes."""
    highest_B = lax.pmax(self.highest_B, axes)
    base_B = jnp.where(highest_B == -jnp.inf, 0.0, highest_B)
    sum_B = lax.psum(self.sum_B * jnp.exp(self.highest_B - base_B), axes)
    # Of a row without any label, 0 instead of -inf: its share stays 0.
    log_B = jnp.where(sum_B > 0, base_B + jnp.log(sum_B), 0.0)
    return loss.with_normaliser(log_B, lax.psum(self.gold_B, axes))


def _visible(logits_BC: jax.Array, gold: Gold, chunk: Chunk) -> jax.Array:
  """Logits of labels that the loss is over in real rows; else -inf."""
  seen_BC = gold.mask_B[:, None] & chunk.learnt_C
  return jnp.where(seen_BC, logits_BC, -jnp.inf)


def _places(gold: Gold, chunk: Chunk) -> tuple[jax.Array, jax.Array]:
  """Columns of gold labels, 0 of others, and which are of this chunk."""
  at_BP = gold.positives_BP - chunk.first
  # PAD and the labels of other chunks and shards fall outside.
  inside_BP = (at_BP >= 0) & (at_BP < len(chunk.learnt_C))
  at_BP = jnp.where(inside_BP, at_BP, 0)
  return at_BP, inside_BP & chunk.learnt_C[at_BP]
