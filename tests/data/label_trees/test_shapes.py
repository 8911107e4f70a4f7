"""Trees of clusters, complete ones, and Huffman's."""

import heapq
import math

from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from xjax.data.label_trees.clusters import (
  cluster_degrees,
  clustered_tree,
  halving_degrees,
)
from xjax.data.label_trees.label_tree import (
  NO_LABEL,
  complete_tree,
  huffman_tree,
)

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


def visited(tree, counts):
  """Nodes on the paths of labels, weighed by their documents."""
  labels, _ = tree.positive()
  return int(counts[labels].sum())


def least(counts, arity):
  """The cost of Huffman's code, filled up with zeros."""
  fill = -(len(counts) - 1) % (arity - 1) if len(counts) > 1 else 0
  heap, cost = [*counts, *[0] * fill], 0
  heapq.heapify(heap)
  while len(heap) > 1:
    total = sum(heapq.heappop(heap) for _ in range(min(arity, len(heap))))
    cost += total
    heapq.heappush(heap, total)
  return cost


@given(st.lists(st.integers(0, 50), min_size=2, max_size=30), st.integers(2, 6))
def test_huffman_trees_cost_the_least(counts, arity):
  tree = huffman_tree(np.array(counts), arity)
  assert visited(tree, np.array(counts)) == least(counts, arity)
  labels = tree.label[tree.degree == 0]
  assert sorted(labels) == list(range(len(counts)))
  degrees = np.sort(tree.degree[tree.inner])
  assert degrees[0] >= 2 and (degrees[1:] == arity).all()


def test_a_huffman_tree_of_one_label():
  assert huffman_tree(np.array([3]), 2).label.tolist() == [-1, 0]
