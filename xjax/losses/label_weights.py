"""Label weights from training counts."""

from collections.abc import Sequence
import dataclasses

from jaxtyping import Float64, Num
import numpy as np

from xjax.core.config_part import RATE, field
from xjax.data.schema import propensity_weights
from xjax.losses.contract import LabelWeights, LabelWeightsConfig


@dataclasses.dataclass
class EvenWeights(LabelWeightsConfig):
  """All labels alike."""

  even = True

  def build(
    self,
    train_counts: np.ndarray,
    n_train: int,
    propensity: Sequence[float],
  ) -> LabelWeights | None:
    return None


@dataclasses.dataclass
class ClassBalancedWeights(LabelWeightsConfig):
  """By the effective number of a label's documents (Cui et al. 2019).

  They weigh all terms of an example by its one gold class. For many labels, our
  reading: each label's own term, where it is not gold as well. Adam undoes what
  this does to parameters of one label alone.
  """

  beta: float = field(
    0.999, '0: all alike; towards 1: by the inverse of the frequency.', RATE
  )

  def build(
    self,
    train_counts: np.ndarray,
    n_train: int,
    propensity: Sequence[float],
  ) -> LabelWeights:
    weights_L = class_balanced(train_counts, self.beta)
    return LabelWeights(weights_L, weights_L)


@dataclasses.dataclass
class PropensityWeights(LabelWeightsConfig):
  """Gold labels count 2 / p_l - 1, all others 1 (Qaraei et al. 2021).

  p_l is the propensity of Jain et al. (2016), with eval.propensity's A and B.
  """

  def build(
    self,
    train_counts: np.ndarray,
    n_train: int,
    propensity: Sequence[float],
  ) -> LabelWeights:
    inverse_L = propensity_weights(train_counts, n_train, *propensity)
    return LabelWeights(unbiased_positives(inverse_L), np.ones_like(inverse_L))


def class_balanced(
  train_counts: Num[np.ndarray, ' L'], beta: float
) -> Float64[np.ndarray, ' L']:
  """(1 - beta) / (1 - beta^n_l), of mean 1 (Cui et al. 2019).

  There a weight is of all terms of an example, by its one gold class; for many
  labels our reading is that it is of the label's own term, whether the label is
  gold or not. The mean is over labels with training documents; those without
  weigh as if they had one.

  Args:
    train_counts: training documents per label, n_l.
    beta: from 0 to below 1.
  """
  counts_L = np.maximum(np.asarray(train_counts, np.float64), 1)
  weights_L = (1 - beta) / (1 - beta**counts_L)
  seen_L = np.asarray(train_counts) > 0
  mean = weights_L[seen_L].mean() if seen_L.any() else 1.0
  return weights_L / mean


def unbiased_positives(
  inverse_propensities: Float64[np.ndarray, ' L'],
) -> Float64[np.ndarray, ' L']:
  """2 / p_l - 1, what gold labels count, with 1 for all others.

  For gold labels that are each recorded with probability p_l alone, this is the
  convex upper bound of the unbiased binary cross entropy and squared hinge
  (Qaraei et al. 2021, Section 3).

  Args:
    inverse_propensities: 1 / p_l, at least 1.
  """
  return 2 * inverse_propensities - 1
