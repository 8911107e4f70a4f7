"""Intra-list diversity, by hand and pair by pair."""

import itertools

import numpy as np
import pytest
import scipy.sparse

from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged
from xjax.judge.metrics import diversity
from xjax.judge.metrics.diversity import (
  co_occurrence,
  descriptor_vectors,
  intra_list_diversity,
)


def unit(rows):
  rows = np.asarray(rows, np.float64)
  lengths = np.linalg.norm(rows, axis=1, keepdims=True)
  return scipy.sparse.csr_array(rows / np.maximum(lengths, 1e-300))


def test_labels_without_vectors_resemble_nobody():
  vectors = unit([[0, 0], [0, 0], [1, 1]])
  found = intra_list_diversity(np.array([[0, 1, 2]], np.int32), (3,), vectors)
  assert found[3].tolist() == [1]


def test_pair_by_pair(monkeypatch):
  monkeypatch.setattr(diversity, '_ROWS', 30)
  rng = np.random.default_rng(0)
  vectors = unit(np.abs(rng.normal(size=(200, 6))))
  ids = np.array([rng.permutation(200)[:9] for _ in range(80)], np.int32)
  for row, n in enumerate(rng.integers(0, 10, 80)):
    ids[row, n:] = PAD
  ks = (2, 5, 9)
  found = intra_list_diversity(ids, ks, vectors)
  dense = vectors.toarray()
  for k in ks:
    for row, listed in enumerate(ids[:, :k].tolist()):
      labels = [i for i in listed if i != PAD]
      pairs = [
        1 - dense[a] @ dense[b] for a, b in itertools.combinations(labels, 2)
      ]
      wanted = np.mean(pairs) if pairs else 0
      assert found[k][row] == pytest.approx(wanted, abs=1e-12)


def test_co_occurrence():
  gold = Ragged.of([[0, 1], [0, 1], [0], [1, 2], []])
  vectors = co_occurrence(gold, 4)
  assert isinstance(vectors, scipy.sparse.csr_array)
  assert vectors.shape == (4, 5) and vectors.dtype == np.float64
  found = (vectors @ vectors.T).toarray()
  # Together in two of three and of three; in one of three and of one.
  assert found[0, 1] == pytest.approx(2 / np.sqrt(3 * 3))
  assert found[1, 2] == pytest.approx(1 / np.sqrt(3 * 1))
  assert found[0, 2] == 0
  np.testing.assert_allclose(np.diag(found), [1, 1, 1, 0])


def test_descriptors():
  texts = 'sea fish', 'Fish of the SEA', 'law', '', 'x y'
  vectors = descriptor_vectors(iter(texts))
  assert isinstance(vectors, scipy.sparse.csr_array)
  assert vectors.shape[0] == 5 and vectors.dtype == np.float64
  found = (vectors @ vectors.T).toarray()
  assert 0.5 < found[0, 1] < 1
  assert found[0, 2] == found[0, 3] == 0
  # Words of one letter are words; a label without any has no vector.
  np.testing.assert_allclose(np.diag(found), [1, 1, 1, 0, 1])


def test_words_of_all_alphabets():
  texts = 'दिन, दिन', 'दिन', '我们', '我 们', 'sante\u0301', 'Santé', 'दान'
  vectors = descriptor_vectors(texts)
  found = (vectors @ vectors.T).toarray()
  pairs = np.kron(np.eye(4), np.ones((2, 2)))[:7, :7]
  np.testing.assert_allclose(found, pairs, atol=1e-12)


@pytest.mark.parametrize('texts', [['', ' '], ['--', '?'], []])
def test_descriptors_without_words(texts):
  with pytest.raises(DataError, match='have no words'):
    descriptor_vectors(texts)
