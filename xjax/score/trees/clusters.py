"""Builds label trees from balanced clusters, and computes labels' features."""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import enum
import functools
import math
from typing import Any

import numpy as np
from scipy import sparse

from xjax.core.config_part import AT_LEAST_0, AT_LEAST_1, AT_LEAST_2, field
from xjax.core.types import Ragged
from xjax.data.text.words import split_terms
from xjax.score.trees.clustering import balanced_kmeans
from xjax.score.trees.contract import TreeConfig, TreeData
from xjax.score.trees.label_tree import NO_LABEL, LabelTree

# A function (labels, k, seed) -> the cluster of each label, from 0 to k - 1.
Part = Callable[[np.ndarray, int, Sequence[int]], np.ndarray]

_ENTRIES = 2**22  # entries of documents that are summed at a time


class LabelFeatures(enum.Enum):
  """Chooses the features by which labels are clustered.

  Attributes:
    PIFA: positive-instance features. They are the sum of the features of a
      label's documents, scaled to length 1.
    PIFA_BY_LENGTH: as PIFA, with two changes. Each document's features are
      first divided by the document's number of words. The sum is not scaled.
    NAMES: the TF-IDF features of the labels' names.
  """

  PIFA = 'pifa'
  PIFA_BY_LENGTH = 'pifa_by_length'
  NAMES = 'names'


class Clusters(enum.Enum):
  """Chooses how a set of labels is divided into clusters.

  Attributes:
    K_MEANS: divides the set into all clusters at once.
    TWO_MEANS: divides the set into two clusters, then each cluster into two
      again, and so on.
  """

  K_MEANS = 'k_means'
  TWO_MEANS = 'two_means'


@dataclasses.dataclass
class ClusterTree(TreeConfig):
  """Builds a tree of balanced clusters of labels, from the root down."""

  arity: int = field(
    16,
    'Largest number of clusters directly below a node. With TWO_MEANS, it must '
    'be a power of 2.',
    AT_LEAST_2,
    tiny=2,
  )
  max_leaf: int = field(
    80,
    'Largest number of labels of a cluster on the lowest level. The labels of '
    'a cluster are trained in groups of at most 16.',
    AT_LEAST_1,
    tiny=4,
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

  def check(self, config: Any, path: str) -> Iterator[str]:
    if self.clusters is Clusters.TWO_MEANS and self.arity & (self.arity - 1):
      yield (
        f'{path}.arity={self.arity}: must be a power of 2 with '
        f'{path}.clusters=Clusters.TWO_MEANS'
      )
    where = f'{path}.features={self.features}'
    if self.features is not LabelFeatures.PIFA and config.data.sparse:
      yield (
        f'{where}: needs texts; set config.data.tokens=TfidfConfig(...), or '
        'use LabelFeatures.PIFA, which needs no texts'
      )
    if self.features is LabelFeatures.PIFA_BY_LENGTH and self.spherical:
      yield (
        f'{where}: needs {path}.spherical=False, because the cosine ignores '
        'how frequent labels are'
      )

  def build(self, data: TreeData) -> LabelTree:
    """Builds the tree, as TreeConfig.build describes."""
    features = self._label_features(data)
    if self.spherical:
      features = _normalize(features)
    return self.of_features(features, data.seed, data.workers)

  def of_features(
    self, features: sparse.csr_array, seed: int, workers: int = 1
  ) -> LabelTree:
    """Builds the tree over labels with the given features.

    Args:
      features: float32 [L, D].
      seed: the seed of all random choices.
      workers: number of threads. The result does not depend on this number.
    """
    halved = self.clusters is Clusters.TWO_MEANS
    degrees_of = halving_degrees if halved else cluster_degrees
    degrees = degrees_of(features.shape[0], self.arity, self.max_leaf)
    part = functools.partial(_part, self, features, workers)
    return clustered_tree(features.shape[0], degrees, part, seed)

  def _label_features(self, data: TreeData) -> sparse.csr_array:
    n_labels, n = data.space.n_trained, self.max_features
    if self.features is LabelFeatures.NAMES:
      names = [' '.join((x.name, *x.alt)) for x in data.space.labels]
      features = data.featurise(names[:n_labels])
      return strongest(features, n) if n else features
    lengths = None
    if self.features is LabelFeatures.PIFA_BY_LENGTH:
      lengths = np.array([len(split_terms(x.text())) for x in data.documents])
    return pifa(data.rows, data.gold, n_labels, lengths, n)


def _part(
  config: ClusterTree,
  features: sparse.csr_array,
  workers: int,
  labels: np.ndarray,
  k: int,
  seed: Sequence[int],
) -> np.ndarray:
  """Divides labels into k clusters, and returns the cluster of each label."""
  options = {'spherical': config.spherical, 'workers': workers}
  if config.clusters is Clusters.K_MEANS:
    return balanced_kmeans(features, labels, k, seed, **options)
  clusters = np.zeros(len(labels), np.int64)
  for halving in range((k - 1).bit_length()):
    # Cluster c becomes the clusters 2 c and 2 c + 1. The order is reversed, so
    # that no undivided cluster has one of these numbers.
    for cluster in reversed(range(2**halving)):
      members = np.flatnonzero(clusters == cluster)
      if len(members) < 2:  # nothing to divide; k is not a power of 2
        clusters[members] = 2 * cluster
        continue
      half = balanced_kmeans(
        features, labels[members], 2, (*seed, halving, cluster), **options
      )
      clusters[members] = 2 * cluster + half
  return np.unique(clusters, return_inverse=True)[1]


def cluster_degrees(n_labels: int, arity: int, max_leaf: int) -> list[int]:
  """Returns the number of clusters directly below a node, for each depth.

  The tree is as shallow as `arity` and `max_leaf` allow. Nodes of all depths
  have about the same number of children.

  Args:
    n_labels: number of labels.
    arity: largest number of clusters directly below a node.
    max_leaf: largest number of labels of a cluster on the lowest level.
  """
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
  """Returns how many clusters are directly below a node if clusters are halved.

  There is one number for each depth, as in cluster_degrees. All numbers are
  powers of 2. Only the number for the root may be less than `arity`.

  Args:
    n_labels: number of labels.
    arity: number of clusters directly below a node, a power of 2.
    max_leaf: largest number of labels of a cluster on the lowest level.
  """
  halvings = math.ceil(math.log2(max(1.0, n_labels / max_leaf)))
  step = arity.bit_length() - 1
  whole, rest = divmod(halvings, step)
  return [2**rest] * bool(rest) + [arity] * whole


def clustered_tree(
  n_labels: int, degrees: Sequence[int], part: Part, seed: int
) -> LabelTree:
  """Builds a tree whose inner nodes are clusters and whose leaves are labels.

  Args:
    n_labels: number of labels. The tree has all labels.
    degrees: for each depth, the number of clusters directly below a node.
    part: divides labels into clusters. No cluster is empty.
    seed: `part` gets a seed that consists of this number and of the node's
      place in the tree.
  """
  parent, label = [-1], [NO_LABEL]
  groups = [(0, np.arange(n_labels))]
  for depth, degree in enumerate(degrees):
    below = []
    for place, (node, labels) in enumerate(groups):
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


def pifa(
  rows: sparse.csr_array,
  gold: Ragged,
  n_labels: int,
  lengths: np.ndarray | None = None,
  n: int = 0,
) -> sparse.csr_array:
  """Sums the features of each label's documents (PIFA).

  PIFA stands for positive-instance features.

  Args:
    rows: float32 [N, D], the features of the documents.
    gold: N rows of labels.
    n_labels: number of labels, L.
    lengths: int [N], the number of words of each document. Each document's
      features are divided by this number, and the sums are not scaled (Bertalis
      et al., Section 3.3). So frequent labels mostly have larger sums. If
      `lengths` is None, each sum is divided by its L2 norm (as in CascadeXML
      and PECOS).
    n: number of values to keep for each label. The values with the largest
      absolute values are kept. 0 keeps all values.

  Returns:
    float32 [L, D]. A label without documents has an empty row.
  """
  # With int64 offsets, the product would copy the rows' indices to int64.
  offsets = gold.indptr.astype(np.int32)
  parts = np.ones(len(gold.values), np.float32), gold.values, offsets
  weights = sparse.csr_array(parts, (len(gold), n_labels))
  if lengths is not None:
    scale_N = 1 / np.maximum(np.asarray(lengths, np.float32), 1)
    weights = weights.multiply(scale_N[:, None])
  weights = weights.T.tocsr()
  # The time of a product depends on the number of all features, so labels with
  # few documents share a product.
  entries = np.repeat(np.diff(rows.indptr), gold.lengths)
  entries_L = np.bincount(gold.values, entries, n_labels)
  parts = np.cumsum(entries_L) // _ENTRIES
  starts = np.flatnonzero(np.diff(parts, prepend=-1))
  features = []
  for first, last in zip(starts, [*starts[1:], n_labels]):
    sums = weights[first:last] @ rows
    if lengths is None:
      sums = _normalize(sums)
    features.append(strongest(sums, n) if n else sums)
  return sparse.vstack(features, 'csr')


def strongest(features: sparse.csr_array, n: int) -> sparse.csr_array:
  """Keeps in each row the n values with the largest absolute values.

  If absolute values are equal, the first values of the row are kept.

  Args:
    features: float32 [L, D].
    n: at least 1. Rows with at most n values do not change.
  """
  starts, data = features.indptr, features.data
  kept = np.ones(len(data), bool)
  for row in np.flatnonzero(np.diff(starts) > n):
    span = slice(starts[row], starts[row + 1])
    kept[span] = False
    kept[span.start + np.argsort(-np.abs(data[span]), kind='stable')[:n]] = True
  ends = np.append(0, np.cumsum(kept))[starts]
  parts = data[kept], features.indices[kept].astype(np.int32), ends
  return sparse.csr_array(parts, features.shape)


def _normalize(rows: sparse.csr_array) -> sparse.csr_array:
  """Scales rows to length 1, in place."""
  # Prediction needs this module, but not the library, which loads slowly.
  from sklearn.preprocessing import normalize

  return normalize(rows, copy=False)
