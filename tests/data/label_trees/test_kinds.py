"""Tests each kind of tree that a config may name, over a label space."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse

from xjax.core.types import Ragged
from xjax.data.label_trees.clusters import Clusters, ClusterTree
from xjax.data.label_trees.label_tree import (
  NO_LABEL,
  CompleteTree,
  HuffmanTree,
  TreeConfig,
  TreeInputs,
)
from xjax.data.label_trees.taxonomy import TaxonomyTree
from xjax.data.schema import Label, LabelSpace

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
