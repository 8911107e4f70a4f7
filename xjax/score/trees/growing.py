"""The label tree that a config asks for."""

from collections.abc import Callable, Sequence
import functools

import numpy as np
from scipy import sparse

from xjax.core.types import Ragged
from xjax.data.schema import LabelSpace
from xjax.score.trees.build import (
  cluster_degrees,
  clustered_tree,
  complete_tree,
  halving_degrees,
  huffman_tree,
)
from xjax.score.trees.clustering import balanced_kmeans
from xjax.score.trees.config import (
  Clusters,
  ClusterTree,
  CompleteTree,
  HuffmanTree,
  TaxonomyTree,
  TreeConfig,
)
from xjax.score.trees.label_tree import LabelTree
from xjax.score.trees.taxonomy import taxonomy_tree


def grow_tree(
  config: TreeConfig,
  space: LabelSpace,
  gold: Ragged,
  label_features: Callable[[], sparse.csr_array],
  parents: dict[str, tuple[str, ...]],
  seed: int,
  workers: int,
) -> LabelTree:
  """A tree over the trained labels of a space.

  Args:
    config: which tree.
    space: the labels.
    gold: of the documents of train.
    label_features: float32 [L, D], where labels are clustered.
    parents: id -> parents, of labels and others, where a taxonomy tells.
    seed: decides clusters.
    workers: threads; they decide nothing.

  Raises:
    DataError: the labels make no such tree.
  """
  n_labels = space.n_trained
  match config:
    case ClusterTree():
      part = functools.partial(_part, config, label_features(), workers)
      halved = config.clusters is Clusters.TWO_MEANS
      degrees = halving_degrees if halved else cluster_degrees
      shape = degrees(n_labels, config.arity, config.max_leaf)
      return clustered_tree(n_labels, shape, part, seed)
    case CompleteTree(arity):
      return complete_tree(n_labels, arity)
    case HuffmanTree(arity):
      return huffman_tree(space.train_counts[:n_labels], arity)
    case TaxonomyTree():
      return taxonomy_tree(space.ids[:n_labels], parents, gold)
  raise TypeError(f'no tree is made from {config!r}')


def _part(
  config: ClusterTree,
  features: sparse.csr_array,
  workers: int,
  labels: np.ndarray,
  k: int,
  seed: Sequence[int],
) -> np.ndarray:
  """The clusters of some labels."""
  options = {'spherical': config.spherical, 'workers': workers}
  if config.clusters is Clusters.K_MEANS:
    return balanced_kmeans(features, labels, k, seed, **options)
  found = np.zeros(len(labels), np.int64)
  for halving in range((k - 1).bit_length()):
    # From the last on: what a cluster becomes, 2 c and 2 c + 1, is free then.
    for cluster in reversed(range(2**halving)):
      own = np.flatnonzero(found == cluster)
      if len(own) < 2:  # fewer labels than parts: k is no power of 2
        found[own] = 2 * cluster
        continue
      half = balanced_kmeans(
        features, labels[own], 2, (*seed, halving, cluster), **options
      )
      found[own] = 2 * cluster + half
  return np.unique(found, return_inverse=True)[1]
