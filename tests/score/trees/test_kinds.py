"""Tests each kind of tree that a config may name, over a label space."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse

from xjax.core.types import Ragged
from xjax.data.schema import Label, LabelSpace
from xjax.score.trees.clusters import Clusters, ClusterTree
from xjax.score.trees.complete import CompleteTree
from xjax.score.trees.contract import TreeConfig, TreeData
from xjax.score.trees.huffman import HuffmanTree
from xjax.score.trees.label_tree import NO_LABEL
from xjax.score.trees.taxonomy import TaxonomyTree

L, HELD_OUT = 21, 2


@pytest.fixture(scope='module')
def features():
  """Returns features of labels in three groups, by their index modulo 3."""
  rng = np.random.default_rng(0)
  dense_LD = 0.1 * rng.random((L, 9))
  for label in range(L):
    dense_LD[label, label % 3 * 3 : label % 3 * 3 + 3] += 1
  return sparse.csr_array(dense_LD.astype(np.float32))


def grow(config, features, seed=0, workers=1, parents=()):
  parents = dict(parents)
  labels = tuple(
    Label(f'l{i}', parents=parents.get(f'l{i}', ()))
    for i in range(L + HELD_OUT)
  )
  counts = np.arange(L + HELD_OUT)[::-1].astype(np.int32)
  space = LabelSpace(labels, counts, 100, L, HELD_OUT)
  gold = Ragged.of([[0, 1], [2]])
  if isinstance(config, ClusterTree):
    return config.of_features(features, seed, workers)
  return config.build(TreeData(space, gold, seed=seed, workers=workers))


KINDS = [
  ClusterTree(arity=3, max_leaf=3),
  ClusterTree(arity=4, max_leaf=2, clusters=Clusters.TWO_MEANS),
  ClusterTree(arity=16, max_leaf=1, clusters=Clusters.TWO_MEANS),
  ClusterTree(arity=2, max_leaf=2, spherical=False),
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
  if isinstance(config, ClusterTree):
    lowest = tree.degree[tree.levels[-3] : tree.levels[-2]]
    assert 1 <= lowest.min() and lowest.max() <= config.max_leaf
    assert tree.degree.max() <= max(config.arity, config.max_leaf)


def test_labels_that_are_alike_are_siblings(features):
  tree = grow(ClusterTree(arity=3, max_leaf=7), features)
  assert np.diff(tree.levels).tolist() == [1, 3, L]
  groups = tree.label[tree.levels[-2] :].reshape(3, 7) % 3
  assert (groups == groups[:, :1]).all()


@pytest.mark.parametrize('clusters', Clusters)
@pytest.mark.parametrize('max_leaf', [1, 2])
def test_no_cluster_has_more_labels_than_asked(clusters, max_leaf, features):
  """Checks all numbers of labels, also fewer labels than parts of a node."""
  for n in range(1, L + 1):
    config = ClusterTree(4, max_leaf, clusters)
    tree = config.of_features(features[:n], seed=0)
    lowest = tree.degree[tree.levels[-3] : tree.levels[-2]]
    assert 1 <= lowest.min() and lowest.max() <= max_leaf, n


def shape(tree):
  return {name: array.tolist() for name, array in tree.arrays().items()}


@pytest.mark.parametrize('config', KINDS[:3], ids=str)
def test_the_seed_decides_clusters_and_workers_do_not(config, features):
  one = shape(grow(config, features, seed=1))
  assert one == shape(grow(config, features, seed=1, workers=3))
  others = [shape(grow(config, features, seed=seed)) for seed in range(2, 5)]
  assert any(other != one for other in others)


def test_frequent_labels_are_nearest_to_the_root(features):
  tree = grow(HuffmanTree(), features)
  labels, _ = tree.positive()
  depths = np.bincount(labels)
  assert (np.diff(depths) >= 0).all() and depths[0] < depths[-1]


def test_a_kind_that_builds_nothing():
  with pytest.raises(TypeError, match=r'Other must define build\(\)'):

    @dataclasses.dataclass
    class Other(TreeConfig):
      pass
