"""Computes label weights from the labels' training counts."""

from collections.abc import Sequence
import dataclasses

from jaxtyping import Float64, Num
import numpy as np

from xjax.core.config_part import RATE, field
from xjax.data.schema import propensity_weights
from xjax.losses.loss import LabelWeights, LabelWeightsConfig


@dataclasses.dataclass
class EvenWeights(LabelWeightsConfig):
  """Chooses no label weights: all labels have weight 1."""

  even = True

  def build(
    self,
    train_counts: Num[np.ndarray, ' L'],
    n_train: int,
    propensity: Sequence[float],
  ) -> LabelWeights | None:
    return None


@dataclasses.dataclass
class ClassBalancedWeights(LabelWeightsConfig):
  """Gives larger weights to labels with fewer documents (Cui et al. 2019).

  The weight of a label is inversely proportional to the label's effective
  number of training documents, which is (1 - beta^n) / (1 - beta) for n
  training documents.

  In the paper, each example has one gold class, and all terms of the example
  are multiplied by the weight of this class. Here a document has many labels,
  so the term of a label is multiplied by the weight of this label, whether the
  label is gold or not. Adam cancels this factor for parameters that belong to
  one label only.
  """

  beta: float = field(
    0.999,
    'With beta 0, all labels have weight 1. If beta is close to 1, the weights '
    "are nearly proportional to the inverse of the labels' frequencies.",
    RATE,
  )

  def build(
    self,
    train_counts: Num[np.ndarray, ' L'],
    n_train: int,
    propensity: Sequence[float],
  ) -> LabelWeights:
    weights_L = class_balanced(train_counts, self.beta)
    return LabelWeights(weights_L, weights_L)


@dataclasses.dataclass
class PropensityWeights(LabelWeightsConfig):
  """Gives weight 2 / p_l - 1 to gold labels, and weight 1 to other labels.

  These are the weights of Qaraei et al. 2021. p_l is the propensity of label l
  (Jain et al. 2016). The parameters A and B of the propensity formula are set
  by eval.propensity.
  """

  def build(
    self,
    train_counts: Num[np.ndarray, ' L'],
    n_train: int,
    propensity: Sequence[float],
  ) -> LabelWeights:
    inverse_L = propensity_weights(train_counts, n_train, *propensity)
    return LabelWeights(unbiased_positives(inverse_L), np.ones_like(inverse_L))


def class_balanced(
  train_counts: Num[np.ndarray, ' L'], beta: float
) -> Float64[np.ndarray, ' L']:
  """Returns the weights (1 - beta) / (1 - beta^n_l), scaled to mean 1.

  The mean is over labels with training documents. A label without training
  documents gets the weight of a label with one training document.
  """
  counts_L = np.maximum(np.asarray(train_counts, np.float64), 1)
  weights_L = (1 - beta) / (1 - beta**counts_L)
  seen_L = np.asarray(train_counts) > 0
  mean = weights_L[seen_L].mean() if seen_L.any() else 1.0
  return weights_L / mean


def unbiased_positives(
  inverse_propensities: Float64[np.ndarray, ' L'],
) -> Float64[np.ndarray, ' L']:
  """Returns the weights 2 / p_l - 1 of gold labels.

  If each gold label is recorded only with probability p_l, binary cross entropy
  with these weights is the convex upper bound of the unbiased binary cross
  entropy. The same is true for the squared hinge (Qaraei et al. 2021, Section
  3).
  """
  return 2 * inverse_propensities - 1
