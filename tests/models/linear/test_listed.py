"""Tests the linear classifiers that learn from listed pairs."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import LinearSVC

from xjax.core.errors import DataError
from xjax.models.linear.listed import ListedClassifiers, ListedLinear

N, D, L = 120, 30, 9
LONELY = 4  # a label that is listed, but never gold


@pytest.fixture(scope='module')
def data():
  """Returns rows, one of them empty, keys of listed pairs, and gold."""
  rng = np.random.default_rng(0)
  dense_ND = rng.gamma(1, 1, (N, D)) * (rng.random((N, D)) < 0.25)
  gold_NL = rng.random((N, L)) < 0.25
  dense_ND[:, :L] += gold_NL * (rng.random((N, L)) < 0.7)
  dense_ND[7] = 0
  dense_ND /= np.maximum(np.linalg.norm(dense_ND, axis=1, keepdims=True), 1e-9)
  gold_NL[:, LONELY] = False
  keys = np.flatnonzero(gold_NL | (rng.random((N, L)) < 0.4))
  rows = sparse.csr_array(dense_ND.astype(np.float32))
  return rows, keys, gold_NL.ravel()[keys]


def fitted(data, workers=1, **options):
  settings = {'eps': 1e-4, 'max_epochs': 5000, 'threshold': 0.0} | options
  linear = ListedLinear(**settings)
  return linear.fit(*data, L, seed=3, workers=workers)


@pytest.mark.parametrize('c', [0.1, 0.3, 10.0])
def test_classifiers_are_those_of_liblinear_on_listed_documents(data, c):
  rows, keys, gold = data
  found = fitted(data, c=c)
  for label in set(range(L)) - {LONELY}:
    own = keys % L == label
    peer = LinearSVC(C=c, tol=1e-7, dual=True, max_iter=10**6, random_state=0)
    peer.fit(rows[keys[own] // L], gold[own])
    weights = found.weights[[label]].toarray()[0]
    np.testing.assert_allclose(weights, peer.coef_[0], atol=3e-3)
    np.testing.assert_allclose(
      found.bias_L[label], peer.intercept_[0], atol=3e-3
    )
  assert np.flatnonzero(np.isnan(found.bias_L)).tolist() == [LONELY]


def test_threads_change_nothing(data, monkeypatch):
  monkeypatch.setattr('xjax.models.linear.listed._PART', 2)
  one, two = fitted(data), fitted(data, workers=2)
  assert (one.weights != two.weights).nnz == 0
  np.testing.assert_array_equal(one.bias_L, two.bias_L)


def test_scores_are_products(data):
  rows, keys, _ = data
  found = fitted(data)
  dense_NL = rows @ found.weights.toarray().T + found.bias_L
  # Pairs of unknown and of new labels have no score.
  more = np.array([3 * (L + 1) + L, 5 * (L + 1) + LONELY])
  asked = np.union1d(keys // L * (L + 1) + keys % L, more)
  scores = found.scores(rows, asked, L + 1)
  row, label = np.divmod(asked, L + 1)
  expected = np.pad(dense_NL, [(0, 0), (0, 1)], constant_values=np.nan)
  np.testing.assert_allclose(scores, expected[row, label], atol=1e-5)
  assert np.isnan(scores).sum() >= 2
  alone = np.concatenate(
    [
      found.scores(rows[[at]], asked[row == at] - at * (L + 1), L + 1)
      for at in range(N)
    ]
  )
  np.testing.assert_array_equal(alone, scores)  # whatever the block is


def test_small_weights_are_left_out(data):
  every, large = fitted(data), fitted(data, threshold=0.2)
  kept = np.abs(every.weights.toarray()) >= 0.2
  expected = np.where(kept, every.weights.toarray(), 0)
  np.testing.assert_array_equal(large.weights.toarray(), expected)


def test_files(data, tmp_path):
  found, path = fitted(data), tmp_path / 'listed.npz'
  found.save(path)
  again = ListedClassifiers.load(path)
  assert (again.weights != found.weights).nnz == 0
  assert again.weights.shape == found.weights.shape
  np.testing.assert_array_equal(again.bias_L, found.bias_L)
  path.write_bytes(path.read_bytes()[:-30])
  with pytest.raises(DataError, match=r'listed\.npz'):
    ListedClassifiers.load(path)


def test_training_can_be_stopped(data):
  def stop():
    raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    ListedLinear().fit(*data, L, seed=0, between=stop)
