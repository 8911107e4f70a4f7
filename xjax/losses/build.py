"""Losses and label weights from their configs."""

from collections.abc import Sequence

import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.types import ScoreKind
from xjax.data.schema import propensity_weights
from xjax.losses.bce import bce
from xjax.losses.config import (
  BCEConfig,
  ClassBalancedWeights,
  EvenWeights,
  FocalConfig,
  LabelWeightsConfig,
  LossConfig,
  PropensityWeights,
  SoftmaxConfig,
  SquaredHingeConfig,
)
from xjax.losses.contract import ChunkLoss, LabelWeights
from xjax.losses.focal import Focal
from xjax.losses.label_weights import class_balanced, unbiased_positives
from xjax.losses.softmax import Softmax
from xjax.losses.squared_hinge import squared_hinge


def chunk_loss(config: LossConfig) -> ChunkLoss:
  """The loss that a config names.

  Raises:
    ConfigError: it names none.
  """
  match config:
    case BCEConfig():
      return bce
    case FocalConfig(gamma=gamma, alpha=alpha):
      return Focal(gamma, alpha)
    case SquaredHingeConfig():
      return squared_hinge
    case SoftmaxConfig(averaged=averaged):
      return Softmax(averaged)
  raise ConfigError(f'no loss is made from {config!r}')


def score_kind(config: LossConfig) -> ScoreKind:
  """What the scores are of a model that a loss has trained.

  Those of softmax are no logits of labels by themselves.
  """
  if isinstance(config, SquaredHingeConfig | SoftmaxConfig):
    return ScoreKind.MARGIN
  return ScoreKind.LOGIT


def first_priors(config: LossConfig, priors: np.ndarray) -> np.ndarray:
  """Probabilities at whose logits scores begin: the prior, whatever the loss.

  Binary cross entropy and the squared hinge are least there, as long as labels
  have no weights, and softmax is near; with weights, and of focal loss, it is
  elsewhere.

  Args:
    config: of the loss.
    priors: float64 [L], of labels, strictly between 0 and 1.

  Returns:
    float64 [L]: the same, or of the squared hinge, those whose logits are
    2 p - 1.
  """
  if isinstance(config, SquaredHingeConfig):
    return 1 / (1 + np.exp(1 - 2 * priors))
  return priors


def label_weights(
  config: LabelWeightsConfig,
  train_counts: np.ndarray,
  n_train: int,
  propensity: Sequence[float],
) -> LabelWeights | None:
  """The weights that a config names; None: all labels count alike.

  Args:
    config: of the weights.
    train_counts: int [L], training documents of the labels scored.
    n_train: training documents.
    propensity: A and B of the propensity formula.

  Returns:
    float64 [L] weights.

  Raises:
    ConfigError: the config names none.
    DataError: propensities of fewer than 3 training documents.
  """
  match config:
    case EvenWeights():
      return None
    case ClassBalancedWeights(beta=beta):
      weights_L = class_balanced(train_counts, beta)
      return LabelWeights(weights_L, weights_L)
    case PropensityWeights():
      inverse_L = propensity_weights(train_counts, n_train, *propensity)
      return LabelWeights(
        unbiased_positives(inverse_L), np.ones_like(inverse_L)
      )
  raise ConfigError(f'no label weights are made from {config!r}')
