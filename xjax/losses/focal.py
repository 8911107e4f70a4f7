"""Gives little weight to labels that are easy to decide (focal loss)."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from xjax.core.config_part import AMOUNT, RATE, field
from xjax.losses.loss import ChunkLoss, LabelLoss, LabelLossConfig


@dataclasses.dataclass
class FocalConfig(LabelLossConfig):
  """Chooses the focal loss (Lin et al. 2017), so that scores are logits.

  The focal loss moves probabilities towards 0.5. This does not change the
  ranking, and eval.calibration corrects the probabilities.
  """

  gamma: float = field(
    2.0,
    'A larger gamma gives less weight to labels that are easy to decide. With '
    'gamma 0, this weight is 1, as in binary cross entropy.',
    AMOUNT,
  )
  alpha: float = field(
    0.0,
    'Weight of gold labels; all other labels have weight 1 - alpha. With alpha '
    '0, all labels have weight 1.',
    RATE,
  )

  def build(self) -> ChunkLoss:
    return Focal(self.gamma, self.alpha, reduction=self.reduction)


@dataclasses.dataclass(frozen=True)
class Focal(LabelLoss):
  """Computes the focal loss, -a_t (1 - p_t)^gamma log p_t.

  The formula is eq. 5 of Lin et al. (2017), or eq. 4 if a_t is 1. p_t is the
  probability of the correct decision: sigmoid(z) for a gold label, and
  1 - sigmoid(z) for any other label. a_t is alpha for a gold label and
  1 - alpha for any other label, or always 1 if alpha is 0. With gamma 0 and
  alpha 0, the loss is binary cross entropy.
  """

  gamma: float
  alpha: float = 0.0

  def __call__(
    self, logits_BC: Float[Array, 'B C'], targets_BC: Bool[Array, 'B C']
  ) -> tuple[Float[Array, 'B C'], Float[Array, 'B C']]:
    # p_t = sigmoid(m), where the margin m is z for gold labels and -z for other
    # labels. Formulas in m are accurate even if p_t is nearly 0 or nearly 1.
    sign_BC = jnp.where(targets_BC, 1.0, -1.0)
    margin_BC = sign_BC * logits_BC
    wrong_BC = jax.nn.sigmoid(-margin_BC)  # 1 - p_t
    nats_BC = jax.nn.softplus(-margin_BC)  # -log p_t
    share_BC = wrong_BC**self.gamma
    if self.alpha:
      share_BC *= jnp.where(targets_BC, self.alpha, 1 - self.alpha)
    right_BC = jax.nn.sigmoid(margin_BC)
    # With w = 1 - p_t, the derivative of w^gamma nats with respect to m is
    # -w^gamma (gamma p_t nats + w).
    slope_BC = self.gamma * right_BC * nats_BC + wrong_BC
    return share_BC * nats_BC, -sign_BC * share_BC * slope_BC
