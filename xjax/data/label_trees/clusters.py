"""Builds label trees from clusters of labels that are alike."""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import enum
import functools
import math
from typing import Any

import numpy as np
from scipy import sparse

from xjax.core.config_part import AT_LEAST_0, AT_LEAST_1, AT_LEAST_2, field
from xjax.data.label_trees.clustering import kmeans
from xjax.data.label_trees.label_features import (
  LabelFeatures,
  NoSmoothing,
  SmoothingConfig,
  label_features,
  mix,
  normalize,
)
from xjax.data.label_trees.label_tree import (
  NO_LABEL,
  LabelTree,
  TreeConfig,
  TreeInputs,
)

# A function (labels, k, seed) -> the cluster of each label, from 0 to k - 1.
DivideLabels = Callable[[np.ndarray, int, Sequence[int]], np.ndarray]


class Clusters(enum.Enum):
  """Chooses how a set of labels is divided into clusters."""

  K_MEANS = 'k_means'  # into all clusters at once
  TWO_MEANS = 'two_means'  # into two, then each cluster into two, and so on
  # As K_MEANS, but clusters may have any size (Bonsai, Khandagale et al. 2020),
  # and one of at most max_leaf labels is not divided. The tree is at most as
  # deep, so a cluster on the lowest level can have more than max_leaf labels.
  UNBALANCED = 'unbalanced'


@dataclasses.dataclass
class ClusterTree(TreeConfig):
  """Builds a tree of clusters of labels, from the root down."""

  arity: int = field(
    16,
    'Largest number of clusters directly below a node. With TWO_MEANS, it must '
    'be a power of 2.',
    AT_LEAST_2,
  )
  max_leaf: int = field(
    80,
    'Largest number of labels of a cluster on the lowest level (UNBALANCED '
    'clusters can be larger). The labels of a cluster are trained in groups of '
    'at most 16.',
    AT_LEAST_1,
  )
  clusters: Clusters = field(
    Clusters.K_MEANS, 'How labels are divided into clusters.'
  )
  features: LabelFeatures = field(
    LabelFeatures.PIFA, 'The features by which labels are clustered.'
  )
  max_features: int = field(
    1000,
    'Number of features to keep for each label. The features with the largest '
    'absolute values are kept. 0 keeps all features.',
    AT_LEAST_0,
  )
  spherical: bool = field(
    True,
    'If True, similar labels have a large cosine. If False, similar labels '
    'have a small distance.',
  )
  smoothing: SmoothingConfig = field(
    NoSmoothing,
    'How the features of a label are mixed with the features of labels that '
    'occur with it.',
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    if self.clusters is Clusters.TWO_MEANS and self.arity & (self.arity - 1):
      yield (
        f'{path}.arity={self.arity}: must be a power of 2 with '
        f'{path}.clusters=Clusters.TWO_MEANS'
      )
    if self.features is LabelFeatures.NAMES and config.data.sparse:
      yield (
        f'{path}.features={self.features}: needs texts; set '
        'config.data.tokens=TfidfConfig(...), or use LabelFeatures.PIFA, which '
        'needs no texts'
      )

  def build(self, data: TreeInputs) -> LabelTree:
    n = self.max_features
    features = label_features(self.features, data, n)
    n_labels = data.space.n_trained
    weights = self.smoothing.weights(data.gold, n_labels, data.seed)
    if weights is not None:
      features = mix(features, weights, n)
    if self.spherical:
      features = normalize(features)
    return self.of_features(features, data.seed, data.workers)

  def of_features(
    self, features: sparse.csr_array, seed: int, workers: int = 1
  ) -> LabelTree:
    """Builds the tree over labels with these features, by `workers` threads."""
    n_labels, max_leaf = features.shape[0], self.max_leaf
    degrees_of, whole = cluster_degrees, 0
    if self.clusters is Clusters.TWO_MEANS:
      degrees_of = halving_degrees
    degrees = degrees_of(n_labels, self.arity, max_leaf)
    if self.clusters is Clusters.UNBALANCED:
      degrees, whole = [self.arity] * len(degrees), max_leaf
    part = functools.partial(_part, self, features, workers)
    return clustered_tree(n_labels, degrees, part, seed, whole)


def _part(
  config: ClusterTree,
  features: sparse.csr_array,
  workers: int,
  labels: np.ndarray,
  k: int,
  seed: Sequence[int],
) -> np.ndarray:
  options = {'spherical': config.spherical, 'workers': workers}
  if config.clusters is not Clusters.TWO_MEANS:
    balanced = config.clusters is Clusters.K_MEANS
    return kmeans(features, labels, k, seed, balanced=balanced, **options)
  clusters = np.zeros(len(labels), np.int64)
  for halving in range((k - 1).bit_length()):
    # Cluster c becomes the clusters 2 c and 2 c + 1. The order is reversed, so
    # that no undivided cluster has one of these numbers.
    for cluster in reversed(range(2**halving)):
      members = np.flatnonzero(clusters == cluster)
      if len(members) < 2:  # nothing to divide; k is not a power of 2
        clusters[members] = 2 * cluster
        continue
      half = kmeans(
        features, labels[members], 2, (*seed, halving, cluster), **options
      )
      clusters[members] = 2 * cluster + half
  return np.unique(clusters, return_inverse=True)[1]


def cluster_degrees(n_labels: int, arity: int, max_leaf: int) -> list[int]:
  """Returns the number of clusters directly below a node, for each depth."""
  # The tree is as shallow as `arity` and `max_leaf` (the most labels of a
  # lowest cluster) allow. Nodes have about the same number of children.
  clusters = -(-n_labels // max_leaf)
  if clusters <= 1:
    return []
  depth = 1
  while arity**depth < clusters:
    depth += 1
  degrees = []
  for left in range(depth, 0, -1):
    degree = math.ceil(round(clusters ** (1 / left), 9))
    degrees.append(degree)
    clusters = -(-clusters // degree)
  return degrees[::-1]


def halving_degrees(n_labels: int, arity: int, max_leaf: int) -> list[int]:
  """Returns cluster_degrees for clusters that are divided into halves."""
  # They are powers of 2; only that of the root may be less than `arity`.
  halvings = math.ceil(math.log2(max(1.0, n_labels / max_leaf)))
  step = arity.bit_length() - 1
  whole, rest = divmod(halvings, step)
  return [2**rest] * bool(rest) + [arity] * whole


def clustered_tree(
  n_labels: int,
  degrees: Sequence[int],
  part: DivideLabels,
  seed: int,
  whole: int = 0,
) -> LabelTree:
  """Builds a tree whose inner nodes are clusters and whose leaves are labels.

  `degrees` has, for each depth, the number of clusters below a node. `part`
  divides labels into clusters, none empty, seeded by `seed` and the node's
  place. A cluster of at most `whole` labels is not divided.
  """
  parent, label = [-1], [NO_LABEL]
  groups = [(0, np.arange(n_labels))]
  for depth, degree in enumerate(degrees):
    below = []
    for place, (node, labels) in enumerate(groups):
      if len(labels) <= whole:
        below.append((node, labels))
        continue
      clusters = part(labels, min(degree, len(labels)), (seed, depth, place))
      for cluster in range(clusters.max() + 1):
        below.append((len(parent), labels[clusters == cluster]))
        parent.append(node)
        label.append(NO_LABEL)
    groups = below
  for node, labels in groups:
    parent += [node] * len(labels)
    label += labels.tolist()
  return LabelTree.of(parent, label, n_labels)
