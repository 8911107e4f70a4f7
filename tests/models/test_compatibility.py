"""Checks which features models can read, and which sparse ones are refused."""

import dataclasses

import pytest

from xjax.core.errors import ConfigError
from xjax.data.config import (
  GivenFeaturesConfig,
  Norm,
  OnError,
  TfidfConfig,
  WordsConfig,
)
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.models.config_check import check_config
from xjax.models.contract import Config
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.shrink import shrink
from xjax.train.train_config import NoTrain

SPARSE = (TfidfConfig, GivenFeaturesConfig)


@pytest.fixture
def reads_all(monkeypatch):
  """As if Exact Match read sparse features."""
  monkeypatch.setattr(ExactMatchModel, 'reads', SPARSE)


def a_config(data) -> Config:
  return Config(data=data, model=ExactMatchModel(), train=NoTrain())


@pytest.mark.parametrize('data', [JsonlData(tokens=TfidfConfig())], ids=repr)
@pytest.mark.parametrize('model', [NeuralModel(), ExactMatchModel()])
def test_models_that_read_no_sparse_features(data, model):
  config = dataclasses.replace(Config(data=data), model=model)
  if isinstance(model, ExactMatchModel):
    config = a_config(data)
  with pytest.raises(ConfigError) as raised:
    check_config(config)
  said = str(raised.value)
  assert '\n' not in said
  assert said.startswith('config.data.tokens=TfidfConfig(...): ')
  assert f'{type(model).__name__}(...) reads only WordsConfig(...)' in said


def test_files_of_features_are_for_other_models():
  with pytest.raises(ConfigError) as raised:
    check_config(Config(data=XcFeaturesData()))
  assert str(raised.value) == (
    'config.data.tokens=GivenFeaturesConfig(...): NeuralModel(...) reads only '
    'WordsConfig(...) or SubwordsConfig(...) or FeatureFilesConfig(...)'
  )


def test_sparse_features_that_can_be(reads_all):
  check_config(a_config(JsonlData(tokens=TfidfConfig(min_ngram=2))))
  for norm in Norm:
    check_config(a_config(XcFeaturesData(tokens=GivenFeaturesConfig(norm))))


@pytest.mark.parametrize(
  ('data', 'says'),
  [
    (
      JsonlData(tokens=TfidfConfig(min_ngram=3)),
      'config.data.tokens.min_ngram=3: must be at most config.data.tokens.max',
    ),
    (JsonlData(tokens=TfidfConfig(min_ngram=0)), 'min_ngram=0: must be at le'),
    (JsonlData(tokens=TfidfConfig(max_features=0)), 'at least 1'),
    (JsonlData(tokens=TfidfConfig(min_count=0)), 'at least 1'),
    (JsonlData(tokens=TfidfConfig(max_share=0.0)), 'above 0 and at most 1'),
    (JsonlData(tokens=TfidfConfig(max_share=1.1)), 'above 0 and at most 1'),
    (JsonlData(tokens=TfidfConfig(first_words=-1)), 'at least 0'),
    (JsonlData(tokens=GivenFeaturesConfig()), 'needs config.data=XcFeat'),
    (SyntheticData(tokens=GivenFeaturesConfig()), 'needs config.data=XcFeat'),
    (
      XcFeaturesData(tokens=TfidfConfig()),
      'Data(...) needs config.data.tokens=Given',
    ),
    (
      XcFeaturesData(tokens=WordsConfig()),
      'Data(...) needs config.data.tokens=Given',
    ),
    (
      XcFeaturesData(zones=('a',)),
      "config.data.zones=('a',): must be (), since files of featur",
    ),
    (XcFeaturesData(on_error=OnError.SKIP), 'ids, which would change'),
    (
      XcFeaturesData(tokens=GivenFeaturesConfig(norm='l2')),
      'Norm.NONE or L2',
    ),
  ],
)
def test_sparse_features_that_cannot_be(reads_all, data, says):
  with pytest.raises(ConfigError) as raised:
    check_config(a_config(data))
  assert says in str(raised.value)
  assert '\n' not in str(raised.value)


@pytest.mark.parametrize(
  'data',
  [
    JsonlData(tokens=TfidfConfig(max_ngram=5, max_share=0.1, first_words=99)),
    JsonlData(tokens=TfidfConfig(min_ngram=4, max_ngram=5)),
    XcFeaturesData(tokens=GivenFeaturesConfig(Norm.L2)),
  ],
)
def test_a_tiny_twin_reads_tfidf(reads_all, data):
  small = shrink(a_config(data))
  check_config(small)
  assert isinstance(small.data, SyntheticData)
  assert isinstance(small.data.tokens, TfidfConfig)
  assert small.data.tokens.max_features <= 64
