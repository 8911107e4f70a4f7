import numpy as np
import pytest

from xjax.core.errors import ConfigError
from xjax.train.neural_train import NeuralTrain
from xjax.train.parameters import (
  by_part,
  check_groups,
  in_group,
  parts_of,
  rate_factors,
)

PATHS = [
  'encoder/embeddings/word',
  'encoder/layers/0/ffn/inner/kernel',
  'encoder/layers/1/ffn/inner/kernel',
  'encoder/layers/10/ffn/inner/kernel',
  'pooling/dense/kernel',
  'head/kernel',
]


def test_globs():
  assert in_group('encoder/layers/0/norm/bias', ['encoder/*'])
  assert in_group('head/bias', ['pooling/*', '*/bias'])
  assert not in_group('head/bias', ['Head/*', 'head', ''])
  assert not in_group('encoder/layers/10/bias', ['encoder/layers/1/*'])


def test_layers_of_a_stack_have_paths_of_their_own():
  params = {
    'encoder/layers/ffn/norm/bias': np.zeros((2, 3)),
    'encoder/layers/ffn/inner/kernel': np.zeros((2, 3, 4)),
    'head/bias': np.zeros(2),
  }
  parts = [
    'encoder/layers/0/ffn/norm/bias',
    'encoder/layers/1/ffn/norm/bias',
    'encoder/layers/0/ffn/inner/kernel',
    'encoder/layers/1/ffn/inner/kernel',
    'head/bias',
  ]
  assert parts_of(params) == parts
  bias, kernel, head = (by_part(*x, parts.index) for x in params.items())
  assert (bias.tolist(), head) == ([[0], [1]], 4)
  assert kernel.tolist() == [[[2]], [[3]]]


def test_the_first_rate_that_matches_counts():
  config = NeuralTrain(rates=('*/layers/1/*=0.5', 'encoder/*=0.1', 'p*=0.25'))
  found = rate_factors(config, PATHS)
  assert list(found) == PATHS
  assert list(found.values()) == [0.1, 0.1, 0.5, 0.1, 0.25, 1.0]


def test_layers_decay_from_the_top():
  config = NeuralTrain(layer_decay=0.5, rates=('encoder/embeddings/*=3',))
  found = rate_factors(config, PATHS)
  # Layers 10, 1 and 0 are 0, 9 and 10 below the top; the embeddings 11.
  expected = [3 * 0.5**11, 0.5**10, 0.5**9, 1.0, 1.0, 1.0]
  assert list(found.values()) == expected


def test_layers_below_the_highest_trained_one_decay():
  freeze = ('encoder/layers/10/*', 'encoder/embeddings/*')
  found = rate_factors(NeuralTrain(layer_decay=0.5, freeze=freeze), PATHS)
  assert list(found.values()) == [0, 0.5, 1, 0, 1, 1]


HEAD = ['head/kernel']
FAULTS = {
  "config.train.freeze: 'haed/[*]' matches no parameter.*head/kernel": (
    *({'freeze': ('encoder/*', 'haed/*')}, PATHS, []),
  ),
  "config.train.rates: 'pooler/[*]=0.5' matches no .*pooling/dense/kernel": (
    *({'rates': ('encoder/*=0.1', 'pooler/*=0.5')}, PATHS, []),
  ),
  "rates: 'encoder/.* matches no parameter that the optimizer trains": (
    *({'rates': ('head/*=2', 'encoder/*=0.1')}, HEAD, PATHS[:4]),
  ),
  "rates: '[*]/10/.* matches no parameter that the optimizer trains": (
    *({'rates': ('*/10/*=2',), 'freeze': ('*/layers/10/*',)}, PATHS, []),
  ),
  'layer_decay=0.9: no layers': ({'layer_decay': 0.9}, HEAD, PATHS[:4]),
}


@pytest.mark.parametrize('says', FAULTS)
def test_groups_that_are_not(says):
  fields, trained, frozen = FAULTS[says]
  with pytest.raises(ConfigError, match=says):
    check_groups(NeuralTrain(**fields), trained, frozen)


def test_groups_that_are():
  fields = {'rates': ('encoder/*=0.1', '*=0.5'), 'layer_decay': 0.9}
  check_groups(NeuralTrain(**fields), PATHS, [])
  frozen = NeuralTrain(freeze=('encoder/*',), rates=('head/*=2',))
  check_groups(frozen, HEAD, PATHS[:4])
