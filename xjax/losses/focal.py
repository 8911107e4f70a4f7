"""Focal loss: what is already right with certainty counts for little."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from xjax.core.config_part import AMOUNT, RATE, field
from xjax.losses.contract import ChunkLoss, LabelLoss, LossConfig


@dataclasses.dataclass
class FocalConfig(LossConfig):
  """Focal loss (Lin et al. 2017); scores are logits.

  Probabilities are drawn towards 0.5 by it; ranking is not concerned, and
  eval.calibration sets them right.
  """

  gamma: float = field(
    2.0,
    'How little certain decisions count; 0: as in binary cross entropy.',
    AMOUNT,
  )
  alpha: float = field(
    0.0,
    'Weight of gold labels, with 1 - alpha of all others; 0: 1 for both.',
    RATE,
  )

  def build(self) -> ChunkLoss:
    return Focal(self.gamma, self.alpha)


@dataclasses.dataclass(frozen=True)
class Focal(LabelLoss):
  """-a_t (1 - p_t)^gamma log p_t (Lin et al. 2017, Equations 4 and 5).

  p_t is the probability given to what is so: sigmoid(z) of a gold label and
  1 - sigmoid(z) of another. With gamma 0 it is binary cross entropy.

  Attributes:
    gamma: at least 0.
    alpha: a_t of gold labels, 1 - alpha of others; 0: 1 for both.
  """

  gamma: float
  alpha: float = 0.0

  def __call__(
    self, logits_BC: Float[Array, 'B C'], targets_BC: Bool[Array, 'B C']
  ) -> tuple[Float[Array, 'B C'], Float[Array, 'B C']]:
    """The loss of each label; -inf that is no target costs nothing.

    Args:
      logits_BC: float32.
      targets_BC: whether the label is gold.

    Returns:
      loss_BC: float32 nats.
      dlogits_BC: its derivative by the logits.
    """
    # In terms of m = z for gold labels and -z for others, of which p_t is the
    # sigmoid: no digits are lost where p_t is nearly 0 or nearly 1.
    sign_BC = jnp.where(targets_BC, 1.0, -1.0)
    margin_BC = sign_BC * logits_BC
    wrong_BC = jax.nn.sigmoid(-margin_BC)  # 1 - p_t
    nats_BC = jax.nn.softplus(-margin_BC)  # -log p_t
    share_BC = wrong_BC**self.gamma
    if self.alpha:
      share_BC *= jnp.where(targets_BC, self.alpha, 1 - self.alpha)
    right_BC = jax.nn.sigmoid(margin_BC)
    slope_BC = self.gamma * right_BC * nats_BC + wrong_BC
    return share_BC * nats_BC, -sign_BC * share_BC * slope_BC
