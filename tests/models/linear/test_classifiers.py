"""Classifiers are pruned, joined, and kept."""

import numpy as np
import pytest

from xjax.models.linear.classifiers import Classifiers

WEIGHTS_DL = np.array(
  [[0.5, 0, 0.01], [-0.009, 0, -3], [0, 0, 0], [-0.01, 0, 0.002]]
)
BIAS_L = np.array([-1, 0.001, 2.5])


def test_small_weights_are_left_out():
  classifiers = Classifiers.from_dense(WEIGHTS_DL, BIAS_L, 0.01)
  wanted = np.where(np.abs(WEIGHTS_DL) >= 0.01, WEIGHTS_DL, 0)
  np.testing.assert_array_equal(
    classifiers.weights.toarray(), wanted.astype(np.float32)
  )
  assert classifiers.weights.nnz == 4
  assert (classifiers.n_labels, classifiers.n_features) == (3, 4)
  np.testing.assert_array_equal(classifiers.bias, BIAS_L.astype(np.float32))
  assert Classifiers.from_dense(WEIGHTS_DL, BIAS_L, 0.0).weights.nnz == 6


def test_parts_are_joined():
  whole = Classifiers.from_dense(WEIGHTS_DL, BIAS_L, 0.0)
  parts = [
    Classifiers.from_dense(WEIGHTS_DL[:, [i]], BIAS_L[[i]], 0.0)
    for i in range(3)
  ]
  assert_equal(Classifiers.join(parts), whole)


def assert_equal(one, other):
  for name, array in one.arrays().items():
    np.testing.assert_array_equal(array, other.arrays()[name])
    assert array.dtype == other.arrays()[name].dtype


def test_some_labels_come_last_for_every_document():
  rng = np.random.default_rng(0)
  classifiers = Classifiers.from_dense(
    rng.normal(size=(6, 5)), rng.normal(size=5), 0.3
  )
  last_L = np.array([False, True, False, False, True])
  placed = classifiers.with_last(last_L, norm=2.0)
  rows_ND = rng.normal(size=(500, 6))
  rows_ND *= 2 / np.linalg.norm(rows_ND, axis=1, keepdims=True)
  # That of the lowest score there is: against a label's weights.
  against_D = -placed.weights.toarray().T
  norm_L = np.linalg.norm(against_D, axis=1, keepdims=True)
  rows_ND = np.concatenate([rows_ND, 2 * against_D / np.maximum(norm_L, 1e-9)])
  scores_NL = rows_ND @ placed.weights.toarray() + placed.bias
  lowest = scores_NL[:, ~last_L].min()
  np.testing.assert_allclose(scores_NL[:, last_L], lowest - 1, rtol=1e-5)
  np.testing.assert_array_equal(
    placed.weights.toarray()[:, ~last_L],
    classifiers.weights.toarray()[:, ~last_L],
  )
  assert_equal(classifiers.with_last(np.zeros(5, bool), 2.0), classifiers)
  alike = classifiers.with_last(np.ones(5, bool), 2.0)
  assert alike.weights.nnz == 0 and (alike.bias == -1).all()


@pytest.mark.parametrize('n_labels', [0, 3])
def test_arrays_make_the_same(n_labels):
  weights_DL, bias_L = WEIGHTS_DL[:, :n_labels], BIAS_L[:n_labels]
  classifiers = Classifiers.from_dense(weights_DL, bias_L, 0.0)
  assert_equal(Classifiers.of_arrays(classifiers.arrays()), classifiers)
