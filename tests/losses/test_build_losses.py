import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.types import ScoreKind
from xjax.data.schema import propensity_weights
from xjax.losses.bce import BCEConfig, bce
from xjax.losses.focal import Focal, FocalConfig
from xjax.losses.label_weights import (
  ClassBalancedWeights,
  EvenWeights,
  PropensityWeights,
  class_balanced,
)
from xjax.losses.sequence import SequenceLoss, SequenceLossConfig
from xjax.losses.softmax import Softmax, SoftmaxConfig
from xjax.losses.squared_hinge import SquaredHingeConfig, squared_hinge

COUNTS = np.array([40, 3, 1, 0])


@pytest.mark.parametrize(
  ('config', 'loss', 'kind'),
  [
    (BCEConfig(), bce, ScoreKind.LOGIT),
    (FocalConfig(1.5, 0.3), Focal(1.5, 0.3), ScoreKind.LOGIT),
    (SquaredHingeConfig(), squared_hinge, ScoreKind.MARGIN),
    (SoftmaxConfig(averaged=False), Softmax(False), ScoreKind.MARGIN),
    (SequenceLossConfig(1.0), SequenceLoss(1.0), ScoreKind.LOGIT),
  ],
)
def test_losses(config, loss, kind):
  assert {config.build()} == {loss}  # equal ones are one key of programs
  assert config.score_kind is kind


@pytest.mark.parametrize('config', [BCEConfig(), SquaredHingeConfig()])
def test_first_scores_cost_least(config):
  prior, loss = 0.2, config.build()
  scores = jnp.linspace(-3, 3, 6001)[None]
  gold = jnp.ones(scores.shape, bool)
  cost = prior * loss(scores, gold)[0] + (1 - prior) * loss(scores, ~gold)[0]
  best = scores[0, np.argmin(cost)]
  p = config.first_priors(np.array([prior]))
  np.testing.assert_allclose(np.log(p / (1 - p)), [best], atol=2e-2)


def test_label_weights():
  def weights(config):
    return config.build(COUNTS, 44, (0.6, 2.6))

  assert weights(EvenWeights()) is None
  balanced = weights(ClassBalancedWeights(0.9))
  np.testing.assert_array_equal(balanced.positive_L, balanced.negative_L)
  assert balanced.positive_L[:3].mean() == pytest.approx(1)
  found = weights(PropensityWeights())
  np.testing.assert_array_equal(found.negative_L, 1)
  inverse = propensity_weights(COUNTS, 44, 0.6, 2.6)
  np.testing.assert_allclose(found.positive_L, 2 * inverse - 1)


def test_class_balanced_golden():
  # (1 - b) / (1 - b^n) with b = 1/2: 1 for n = 1, 2/3 for n = 2, 4/7 for 3.
  found = class_balanced(np.array([1, 2, 3]), 0.5)
  expected = np.array([1, 2 / 3, 4 / 7])
  np.testing.assert_allclose(found, expected / expected.mean(), rtol=1e-12)


def test_class_balanced_ends():
  counts = np.array([1, 10, 1000])
  np.testing.assert_allclose(class_balanced(counts, 0.0), 1)
  found = class_balanced(counts, 1 - 1e-9)
  np.testing.assert_allclose(found * counts / found[0], 1, rtol=1e-5)
  np.testing.assert_array_equal(class_balanced(np.zeros(2), 0.9), 1)
