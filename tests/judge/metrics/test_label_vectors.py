"""What labels are alike by."""

import numpy as np
import pytest
import scipy.sparse

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.judge.metrics.diversity import co_occurrence, descriptor_vectors


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


@pytest.mark.parametrize('texts', [['', ' '], ['--', '?'], []])
def test_descriptors_without_words(texts):
  with pytest.raises(DataError, match='have no words'):
    descriptor_vectors(texts)
