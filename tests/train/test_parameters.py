import pytest

from xjax.core.errors import ConfigError
from xjax.train.neural_train import NeuralTrain
from xjax.train.parameters import (
  check_groups,
  in_group,
  parse_rate,
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


def test_rates_are_parsed():
  assert parse_rate('encoder/*=0.1') == ('encoder/*', 0.1)
  assert parse_rate('*=2e-1') == ('*', 0.2)
  assert parse_rate('encoder/*') is None


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


@pytest.mark.parametrize(
  'fields',
  [
    {},
    {'rates': ('encoder/*=0.1', '*=0.5'), 'layer_decay': 0.9},
    {'freeze': ('encoder/*', 'pooling/*')},
  ],
)
def test_groups_that_are(fields):
  assert check_groups(NeuralTrain(**fields), PATHS, PATHS, []) is None


HEAD_ALONE = ['pooling/dense/kernel', 'head/kernel']
FAULTS = {
  "config.train.freeze: 'haed/[*]' matches no parameter; .*head/kernel": (
    *({'freeze': ('encoder/*', 'haed/*')}, PATHS),
  ),
  "config.train.rates: 'pooler/[*]=0.5' matches no .*pooling/dense/kernel": (
    *({'rates': ('encoder/*=0.1', 'pooler/*=0.5')}, PATHS),
  ),
  "'[*]/layers/0/[*]=0.5' has no effect": (
    *({'rates': ('encoder/*=0.1', '*/layers/0/*=0.5')}, PATHS),
  ),
  "rates: 'encoder/.* does not train; leave this entry out": (
    *({'rates': ('head/*=2', 'encoder/*=0.1')}, HEAD_ALONE),
  ),
  'layer_decay=0.9.*encoder=BertConfig': ({'layer_decay': 0.9}, HEAD_ALONE),
}


@pytest.mark.parametrize('says', FAULTS)
def test_groups_that_are_not(says):
  fields, trained = FAULTS[says]
  with pytest.raises(ConfigError, match=says):
    check_groups(NeuralTrain(**fields), PATHS, trained, [])


@pytest.mark.parametrize('rates', [(), ('encoder/*=0.1',)])
def test_nothing_is_trained(rates):
  config = NeuralTrain(freeze=('encoder/*', '*/*'), rates=rates)
  with pytest.raises(ConfigError, match='nothing would be left to train'):
    check_groups(config, PATHS, [], [])


def test_label_rows_that_train_themselves():
  others = [path for path in PATHS if path != 'head/kernel']
  given = (PATHS, others, ['head/kernel'])
  check_groups(NeuralTrain(freeze=('encoder/*',)), *given)
  with pytest.raises(ConfigError, match="freeze: 'head/.*config.train.rows"):
    check_groups(NeuralTrain(freeze=('head/*',)), *given)
  with pytest.raises(ConfigError, match='does not train; leave'):
    check_groups(NeuralTrain(rates=('head/kernel=2',)), *given)
  # All that the optimizer trains may be frozen: the rows are left to train.
  frozen = NeuralTrain(freeze=tuple(others))
  check_groups(frozen, PATHS, [], ['head/kernel'])
