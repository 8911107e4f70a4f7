"""From documents to sparse features: of texts, and as given."""

import numpy as np
import pytest

from xjax.core.errors import ConfigError
from xjax.data.documents import Documents
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.load import load_corpus
from xjax.data.schema import Document
from xjax.data.tokens_config import GivenFeaturesConfig, Norm, TfidfConfig
from xjax.models.contract import Config, Run
from xjax.models.features import (
  DocumentTexts,
  RowFeaturiser,
  TextFeaturiser,
  fit_featuriser,
)
from xjax.models.trees.tree_model import LinearModel, LinearTrain
from xjax.train.workdir import Workdir


def config_of(data):
  return Config(data=data, model=LinearModel(), train=LinearTrain())


@pytest.fixture(scope='module')
def made():
  """A config of TF-IDF, and its corpus."""
  tokens = TfidfConfig(max_ngram=2, min_count=1)
  data = SyntheticData(
    n_train=30, n_dev=11, n_test=0, n_labels=12, tokens=tokens
  )
  return config_of(data), load_corpus(data, 0)


@pytest.fixture
def given(tmp_path):
  """A config of a folder of features, and its corpus."""
  folder = tmp_path / 'given'
  folder.mkdir()
  (folder / 'train.txt').write_text('3 4 3\n0 0:3 2:4\n1 1:1\n2 3:0\n')
  (folder / 'dev.txt').write_text('2 4 3\n0,1 0:1 3:0\n 1:5\n')
  data = XcFeaturesData(dir=str(folder), tokens=GivenFeaturesConfig(Norm.NONE))
  return config_of(data), load_corpus(data, 0)


def fitted(split, config, tmp_path):
  return fit_featuriser(split, Run(config, Workdir.at(tmp_path / 'run')))


def gather_rows(featuriser, split):
  return featuriser.in_chunks(Documents.of_split(split), 'features')


def the_same(one, other):
  return one.shape == other.shape and all(
    np.array_equal(getattr(one, name), getattr(other, name))
    for name in ('indptr', 'indices', 'data')
  )


def rows_of(featuriser, documents, size=8):
  """Row -> its features, of documents that are read in blocks."""
  found = {}
  for rows, block in Documents.of(documents).blocks(size):
    features = featuriser(block)
    for at, row in enumerate(rows.tolist()):
      found[row] = features[[at]]
  return found


def test_texts(made, tmp_path):
  config, corpus = made
  train, dev = corpus.split('train'), corpus.split('dev')
  featuriser = fitted(train, config, tmp_path)
  assert isinstance(featuriser, TextFeaturiser)
  matrix = gather_rows(featuriser, train)
  texts = list(DocumentTexts(train.documents))
  assert the_same(matrix, featuriser.featurise(texts))
  assert matrix.dtype == np.float32
  assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
  matrix = gather_rows(featuriser, dev)
  for documents in (
    Documents.of_split(dev),
    Documents.of_split(dev).remembering(),
    dev.documents,
    list(DocumentTexts(dev.documents)),
  ):
    rows = rows_of(featuriser, documents)
    assert sorted(rows) == list(range(11))
    assert all(the_same(row, matrix[[at]]) for at, row in rows.items())


def test_given_rows(given, tmp_path):
  config, corpus = given
  train, dev = corpus.split('train'), corpus.split('dev')
  featuriser = fitted(train, config, tmp_path)
  assert isinstance(featuriser, RowFeaturiser) and featuriser.n_features == 4
  assert gather_rows(featuriser, train) is train.documents.rows
  for documents in (Documents.of_split(dev), dev.documents):
    rows = rows_of(featuriser, documents)
    # An entry of 0 is one too.
    assert rows[0].indices.tolist() == [0, 3]
    assert rows[0].data.tolist() == [1, 0]
    assert rows[1].toarray().tolist() == [[0, 5, 0, 0]]


def test_what_cannot_be_read(given, made, tmp_path):
  config, corpus = given
  featuriser = fitted(corpus.split('train'), config, tmp_path)
  for documents in (['a text'], [Document('a', {'text': 'a text'})]):
    with pytest.raises(ConfigError, match='this run reads sparse features'):
      featuriser(Documents.of(documents))
  reads_words = fitted(made[1].split('train'), made[0], tmp_path)
  vectors = Documents(['a text'], vectors=object())
  with pytest.raises(ConfigError, match='this run reads the words'):
    reads_words(vectors)
  with pytest.raises(ConfigError, match='this run reads texts; do not give'):
    reads_words(Documents.of(corpus.split('dev').documents))
