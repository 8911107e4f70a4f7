"""What a loss gives for one chunk of labels, and how much labels count.

Nearly no label of a document is gold. So a loss comes in two parts: one that is
dense, of labels as if they were not gold, and one of the few that are.
"""

import abc
from collections.abc import Sequence
import dataclasses
from typing import ClassVar

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from xjax.core.config_part import ConfigPart
from xjax.core.numerics import total
from xjax.core.types import ScoreKind


@dataclasses.dataclass
class LossConfig(ConfigPart, abstract=True):
  """What is minimised, of each document and label.

  Attributes:
    score_kind: what the scores are of a model that this loss has trained:
      logits, or margins where they are no logits of labels by themselves.
  """

  score_kind: ClassVar[ScoreKind] = ScoreKind.LOGIT

  @abc.abstractmethod
  def build(self) -> 'ChunkLoss':
    """The loss."""

  def first_priors(self, priors_L: np.ndarray) -> np.ndarray:
    """Probabilities at whose logits scores begin: the prior, by default.

    Binary cross entropy is least there, as long as labels have no weights, and
    softmax is near; with weights, and of focal loss, it is elsewhere.

    Args:
      priors_L: float64 [L], of labels, strictly between 0 and 1.

    Returns:
      float64 [L].
    """
    return priors_L


@dataclasses.dataclass
class LabelWeightsConfig(ConfigPart, abstract=True):
  """How much each label counts in the loss, whichever loss it is.

  Attributes:
    even: whether all labels count alike, and no weights are made.
  """

  even: ClassVar[bool] = False

  @abc.abstractmethod
  def build(
    self,
    train_counts: np.ndarray,
    n_train: int,
    propensity: Sequence[float],
  ) -> 'LabelWeights | None':
    """The weights; None: all labels count alike.

    Args:
      train_counts: int [L], training documents of the labels scored.
      n_train: training documents.
      propensity: A and B of the propensity formula.

    Raises:
      DataError: propensities of fewer than 3 training documents.
    """


@struct.dataclass
class LabelWeights:
  """What a label's part of the loss is multiplied by.

  Attributes:
    positive_L: float32 or float64 [L], at least 0, where the label is gold.
    negative_L: likewise, where it is not. Both of the labels a head scores;
      rows that pad them may have any finite value.
  """

  positive_L: jax.Array
  negative_L: jax.Array


class ChunkLoss:
  """A loss over all labels, one chunk after the other.

  It is hashable, since compiled steps are known by it.

  Attributes:
    normalised: whether a label's loss depends on the logits of all others, so
      that a first pass finds their sum and `given` is called.
  """

  normalised = False

  def gold(self, logits_BP: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(loss_BP, dlogits_BP) float32 of gold labels, of finite logits."""
    raise NotImplementedError

  def absent(
    self, logits_BC: jax.Array, weight_C: jax.Array | None = None
  ) -> tuple[jax.Array, jax.Array]:
    """What labels that are not gold cost.

    Args:
      logits_BC: float32; -inf, which costs nothing, of labels that pad and in
        rows that only fill the batch. So are gold labels, but those of a
        normalised loss: they have a part in this one.
      weight_C: float32, what each label's part counts; None: all 1.

    Returns:
      loss: float32, the sum over documents and labels.
      dlogits_BC: float32, its derivative; 0 where logits are -inf.
    """
    raise NotImplementedError

  def given(self, normaliser_B: jax.Array, gold_B: jax.Array) -> 'ChunkLoss':
    """A normalised loss once all logits were seen.

    Args:
      normaliser_B: float32, the logarithm of the sum of exp(logit) over labels.
      gold_B: float32, the sum of the gold labels' weights.
    """
    raise NotImplementedError


class LabelLoss(ChunkLoss):
  """A loss of each label by itself: (logits_BC, targets_BC) -> the same.

  Called, it gives loss_BC and dlogits_BC, float32 and elementwise. Where
  targets_BC is False and the logit -inf, both are 0.
  """

  def __call__(
    self, logits_BC: jax.Array, targets_BC: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Elementwise loss and derivative; targets_BC: bool, whether gold."""
    raise NotImplementedError

  def gold(self, logits_BP: jax.Array) -> tuple[jax.Array, jax.Array]:
    return self(logits_BP, jnp.ones_like(logits_BP, bool))

  def absent(
    self, logits_BC: jax.Array, weight_C: jax.Array | None = None
  ) -> tuple[jax.Array, jax.Array]:
    loss_BC, dlogits_BC = self(logits_BC, jnp.zeros_like(logits_BC, bool))
    if weight_C is not None:
      loss_BC, dlogits_BC = loss_BC * weight_C, dlogits_BC * weight_C
    return total(loss_BC), dlogits_BC
