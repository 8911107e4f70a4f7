"""From documents to batches of sparse features: of texts, and as given."""

import numpy as np
import pytest

from xjax.core.errors import ConfigError, DataError
from xjax.core.types import PAD
from xjax.data.config import GivenFeaturesConfig, Norm, TfidfConfig, WordsConfig
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.load import load_corpus, read_input
from xjax.data.schema import Document
from xjax.data.sparse_documents import batch_rows
from xjax.models.config import Config, EvalConfig, shrink
from xjax.models.sparse_inputs import (
  RowInputs,
  SplitTexts,
  TextInputs,
  fit_inputs,
)

JUDGED = EvalConfig(batch_size=8)


@pytest.fixture(scope='module')
def made():
  """A config of TF-IDF, and its corpus."""
  tokens = TfidfConfig(max_ngram=2, min_count=1)
  data = SyntheticData(
    n_train=30, n_dev=11, n_test=0, n_labels=12, tokens=tokens
  )
  return Config(data=data, eval=JUDGED), load_corpus(data, 0)


@pytest.fixture
def given(tmp_path):
  """A config of a folder of features, and its corpus."""
  (tmp_path / 'train.txt').write_text('3 4 3\n0 0:3 2:4\n1 1:1\n2 3:0\n')
  (tmp_path / 'dev.txt').write_text('2 4 3\n0,1 0:1 3:0\n 1:5\n')
  data = XcFeaturesData(
    dir=str(tmp_path), tokens=GivenFeaturesConfig(Norm.NONE)
  )
  return Config(data=data, eval=JUDGED), load_corpus(data, 0)


def the_same(one, other):
  return one.shape == other.shape and all(
    np.array_equal(getattr(one, name), getattr(other, name))
    for name in ('indptr', 'indices', 'data')
  )


def rows_of(batches, n, n_features):
  """Row -> its features, of N batched documents."""
  found = {}
  for batch in batches:
    rows = batch_rows(batch, n_features)
    for at, row in enumerate(batch.doc_B.tolist()):
      if row != PAD:
        found[row] = rows[[at]]
  assert sorted(found) == list(range(n))
  return found


def test_texts(made):
  config, corpus = made
  train, dev = corpus.split('train'), corpus.split('dev')
  inputs = fit_inputs(train, config)
  assert isinstance(inputs, TextInputs)
  matrix = inputs.split_rows(train)
  assert the_same(matrix, inputs.featurise(list(SplitTexts(train.documents))))
  assert matrix.dtype == np.float32
  assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
  matrix = inputs.split_rows(dev)
  for batches in (
    inputs.split_batches(dev),
    inputs.text_batches(dev.documents),
    inputs.text_batches(list(SplitTexts(dev.documents))),
  ):
    rows = rows_of(batches, 11, matrix.shape[1])
    assert all(the_same(row, matrix[[at]]) for at, row in rows.items())
  (gold,) = {batch.positives_BP[0, 0] for batch in inputs.text_batches(['x'])}
  assert gold == PAD


def test_more_documents_than_are_read_at_a_time(made, monkeypatch):
  config, corpus = made
  inputs = fit_inputs(corpus.split('train'), config)
  before = inputs.split_rows(corpus.split('train'))
  monkeypatch.setattr('xjax.models.sparse_inputs._CHUNK', 7)
  assert the_same(before, inputs.split_rows(corpus.split('train')))


def test_given_rows(given):
  config, corpus = given
  train, dev = corpus.split('train'), corpus.split('dev')
  inputs = fit_inputs(train, config)
  assert isinstance(inputs, RowInputs) and inputs.n_features == 4
  assert inputs.split_rows(train) is train.documents.rows
  for batches in (
    inputs.split_batches(dev),
    inputs.text_batches(dev.documents),
  ):
    rows = rows_of(batches, 2, 4)
    # An entry of 0 is one too.
    assert rows[0].indices.tolist() == [0, 3]
    assert rows[0].data.tolist() == [1, 0]
    assert rows[1].toarray().tolist() == [[0, 5, 0, 0]]
  (batch,) = inputs.split_batches(dev)
  assert batch.positives_BP[:2].tolist() == [[0, 1], [PAD, PAD]]


def test_given_files(given, tmp_path):
  config, corpus = given
  inputs = fit_inputs(corpus.split('train'), config)
  path = tmp_path / 'new.txt'
  path.write_text(' 1:2\n 0:1 1:1\n')
  documents = read_input(config.data, str(path))
  rows = rows_of(inputs.text_batches(documents), 2, 4)
  assert rows[1].toarray().tolist() == [[1, 1, 0, 0]]
  path.write_text(' 1:2\n 0:1 4:1\n')
  documents = read_input(config.data, str(path))
  with pytest.raises(DataError, match=r'new.txt: feature 4 is not in 0..3'):
    inputs.text_batches(documents)


def test_what_cannot_be_read(given, made):
  config, corpus = given
  inputs = fit_inputs(corpus.split('train'), config)
  for documents in (['a text'], [Document('a', {'text': 'a text'})]):
    with pytest.raises(ConfigError, match='this run reads sparse features'):
      inputs.text_batches(documents)
  with pytest.raises(ConfigError, match='this run reads the words'):
    inputs.text_batches(corpus.split('dev').documents, features=object())
  words = Config(data=SyntheticData(tokens=WordsConfig()))
  with pytest.raises(ConfigError, match='does not give the features that'):
    fit_inputs(made[1].split('train'), words)


def test_twins_of_both_are_fitted(given, made):
  for config, _ in (given, made):
    small = shrink(config)
    train = load_corpus(small.data, 0).split('train')
    rows = fit_inputs(train, small).split_rows(train)
    assert rows.shape == (16, 64) and (np.diff(rows.indptr) > 0).all()
