"""Squared hinge loss: scores are margins, not logits."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
import numpy as np

from xjax.core.types import ScoreKind
from xjax.losses.contract import ChunkLoss, LabelLoss, LossConfig


@dataclasses.dataclass
class SquaredHingeConfig(LossConfig):
  """Squared hinge of targets 1 and -1; scores are margins, above 0: assigned.

  What is shown as a probability is calibrated on dev, or else the margin.
  """

  score_kind = ScoreKind.MARGIN

  def build(self) -> ChunkLoss:
    return squared_hinge

  def first_priors(self, priors_L: np.ndarray) -> np.ndarray:
    """Those whose logits are 2 p - 1, where the squared hinge is least."""
    return 1 / (1 + np.exp(1 - 2 * priors_L))


@dataclasses.dataclass(frozen=True)
class SquaredHinge(LabelLoss):
  """max(0, 1 - y z)^2, with y = 1 for gold labels and -1 for others.

  The loss of linear one-vs-all systems such as DiSMEC (Babbar & Schoelkopf
  2017, Equation 1) and of XR-Transformer (Zhang et al. 2021), whose costs of
  labels are the label weights.
  """

  def __call__(
    self, margins_BC: Float[Array, 'B C'], targets_BC: Bool[Array, 'B C']
  ) -> tuple[Float[Array, 'B C'], Float[Array, 'B C']]:
    """The loss of each label; -inf that is no target costs nothing.

    Args:
      margins_BC: float32 z.
      targets_BC: whether the label is gold.

    Returns:
      loss_BC: float32.
      dmargins_BC: -2 y max(0, 1 - y z).
    """
    sign_BC = jnp.where(targets_BC, 1.0, -1.0)
    short_BC = jnp.maximum(0.0, 1.0 - sign_BC * margins_BC)
    return short_BC**2, -2.0 * sign_BC * short_BC


squared_hinge = SquaredHinge()
