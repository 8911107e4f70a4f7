"""TF-IDF as scikit-learn computes it, and the file it is kept in."""

import dataclasses

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from tests.fixtures.error_text import error_text
from xjax.core.atomic import write_npz
from xjax.core.errors import DataError
from xjax.data.config import TfidfConfig
from xjax.data.formats.synthetic import SyntheticData, make_synthetic
from xjax.data.text.tfidf import Tfidf


@pytest.fixture(scope='module')
def texts():
  small = SyntheticData(n_train=120, n_dev=1, n_test=1, n_labels=20)
  _, splits = make_synthetic(small)
  return [document.text() for document in splits['train']]


@pytest.fixture(scope='module')
def tfidf(texts):
  return Tfidf.fit(texts[:80], TfidfConfig(max_ngram=3))


def the_same(one, other):
  return one.shape == other.shape and all(
    np.array_equal(getattr(one, name), getattr(other, name))
    for name in ('indptr', 'indices', 'data')
  )


PAIRS = TfidfConfig(min_ngram=2, max_ngram=2, min_count=3, sublinear=False)


@pytest.mark.parametrize(
  ('config', 'theirs'),
  [
    (TfidfConfig(max_ngram=3), {'ngram_range': (1, 3), 'min_df': 2}),
    (PAIRS, {'ngram_range': (2, 2), 'min_df': 3, 'sublinear_tf': False}),
    (TfidfConfig(max_ngram=1, min_count=1, max_share=0.1), {'max_df': 0.1}),
  ],
)
@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_as_scikit_learn(texts, config, theirs, dtype):
  ours = Tfidf.fit(texts[:80], config)
  peer = TfidfVectorizer(**{'sublinear_tf': True, 'dtype': dtype, **theirs})
  peer.fit(texts[:80])
  assert list(ours.terms) == list(peer.get_feature_names_out())
  assert ours.n_features == len(ours.terms) > 20
  rows, wanted = ours(texts), peer.transform(texts)
  np.testing.assert_allclose(rows.toarray(), wanted.toarray(), rtol=2e-6)


def test_rows(texts, tfidf):
  rows = tfidf([*texts[80:], '', 'unheardof'])
  assert rows.shape == (42, tfidf.n_features)
  assert rows.dtype == np.float32
  assert rows.indices.dtype == rows.indptr.dtype == np.int32
  for start, end in zip(rows.indptr, rows.indptr[1:]):
    assert (np.diff(rows.indices[start:end]) > 0).all()
  lengths = np.sqrt(rows.multiply(rows).sum(axis=1))
  np.testing.assert_allclose(lengths[:40], 1, rtol=1e-6)
  assert np.diff(rows.indptr)[40:].tolist() == [0, 0]
  assert tfidf([]).shape == (0, tfidf.n_features)


def test_a_row_does_not_depend_on_the_others(texts, tfidf):
  rows = tfidf(texts)
  assert all(the_same(tfidf([texts[i]]), rows[[i]]) for i in range(0, 120, 17))


def test_first_words(texts):
  config = TfidfConfig(first_words=10)
  short = [' '.join(text.split()[:10]) for text in texts]
  ours = Tfidf.fit(texts, config)
  assert ours.terms == Tfidf.fit(short, config).terms
  assert the_same(ours(texts), ours(short))


def test_read_again_it_is_the_same(tmp_path, texts, tfidf):
  paths = tmp_path / 'tfidf.npz', tmp_path / 'again.npz'
  tfidf.save(paths[0])
  again = Tfidf.load(paths[0])
  again.save(paths[1])
  assert again.config == tfidf.config
  assert again.digest == tfidf.digest
  assert paths[0].read_bytes() == paths[1].read_bytes()
  assert the_same(again(texts), tfidf(texts))


def test_the_digest_tells_all_that_decides(texts, tfidf):
  def digest(texts, **fields):
    return Tfidf.fit(texts, dataclasses.replace(tfidf.config, **fields)).digest

  assert digest(texts[:80]) == tfidf.digest
  others = [
    digest(texts[:79]),
    digest(texts[:80], sublinear=False),
    digest(texts[:80], max_features=100),
    dataclasses.replace(tfidf, idf=tfidf.idf * 2).digest,
  ]
  assert len({tfidf.digest, *others}) == 5


@pytest.mark.parametrize(
  ('texts', 'fields'),
  [
    ([], {}),
    (['', ''], {}),
    (['a b c'], {'min_count': 1}),
    (['some words'] * 3, {'min_ngram': 3, 'max_ngram': 4}),
    (['some words'] * 3, {'min_count': 4}),
    (['some words'] * 3, {'max_share': 0.5}),
  ],
)
def test_nothing_is_left(texts, fields):
  config = TfidfConfig(**fields)
  message = error_text(Tfidf.fit, texts, config)
  for name in ('min_count', 'max_share'):
    assert f'data.tokens.{name}={getattr(config, name)}' in message
  assert f'of the {len(texts)} documents of train' in message


def test_a_damaged_file(tmp_path, tfidf):
  path = tmp_path / 'tfidf.npz'
  tfidf.save(path)
  whole = path.read_bytes()
  assert 'no such file' in error_text(Tfidf.load, tmp_path / 'absent.npz')
  for at in range(0, len(whole), len(whole) // 60):
    path.write_bytes(whole[:at])
    assert 'tfidf.npz' in error_text(Tfidf.load, path)
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    try:  # not all bytes of a zip file say something
      assert Tfidf.load(path).digest == tfidf.digest
    except DataError as error:
      assert str(path) in str(error)


def test_a_file_of_other_arrays(tmp_path, tfidf):
  path = tmp_path / 'tfidf.npz'
  tfidf.save(path)
  with np.load(path) as file:
    arrays = dict(file)
  swapped = dataclasses.replace(tfidf, terms=tfidf.terms[::-1])
  cases = {
    'idf: missing': {'idf': None},
    r'idf: is float32 \[5\]': {'idf': tfidf.idf[:5]},
    'config: cannot be read': {'config': np.zeros(3, np.uint8)},
    'more: unknown array': {'more': np.zeros(1)},
    'damaged': {'idf': tfidf.idf[::-1]},
  }
  for says, changed in cases.items():
    made = {k: v for k, v in {**arrays, **changed}.items() if v is not None}
    write_npz(path, made)
    with pytest.raises(DataError, match=says):
      Tfidf.load(path)
  swapped.save(path)
  with pytest.raises(DataError, match='damaged'):
    Tfidf.load(path)
