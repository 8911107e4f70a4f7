"""Recipes that cannot work are refused, field by field."""

import pytest

from xjax.core.errors import ConfigError
from xjax.losses.focal import FocalConfig
from xjax.losses.label_weights import ClassBalancedWeights
from xjax.models.config_check import check_config
from xjax.models.contract import Config
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer_config import EMAConfig, SWAConfig


@pytest.mark.parametrize(
  ('fields', 'path', 'says'),
  [
    ({'rates': ('encoder/*',)}, 'rates', "'encoder/*' is not GLOB=FACTOR"),
    ({'rates': ('encoder/*=fast',)}, 'rates', 'is not GLOB=FACTOR'),
    ({'rates': ('=0.1',)}, 'rates', 'is not GLOB=FACTOR'),
    ({'rates': ('a/*=0',)}, 'rates', 'a factor above 0'),
    ({'rates': ('a/*=inf',)}, 'rates', 'a factor above 0'),
    ({'rates': ('a/*=nan',)}, 'rates', 'a factor above 0'),
    ({'rates': ('a/*=0.1,b/*=0.5',)}, 'rates', 'is not GLOB=FACTOR'),
    ({'rates': 'a/*=0.1'}, 'rates', 'a tuple of str'),
    ({'freeze': ('a/*,b/*',)}, 'freeze', "'a/*,b/*' is not a glob"),
    ({'freeze': ('',)}, 'freeze', "'' is not a glob"),
    ({'layer_decay': 0.0}, 'layer_decay', 'above 0 and at most 1'),
    ({'layer_decay': 1.1}, 'layer_decay', 'above 0 and at most 1'),
    ({'ratio': 0.5}, 'ratio', 'at least 1'),
    ({'ratio': 16.0}, 'ratio', 'Schedule.SLANTED'),
    ({'loss': FocalConfig(gamma=-1.0)}, 'loss.gamma', 'at least 0'),
    ({'loss': FocalConfig(alpha=1.0)}, 'loss.alpha', 'below 1'),
    (
      {'label_weights': ClassBalancedWeights(beta=1.0)},
      'label_weights.beta',
      'below 1',
    ),
    ({'average': EMAConfig(decay=1.0)}, 'average.decay', 'below 1'),
    ({'average': EMAConfig(start=-1)}, 'average.start', 'at least 0'),
    ({'average': SWAConfig(start=9, every=0)}, 'average.every', 'at least 1'),
    (
      {'average': SWAConfig(start=1000)},
      'average.start',
      'below config.train.steps=1000',
    ),
    (
      {'average': SWAConfig(start=900, every=101)},
      'average.every',
      'mean, 1001, is after config.train.steps=1000',
    ),
  ],
)
def test_a_faulty_field_is_named(fields, path, says):
  with pytest.raises(ConfigError) as raised:
    check_config(Config(train=NeuralTrain(**fields)))
  message = str(raised.value)
  assert f'config.train.{path}' in message
  assert says in message
  assert '\n' not in message


def test_recipes_pass():
  check_config(
    Config(
      train=NeuralTrain(
        schedule=Schedule.SLANTED,
        ratio=16.0,
        rates=('encoder/layers/[0-3]/*=0.1', 'pooling/*=.5', '*/bias=2e0'),
        freeze=('embedding/*',),
        average=SWAConfig(start=990, every=10),
        loss=FocalConfig(gamma=0.0, alpha=0.25),
      )
    )
  )
