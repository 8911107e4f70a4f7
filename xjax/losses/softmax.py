"""Softmax cross entropy over all labels, for several gold ones."""

import dataclasses

from flax import struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32

from xjax.core.config_part import field
from xjax.core.types import ScoreKind
from xjax.losses.contract import ChunkLoss, LossConfig


@dataclasses.dataclass
class SoftmaxConfig(LossConfig):
  """Softmax cross entropy with each gold label; scores are margins.

  Labels compete: a score tells little by itself, only beside the others of its
  document. What is shown as a probability is calibrated on dev, and of F1 the
  micro-F1-tuned counts. A head's products are computed twice for it. The label
  weights of gold labels count.
  """

  averaged: bool = field(
    True, 'Whether a document counts as one, however many gold labels.'
  )

  score_kind = ScoreKind.MARGIN

  def build(self) -> ChunkLoss:
    return Softmax(self.averaged)


@dataclasses.dataclass(frozen=True)
class Softmax(ChunkLoss):
  """The cross entropy of softmax with each gold label, one after the other.

  L = sum_p a_p (log sum_l exp(z_l) - z_p) over the gold labels p: with a_p = 1
  the reduction "pick all labels" of Menon et al. (2019), and where `averaged`,
  with a_p = 1 / P, its normalised form. A document without gold labels costs
  nothing. Of label weights those of gold labels count, in a_p.

  Attributes:
    averaged: whether each document counts as one, however many gold labels.
  """

  averaged: bool = True
  normalised = True

  def given(
    self, normaliser_B: Float32[Array, ' B'], gold_B: Float32[Array, ' B']
  ) -> 'NormalisedSoftmax':
    share_B = jnp.ones_like(gold_B)
    if self.averaged:
      share_B = jnp.where(gold_B > 0, 1 / jnp.where(gold_B > 0, gold_B, 1), 0)
    return NormalisedSoftmax(normaliser_B, share_B, gold_B * share_B)


@struct.dataclass
class NormalisedSoftmax(ChunkLoss):
  """Softmax once the sum over all labels is known.

  Attributes:
    normaliser_B: float32 log sum_l exp(z_l).
    share_B: float32, what a gold label of weight 1 counts.
    gold_B: float32, what all gold labels of a document count together.
  """

  normaliser_B: jax.Array
  share_B: jax.Array
  gold_B: jax.Array
  normalised = True

  def gold(
    self, logits_BP: Float32[Array, 'B P']
  ) -> tuple[Float32[Array, 'B P'], Float32[Array, 'B P']]:
    share_BP = jnp.broadcast_to(self.share_B[:, None], logits_BP.shape)
    return share_BP * (self.normaliser_B[:, None] - logits_BP), -share_BP

  def absent(
    self, logits_BC: jax.Array, weight_C: jax.Array | None = None
  ) -> tuple[jax.Array, jax.Array]:
    del weight_C
    share_BC = jnp.exp(logits_BC - self.normaliser_B[:, None])
    return jnp.float32(0), self.gold_B[:, None] * share_BC
