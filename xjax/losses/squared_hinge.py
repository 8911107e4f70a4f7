"""Defines the squared hinge loss, whose scores are margins, not logits."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float64
import numpy as np

from xjax.core.types import ScoreKind
from xjax.losses.loss import ChunkLoss, LabelLoss, LabelLossConfig


@dataclasses.dataclass
class SquaredHingeConfig(LabelLossConfig):
  """Chooses the squared hinge loss with targets 1 and -1; scores are margins.

  Labels with a margin above 0 are assigned. A calibration on dev turns margins
  into probabilities; without a calibration, margins are shown.
  """

  score_kind = ScoreKind.MARGIN

  def build(self) -> ChunkLoss:
    return SquaredHinge(reduction=self.reduction)

  def first_priors(
    self, priors_L: Float64[np.ndarray, ' L']
  ) -> Float64[np.ndarray, ' L']:
    """Returns probabilities whose logits are the margins 2 p - 1 of priors p.

    If a label must have the same margin in all documents, the margin 2 p - 1
    minimises the squared hinge.
    """
    return 1 / (1 + np.exp(1 - 2 * priors_L))


@dataclasses.dataclass(frozen=True)
class SquaredHinge(LabelLoss):
  """Computes the squared hinge loss max(0, 1 - y z)^2 of each margin z.

  The target y is 1 for gold labels and -1 for other labels. This is the loss of
  linear one-vs-all systems such as DiSMEC (Babbar & Schoelkopf 2017, Equation
  1) and of XR-Transformer (Zhang et al. 2021). The label costs of
  XR-Transformer are label weights here.
  """

  def __call__(
    self, margins_BC: Float[Array, 'B C'], targets_BC: Bool[Array, 'B C']
  ) -> tuple[Float[Array, 'B C'], Float[Array, 'B C']]:
    sign_BC = jnp.where(targets_BC, 1.0, -1.0)
    # A margin of -inf, which marks padding, has loss and derivative 0.
    short_BC = jnp.maximum(0.0, 1.0 - sign_BC * margins_BC)
    return short_BC**2, -2.0 * sign_BC * short_BC


squared_hinge = SquaredHinge()
