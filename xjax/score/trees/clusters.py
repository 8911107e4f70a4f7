"""Label trees of clusters, and what labels are clustered by."""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import enum
import functools
import math
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize

from xjax.core.config_part import AT_LEAST_0, AT_LEAST_1, AT_LEAST_2, field
from xjax.core.types import Ragged
from xjax.data.text.words import split_terms
from xjax.score.trees.clustering import balanced_kmeans
from xjax.score.trees.contract import TreeConfig, TreeData
from xjax.score.trees.label_tree import NO_LABEL, LabelTree

# (labels, k, seed) -> the cluster of each, 0 to k - 1.
Part = Callable[[np.ndarray, int, Sequence[int]], np.ndarray]

_ENTRIES = 2**22  # of documents, whose sums for labels are made at a time


class LabelFeatures(enum.Enum):
  """What labels are clustered by.

  PIFA: the sum of their documents' features, of length 1. PIFA_BY_LENGTH: each
  document's features divided by its number of words, and the sum as it is.
  NAMES: the features of their names; it needs TF-IDF.
  """

  PIFA = 'pifa'
  PIFA_BY_LENGTH = 'pifa_by_length'
  NAMES = 'names'


class Clusters(enum.Enum):
  """How labels are parted.

  K_MEANS: into as many clusters as there are to be, at once. TWO_MEANS: into
  two, and these again, until there are as many.
  """

  K_MEANS = 'k_means'
  TWO_MEANS = 'two_means'


@dataclasses.dataclass
class ClusterTree(TreeConfig):
  """Of clusters of labels, balanced, from the root down."""

  arity: int = field(
    16,
    'Children of a node that has no labels below it, at most; with TWO_MEANS '
    'a power of 2.',
    AT_LEAST_2,
    tiny=2,
  )
  max_leaf: int = field(
    80,
    'Labels of a cluster, at most; 16 are trained at once.',
    AT_LEAST_1,
    tiny=4,
  )
  clusters: Clusters = field(Clusters.K_MEANS, 'How they are found.')
  features: LabelFeatures = field(
    LabelFeatures.PIFA, 'What labels are clustered by.'
  )
  max_features: int = field(
    1000, 'Of a label, the largest ones that count; 0: all.', AT_LEAST_0
  )
  spherical: bool = field(
    True, 'Whether the cosine tells who is close, or else the distance.'
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
        f'{where}: needs texts, config.data.tokens=TfidfConfig(...); '
        'LabelFeatures.PIFA needs none'
      )
    if self.features is LabelFeatures.PIFA_BY_LENGTH and self.spherical:
      yield (
        f'{where}: needs {path}.spherical=False; the cosine sees no frequencies'
      )

  def build(self, data: TreeData) -> LabelTree:
    """As TreeConfig."""
    features = self._label_features(data)
    if self.spherical:
      features = normalize(features, copy=False)
    return self.of_features(features, data.seed, data.workers)

  def of_features(
    self, features: sparse.csr_array, seed: int, workers: int = 1
  ) -> LabelTree:
    """The tree over labels with these features, float32 [L, D]."""
    halved = self.clusters is Clusters.TWO_MEANS
    degrees = halving_degrees if halved else cluster_degrees
    shape = degrees(features.shape[0], self.arity, self.max_leaf)
    part = functools.partial(_part, self, features, workers)
    return clustered_tree(features.shape[0], shape, part, seed)

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


def cluster_degrees(n_labels: int, arity: int, max_leaf: int) -> list[int]:
  """How many parts the nodes of each depth are cut into.

  The fewest depths that leave at most max_leaf labels to a node; nodes of all
  depths have about as many children, at most arity.

  Args:
    n_labels: of the tree.
    arity: children of a node above the labels, at most.
    max_leaf: labels of a node, at most.
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
  """As cluster_degrees, of powers of 2: the lowest nodes have arity children.

  Args:
    n_labels: of the tree.
    arity: a power of 2.
    max_leaf: labels of a node, at most.
  """
  halvings = math.ceil(math.log2(max(1.0, n_labels / max_leaf)))
  step = arity.bit_length() - 1
  whole, rest = divmod(halvings, step)
  return [2**rest] * bool(rest) + [arity] * whole


def clustered_tree(
  n_labels: int, degrees: Sequence[int], part: Part, seed: int
) -> LabelTree:
  """A tree whose nodes are clusters of labels; the lowest have labels below.

  Args:
    n_labels: all of them are in the tree.
    degrees: parts of the nodes of each depth.
    part: makes them; each has a label.
    seed: with a node's place in the tree it decides its parts.
  """
  parent, label = [-1], [NO_LABEL]
  groups = [(0, np.arange(n_labels))]
  for depth, degree in enumerate(degrees):
    below = []
    for place, (node, labels) in enumerate(groups):
      found = part(labels, min(degree, len(labels)), (seed, depth, place))
      for cluster in range(found.max() + 1):
        below.append((len(parent), labels[found == cluster]))
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
  """Positive-instance feature aggregation: the sum of a label's documents.

  Args:
    rows: float32 [N, D].
    gold: N rows of labels.
    n_labels: L.
    lengths: int [N], words of each document: each is divided by its own, and
      the sums stay as they are (Bertalis et al., Section 3.3), so that labels
      are told apart by how frequent they are as well. None: each sum is
      divided by its L2 norm (as CascadeXML and PECOS have it).
    n: values of a label, its strongest; 0: all.

  Returns:
    float32 [L, D]; a label without documents has an empty row.
  """
  # Of int64 offsets the product would have, and copy the rows to, int64.
  offsets = gold.indptr.astype(np.int32)
  parts = np.ones(len(gold.values), np.float32), gold.values, offsets
  weights = sparse.csr_array(parts, (len(gold), n_labels))
  if lengths is not None:
    each = 1 / np.maximum(np.asarray(lengths, np.float32), 1)
    weights = weights.multiply(each[:, None])
  weights = weights.T.tocsr()
  # A product takes time for every feature: tail labels go together.
  entries = np.repeat(np.diff(rows.indptr), gold.lengths)
  entries_L = np.bincount(gold.values, entries, n_labels)
  parts = np.cumsum(entries_L) // _ENTRIES
  starts = np.flatnonzero(np.diff(parts, prepend=-1))
  found = []
  for first, last in zip(starts, [*starts[1:], n_labels]):
    sums = weights[first:last] @ rows
    if lengths is None:
      sums = normalize(sums, copy=False)
    found.append(strongest(sums, n) if n else sums)
  return sparse.vstack(found, 'csr')


def strongest(features: sparse.csr_array, n: int) -> sparse.csr_array:
  """The n values of each row that are largest in size; of equal ones the first.

  Args:
    features: float32 [L, D].
    n: at least 1; shorter rows stay as they are.
  """
  starts, data = features.indptr, features.data
  kept = np.ones(len(data), bool)
  for row in np.flatnonzero(np.diff(starts) > n):
    own = slice(starts[row], starts[row + 1])
    kept[own] = False
    kept[own.start + np.argsort(-np.abs(data[own]), kind='stable')[:n]] = True
  ends = np.append(0, np.cumsum(kept))[starts]
  parts = data[kept], features.indices[kept].astype(np.int32), ends
  return sparse.csr_array(parts, features.shape)
