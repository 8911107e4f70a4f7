"""Defines softmax cross entropy over all labels, with several gold labels."""

import dataclasses

from flax import struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32

from xjax.core.config_part import field
from xjax.core.types import ScoreKind
from xjax.losses.loss import ChunkLoss, LossConfig


@dataclasses.dataclass
class SoftmaxConfig(LossConfig):
  """Chooses softmax cross entropy over all labels; scores are margins.

  Labels compete: a score has a meaning only in comparison with the other scores
  of the same document. So only a calibration on dev (eval.calibration) turns
  scores into probabilities. Among the F1 metrics with a threshold, use
  micro-F1-tuned, whose threshold is tuned on dev. A head computes its products
  twice, because a first pass over the labels computes the sum over all labels.
  Only the label weights of gold labels are used.
  """

  averaged: bool = field(
    True,
    'Whether all documents count equally, however many gold labels they have.',
  )

  score_kind = ScoreKind.MARGIN

  def build(self) -> ChunkLoss:
    return Softmax(self.averaged)


@dataclasses.dataclass(frozen=True)
class Softmax(ChunkLoss):
  """Computes a weighted sum of softmax cross entropies, one per gold label.

  The loss is sum_p a_p (log sum_l exp(z_l) - z_p) over the gold labels p of a
  document. With a_p = 1, this is the reduction "pick all labels" of Menon et
  al. (2019). If `averaged` is true, a_p = 1 / P for a document with P gold
  labels; this is the normalised form of the same reduction. If gold label p has
  a label weight, a_p is also multiplied by this weight. A document without gold
  labels has loss 0.
  """

  averaged: bool = True
  normalised = True

  def with_normaliser(
    self, normaliser_B: Float32[Array, ' B'], gold_B: Float32[Array, ' B']
  ) -> 'NormalisedSoftmax':
    share_B = jnp.ones_like(gold_B)
    if self.averaged:
      # The inner `where` avoids a division by 0 without gold labels.
      share_B = jnp.where(gold_B > 0, 1 / jnp.where(gold_B > 0, gold_B, 1), 0)
    return NormalisedSoftmax(normaliser_B, share_B, gold_B * share_B)


@struct.dataclass
class NormalisedSoftmax(ChunkLoss):
  """Computes the softmax loss from the known sum over all labels."""

  normaliser_B: jax.Array  # log sum_l exp(z_l)
  share_B: jax.Array  # a_p of a gold label whose label weight is 1
  gold_B: jax.Array  # the sum of a_p over a document's gold labels
  normalised = True

  def gold(
    self, logits_BP: Float32[Array, 'B P']
  ) -> tuple[Float32[Array, 'B P'], Float32[Array, 'B P']]:
    share_BP = jnp.broadcast_to(self.share_B[:, None], logits_BP.shape)
    return share_BP * (self.normaliser_B[:, None] - logits_BP), -share_BP

  def absent(
    self,
    logits_BC: Float32[Array, 'B C'],
    weight_C: Float32[Array, ' C'] | None = None,
  ) -> tuple[Float32[Array, ''], Float32[Array, 'B C']]:
    # Gold labels have loss 0 here too, but all labels have derivatives.
    del weight_C
    # This cannot overflow: no logit is larger than the normaliser.
    share_BC = jnp.exp(logits_BC - self.normaliser_B[:, None])
    return jnp.float32(0), self.gold_B[:, None] * share_BC
