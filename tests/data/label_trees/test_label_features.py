"""Tests the features that labels are clustered by: sums of documents."""

import numpy as np
import pytest
from scipy import sparse

from xjax.core.types import Ragged
from xjax.data.label_trees import label_features
from xjax.data.label_trees.label_features import (
  LabelFeatures,
  mix,
  pifa,
  strongest,
)
from xjax.data.label_trees.label_tree import TreeInputs
from xjax.data.schema import Label, LabelSpace

N, D, L = 12, 7, 5
EMPTY = 2


@pytest.fixture
def data():
  rng = np.random.default_rng(0)
  dense_ND = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.5)
  gold_NL = rng.random((N, L)) < 0.4
  gold_NL[:, EMPTY] = False
  gold = Ragged.of([np.flatnonzero(row) for row in gold_NL])
  return sparse.csr_array(dense_ND.astype(np.float32)), gold, gold_NL


def assert_features(features_LD, wanted):
  assert features_LD.dtype == np.float32 and features_LD.shape == wanted.shape
  np.testing.assert_allclose(features_LD.toarray(), wanted, 1e-5, 1e-6)
  assert features_LD[[EMPTY]].nnz == 0


def of_length_1(sums):
  norm = np.linalg.norm(sums, axis=1, keepdims=True)
  return sums / np.where(norm > 0, norm, 1)


def test_sums_of_documents_by_their_length(data):
  """Checks Equation 3.3 of Bertalis et al.; an empty document has length 1."""
  rows, gold, gold_NL = data
  before = rows.toarray()
  each_ND = before / np.maximum(np.arange(N), 1)[:, None]
  wanted = gold_NL.T.astype(float) @ each_ND
  assert_features(pifa(rows, gold, L, np.arange(N)), wanted)
  np.testing.assert_array_equal(rows.toarray(), before)  # left as they were


@pytest.mark.parametrize('lengths', [None, np.arange(N)])
def test_some_labels_at_a_time_are_all_at_once(data, lengths, monkeypatch):
  rows, gold, _ = data
  whole = strongest(pifa(rows, gold, L, lengths), 2)
  monkeypatch.setattr(label_features, '_ENTRIES', 5)
  features_LD = pifa(rows, gold, L, lengths, 2)
  np.testing.assert_array_equal(features_LD.toarray(), whole.toarray())


def test_sums_of_features_and_labels_of_documents_have_length_1(data):
  """Checks PIFA, and the output and the joint space of Bonsai, Section 3.1."""
  rows, gold, gold_NL = data
  labels = tuple(Label(f'l{i}') for i in range(L))
  space = LabelSpace(labels, gold_NL.sum(axis=0).astype(np.int32), N, L, 0)
  tree_data = TreeInputs(space, gold, rows)
  both = np.hstack([rows.toarray(), gold_NL])
  for kind, each in (
    (LabelFeatures.PIFA, rows.toarray()),
    (LabelFeatures.CO_OCCURRENCE, gold_NL.astype(float)),
    (LabelFeatures.JOINT, both),
  ):
    features_LD = label_features.label_features(kind, tree_data)
    sums = gold_NL.T.astype(float) @ each
    assert_features(features_LD, of_length_1(sums))


def test_features_of_several_labels_are_mixed(data, monkeypatch):
  rows, gold, _ = data
  features = pifa(rows, gold, L)
  dense = np.random.default_rng(1).random((L, L)) * (np.eye(L) + np.eye(L, k=1))
  weights = sparse.csr_array(dense.astype(np.float32))
  wanted = dense @ features.toarray()
  mixed = mix(features, weights).toarray()
  np.testing.assert_allclose(mixed, wanted, 1e-5, 1e-6)
  kept = strongest(mix(features, weights), 2).toarray()
  monkeypatch.setattr(label_features, '_ENTRIES', 5)
  np.testing.assert_array_equal(mix(features, weights, 2).toarray(), kept)


@pytest.mark.parametrize('n', [1, 2, 4, 99])
def test_the_strongest_features_are_kept(n):
  """Checks that the first of equal features stays, and so do shorter rows."""
  rng = np.random.default_rng(0)
  dense = rng.integers(0, 4, (9, D)) * (rng.random((9, D)) < 0.7)
  dense[EMPTY] = 0
  features = sparse.csr_array(dense.astype(np.float32))
  kept = strongest(features, n)
  wanted = np.zeros_like(dense)
  for row in range(9):
    best = np.argsort(-dense[row], kind='stable')[:n]
    wanted[row, best] = dense[row, best]
  np.testing.assert_array_equal(kept.toarray(), wanted)
  assert kept.dtype == np.float32 and kept.nnz == (wanted > 0).sum()
  np.testing.assert_array_equal(features.toarray(), dense)
