"""Trees of clusters, complete ones, and Huffman's."""

import dataclasses
import heapq
import math

from hypothesis import given, settings, strategies as st
import numpy as np
import pytest
from scipy import sparse

from xjax.core.types import Ragged
from xjax.data.label_trees.clusters import (
  Clusters,
  ClusterTree,
  cluster_degrees,
  clustered_tree,
  halving_degrees,
)
from xjax.data.label_trees.label_tree import (
  NO_LABEL,
  CompleteTree,
  HuffmanTree,
  TreeConfig,
  TreeInputs,
  complete_tree,
  huffman_tree,
)
from xjax.data.label_trees.taxonomy import TaxonomyTree
from xjax.data.schema import Label, LabelSpace

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


L, HELD_OUT = 21, 2
UNBALANCED = Clusters.UNBALANCED


@pytest.fixture(scope='module')
def features():
  """Returns features of labels in three groups, by their index modulo 3."""
  rng = np.random.default_rng(0)
  dense_LD = 0.1 * rng.random((L, 9))
  for label in range(L):
    dense_LD[label, label % 3 * 3 : label % 3 * 3 + 3] += 1
  return sparse.csr_array(dense_LD.astype(np.float32))


def grow(config, features, seed=0, workers=1, parents=()):
  parents, ids = dict(parents), [f'l{i}' for i in range(L + HELD_OUT)]
  labels = tuple(Label(id_, parents=parents.get(id_, ())) for id_ in ids)
  counts = np.arange(L + HELD_OUT)[::-1].astype(np.int32)
  space = LabelSpace(labels, counts, 100, L, HELD_OUT)
  gold = Ragged.of([[0, 1], [2]])
  if isinstance(config, ClusterTree):
    return config.of_features(features, seed, workers)
  return config.build(TreeInputs(space, gold, seed=seed, workers=workers))


KINDS = [
  ClusterTree(arity=3, max_leaf=3),
  ClusterTree(arity=4, max_leaf=2, clusters=Clusters.TWO_MEANS),
  ClusterTree(arity=2, max_leaf=2, spherical=False),
  ClusterTree(arity=3, max_leaf=3, clusters=UNBALANCED),
  CompleteTree(arity=3),
  HuffmanTree(arity=3),
  TaxonomyTree(),
]


@pytest.mark.parametrize('config', KINDS, ids=str)
def test_every_trained_label_is_there_once(config, features):
  tree = grow(config, features, parents={'l3': ('l1',), 'l1': ('other',)})
  labels = np.sort(tree.label[tree.label != NO_LABEL])
  np.testing.assert_array_equal(labels, np.arange(L))
  assert tree.n_labels == L
  if isinstance(config, ClusterTree) and config.clusters is not UNBALANCED:
    lowest = tree.degree[tree.levels[-3] : tree.levels[-2]]
    assert 1 <= lowest.min() and lowest.max() <= config.max_leaf
    assert tree.degree.max() <= max(config.arity, config.max_leaf)


@pytest.mark.parametrize('clusters', [Clusters.K_MEANS, Clusters.TWO_MEANS])
@pytest.mark.parametrize('max_leaf', [1, 2])
def test_no_cluster_has_more_labels_than_asked(clusters, max_leaf, features):
  """Checks all numbers of labels, also fewer labels than parts of a node."""
  for n in range(1, L + 1):
    config = ClusterTree(4, max_leaf, clusters)
    tree = config.of_features(features[:n], seed=0)
    lowest = tree.degree[tree.levels[-3] : tree.levels[-2]]
    assert 1 <= lowest.min() and lowest.max() <= max_leaf, n


def test_unbalanced_clusters_follow_the_features(features):
  """Checks groups of 15, 5 and 1 labels, which balanced clusters cut up."""
  group_L = np.repeat([0, 1, 2], [15, 5, 1])
  dense = features.toarray()[[0, 1, 2]][group_L]
  dense += 0.01 * np.random.default_rng(0).random(dense.shape)
  alike = sparse.csr_array(dense.astype(np.float32))
  sizes = []
  for seed in range(20):  # the first centres are random
    config = ClusterTree(arity=3, max_leaf=7, clusters=UNBALANCED)
    tree = config.of_features(alike, seed)
    clusters = tree.inner[1:]
    sizes.append(sorted(tree.degree[clusters].tolist()))
    assert len(tree.levels) - 2 == 2  # as deep as with balanced clusters
    assert tree.degree[0] <= 3
  assert [1, 5, 15] in sizes
  balanced = ClusterTree(arity=3, max_leaf=7).of_features(alike, 0)
  assert balanced.degree[balanced.inner].tolist() == [3, 7, 7, 7]


def shape(tree):
  return {name: array.tolist() for name, array in tree.arrays().items()}


@pytest.mark.parametrize('config', [*KINDS[:2], KINDS[3]], ids=str)
def test_the_seed_decides_clusters_and_workers_do_not(config, features):
  one = shape(grow(config, features, seed=1))
  assert one == shape(grow(config, features, seed=1, workers=3))
  others = [shape(grow(config, features, seed=seed)) for seed in range(2, 5)]
  assert any(other != one for other in others)


def test_a_kind_that_builds_nothing():
  with pytest.raises(TypeError, match=r'Other must define build\(\)'):

    @dataclasses.dataclass
    class Other(TreeConfig):
      pass
