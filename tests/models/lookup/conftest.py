"""Fixtures: corpora of four documents."""

import pytest

from tests.fixtures.vector_files import json_lines
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.tokens_config import (
  GivenFeaturesConfig,
  TfidfConfig,
  WordsConfig,
)
from xjax.judge.predictions import Predictions
from xjax.models.contract import Config
from xjax.train.train_config import NoTrain

TEXTS = 'A fish in the sea', 'fish oil', 'olive oil', 'the sea'


def dev_of(result):
  return Predictions.load(result.paths['dev'] / 'predictions.npz')


def split_texts(corpus, name):
  return [document.text() for document in corpus.split(name).documents]


@pytest.fixture
def own_corpus(tmp_path):
  """A function (model, labels, gold of each text) -> config of a run."""

  def config(model, labels, gold=(['7'],) * 4):
    rows = [
      {'id': f'{i}', 'text': text, 'labels': [*ids]}
      for i, (text, ids) in enumerate(zip(TEXTS, gold, strict=True))
    ]
    for name, lines in {'train': rows, 'dev': rows, 'labels': labels}.items():
      json_lines(tmp_path / f'{name}.jsonl', lines)
    tokens = WordsConfig(max_tokens=9, buckets=(9,))
    if TfidfConfig in model.reads:
      tokens = TfidfConfig(min_count=1)
    data = JsonlData(dir=str(tmp_path), tokens=tokens, labels='all')
    return Config(data=data, model=model, train=NoTrain())

  return config


@pytest.fixture
def feature_files(tmp_path):
  """A function (norm) -> config of files of four documents."""
  rows = '4 3 3\n0 0:1 1:0.1\n1 1:1\n0,1 0:1 1:1\n2 2:1\n'
  for name in ('train', 'test'):
    (tmp_path / f'{name}.txt').write_text(rows)
  return lambda norm: XcFeaturesData(
    dir=str(tmp_path), tokens=GivenFeaturesConfig(norm)
  )
