"""Trees of clusters, and complete ones."""

import math

from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from xjax.data.label_trees.clusters import (
  cluster_degrees,
  clustered_tree,
  halving_degrees,
)
from xjax.data.label_trees.label_tree import NO_LABEL
from xjax.data.label_trees.simple_trees import complete_tree

SIZES = {
  'n_labels': st.integers(1, 10**6),
  'arity': st.integers(2, 300),
  'max_leaf': st.integers(1, 300),
}


@given(**SIZES)
def test_degrees_leave_no_more_labels_than_asked(n_labels, arity, max_leaf):
  degrees = cluster_degrees(n_labels, arity, max_leaf)
  assert math.prod(degrees) * max_leaf >= n_labels
  assert all(2 <= degree <= arity for degree in degrees)
  # No tree is shallower.
  assert arity ** max(0, len(degrees) - 1) * max_leaf < n_labels or not degrees


@given(st.integers(1, 10**6), st.integers(1, 8), st.integers(1, 300))
def test_halvings_leave_no_more_labels_than_asked(n_labels, power, max_leaf):
  arity = 2**power
  degrees = halving_degrees(n_labels, arity, max_leaf)
  product = math.prod(degrees)
  assert product * max_leaf >= n_labels
  assert product == 1 or product * max_leaf < 2 * n_labels
  assert set(degrees[1:]) <= {arity} and all(d <= arity for d in degrees)


def even(labels, k, seed):
  """Parts of nearly the same sizes, by chance."""
  return np.random.default_rng(seed).permutation(np.arange(len(labels)) % k)


@settings(max_examples=30)
@given(st.integers(1, 300), st.integers(2, 8), st.integers(1, 20))
def test_trees_of_clusters(n_labels, arity, max_leaf):
  degrees = cluster_degrees(n_labels, arity, max_leaf)
  tree = clustered_tree(n_labels, degrees, even, seed=3)
  assert sorted(tree.label[tree.label >= 0]) == list(range(n_labels))
  leaf = tree.label >= 0
  np.testing.assert_array_equal(tree.degree == 0, leaf)
  # All labels are at one depth, and clusters of a depth about as large.
  assert len(tree.levels) == len(degrees) + 3
  assert (leaf.nonzero()[0] >= tree.levels[-2]).all()
  lowest = slice(tree.levels[-3], tree.levels[-2])
  sizes = tree.degree[lowest]
  assert 1 <= sizes.min() and sizes.max() <= min(max_leaf, sizes.min() + 1)


def test_clusters_are_asked_for_with_seeds_of_their_own():
  asked = []

  def part(labels, k, seed):
    asked.append((labels.tolist(), k, seed))
    return np.arange(len(labels)) % k

  tree = clustered_tree(5, [2, 2], part, seed=7)
  assert asked == [
    ([0, 1, 2, 3, 4], 2, (7, 0, 0)),
    ([0, 2, 4], 2, (7, 1, 0)),
    ([1, 3], 2, (7, 1, 1)),
  ]
  assert tree.label[tree.levels[-2] :].tolist() == [0, 4, 2, 1, 3]


@pytest.mark.parametrize('n_labels', [1, 2, 8, 27, 28])
@pytest.mark.parametrize('arity', [2, 3])
def test_complete_trees(n_labels, arity):
  tree = complete_tree(n_labels, arity)
  labels = tree.label[tree.label != NO_LABEL]
  assert tree.degree[tree.inner].max() <= arity
  needed = max(1, math.ceil(round(math.log(n_labels, arity), 9)))
  assert len(tree.levels) - 2 == needed
  # In their order from left to right.
  np.testing.assert_array_equal(labels, np.arange(n_labels))
