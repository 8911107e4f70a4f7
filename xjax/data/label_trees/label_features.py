"""Computes the features by which labels are clustered, and mixes them."""

from collections.abc import Iterator
import dataclasses
import enum

import numpy as np
from scipy import sparse

from xjax.core.config_part import AT_LEAST_1, RATE, ConfigPart, field
from xjax.core.ranking import best_cells
from xjax.core.types import PAD, Ragged, offsets_of
from xjax.data.label_trees.label_tree import TreeInputs

_ENTRIES = 2**22  # entries of documents that are summed at a time


class LabelFeatures(enum.Enum):
  """Chooses the features by which labels are clustered."""

  # Positive-instance features: the sum of the features of a label's documents,
  # scaled to length 1.
  PIFA = 'pifa'
  NAMES = 'names'  # the TF-IDF features of the labels' names
  # As PIFA, but a document has its labels as features, or its features and its
  # labels: the output space and the joint space of Bonsai (Khandagale et al.
  # 2020, Section 3.1).
  CO_OCCURRENCE = 'co_occurrence'
  JOINT = 'joint'


def label_features(
  kind: LabelFeatures, data: TreeInputs, n: int = 0
) -> sparse.csr_array:
  """Returns the labels' features, float32 [L, D]: the n strongest, or all."""
  n_labels, rows = data.space.n_trained, data.rows
  match kind:
    case LabelFeatures.NAMES:
      names = [' '.join((x.name, *x.alt)) for x in data.space.labels]
      features = data.featurise(names[:n_labels])
      return strongest(features, n) if n else features
    case LabelFeatures.CO_OCCURRENCE:
      rows = _indicators(data.gold, n_labels)
    case LabelFeatures.JOINT:
      labels = _indicators(data.gold, n_labels)
      rows = sparse.hstack([data.rows, labels], 'csr')
  return pifa(rows, data.gold, n_labels, n=n)


def _indicators(gold: Ragged, n_labels: int) -> sparse.csr_array:
  """Returns a row for each document, with 1 for its labels, float32 [N, L]."""
  # With int64 offsets, products would copy the indices of other arrays to
  # int64.
  offsets = gold.indptr.astype(np.int32)
  parts = np.ones(len(gold.values), np.float32), gold.values, offsets
  return sparse.csr_array(parts, (len(gold), n_labels))


def pifa(
  rows: sparse.csr_array,
  gold: Ragged,
  n_labels: int,
  lengths: np.ndarray | None = None,
  n: int = 0,
) -> sparse.csr_array:
  """Sums the features of each label's documents (positive-instance features).

  The result is float32 [L, D]; a label without documents has an empty row, and
  each label keeps its n `strongest` values, or all if n is 0. With `lengths`,
  int [N], a document's features are divided by its number of words, and the
  sums are not scaled (Bertalis et al., Section 3.3), so that frequent labels
  mostly have larger sums. Otherwise, each sum is divided by its L2 norm (as in
  CascadeXML and PECOS).
  """
  weights = _indicators(gold, n_labels)
  if lengths is not None:
    scale_N = 1 / np.maximum(np.asarray(lengths, np.float32), 1)
    weights = weights.multiply(scale_N[:, None])
  weights = weights.T.tocsr()
  # The time of a product depends on the number of all features, so labels with
  # few documents share a product.
  entries = np.repeat(np.diff(rows.indptr), gold.lengths)
  entries_L = np.bincount(gold.values, entries, n_labels)
  features = []
  for part in _parts(entries_L):
    sums = weights[part] @ rows
    if lengths is None:
      sums = normalize(sums)
    features.append(strongest(sums, n) if n else sums)
  return sparse.vstack(features, 'csr')


def mix(
  features: sparse.csr_array, weights: sparse.csr_array, n: int = 0
) -> sparse.csr_array:
  """Returns for each label a weighted sum of the features of some labels."""
  # A row of `weights`, float32 [L, L], has the weights of a sum.
  entries = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
  sizes = np.diff(features.indptr)[weights.indices]
  entries_L = np.bincount(entries, sizes, weights.shape[0])
  sums = (weights[part] @ features for part in _parts(entries_L))
  return sparse.vstack([strongest(x, n) if n else x for x in sums], 'csr')


def _parts(entries_L: np.ndarray) -> list[slice]:
  """Divides labels into parts with about _ENTRIES entries each."""
  parts = np.cumsum(entries_L) // _ENTRIES
  starts = np.flatnonzero(np.diff(parts, prepend=-1)).tolist()
  return list(map(slice, starts, [*starts[1:], len(entries_L)]))


def strongest(features: sparse.csr_array, n: int) -> sparse.csr_array:
  """Keeps in each row the n largest absolute values, the first if equal."""
  starts, data = features.indptr, features.data
  kept = np.ones(len(data), bool)
  for row in np.flatnonzero(np.diff(starts) > n):
    span = slice(starts[row], starts[row + 1])
    kept[span] = False
    kept[span.start + np.argsort(-np.abs(data[span]), kind='stable')[:n]] = True
  ends = offsets_of(kept)[starts]
  parts = data[kept], features.indices[kept].astype(np.int32), ends
  return sparse.csr_array(parts, features.shape)


def normalize(rows: sparse.csr_array) -> sparse.csr_array:
  """Scales rows to length 1, in place."""
  # Prediction needs this module, but not the library, which loads slowly.
  from sklearn import preprocessing

  return preprocessing.normalize(rows, copy=False)


_VISITS = 2**22  # visits of labels that are in memory at a time


@dataclasses.dataclass
class SmoothingConfig(ConfigPart, abstract=True):
  """Chooses how labels' features are mixed with those of other labels."""

  def weights(
    self, gold: Ragged, n_labels: int, seed: int
  ) -> sparse.csr_array | None:
    """Returns the weights of a mix, float32 [L, L], with rows of sum 1."""


@dataclasses.dataclass
class NoSmoothing(SmoothingConfig):
  """Each label keeps its own features."""


@dataclasses.dataclass
class RandomWalks(SmoothingConfig):
  """Mixes the features of labels that random walks visit often.

  From a label, a step goes to a random document that has the label, and then to
  a random label of this document. The weight of a label is its share of visits.
  """

  steps: int = field(
    400, 'Number of steps of the walk from each label.', AT_LEAST_1
  )
  restart: float = field(
    0.8, 'Probability that the walk goes back to its label after a step.', RATE
  )
  top: int = field(
    10,
    'Number of labels that are mixed: those that the walk visits most often.',
    AT_LEAST_1,
  )

  def weights(self, gold: Ragged, n_labels: int, seed: int) -> sparse.csr_array:
    """Returns the weights; a label without documents has only itself."""
    documents_of = gold.inverse(n_labels)
    ids_LK = np.full((n_labels, self.top), PAD, np.int32)
    visits_LK = np.zeros((n_labels, self.top), np.float32)
    ids_LK[:, 0], visits_LK[:, 0] = np.arange(n_labels), 1
    walked = np.flatnonzero(documents_of.lengths)
    size = max(_VISITS // self.steps, 1)
    for first in range(0, len(walked), size):
      labels = walked[first : first + size]
      visited = self._visited(labels, gold, documents_of, seed)
      cells = np.arange(len(labels)) * np.int64(n_labels) + visited
      cells, counts = np.unique(cells, return_counts=True)
      counts = counts.astype(np.float32)
      best = best_cells(cells, counts, n_labels, len(labels), self.top)
      ids_LK[labels], visits_LK[labels] = best
    real = ids_LK != PAD
    visits_LK[~real] = 0
    visits_LK /= visits_LK.sum(axis=1, keepdims=True)
    ends = offsets_of(real.sum(axis=1)).astype(np.int32)
    parts = visits_LK[real], ids_LK[real], ends
    return sparse.csr_array(parts, (n_labels, n_labels))

  def _visited(
    self, labels: np.ndarray, gold: Ragged, documents_of: Ragged, seed: int
  ) -> np.ndarray:
    """Returns the labels that walks visit, int32 [steps, labels]."""
    draws, here = _draws(labels, seed), labels
    visited = np.empty((self.steps, len(labels)), np.int32)
    for step in range(self.steps):
      document = _random_entry(documents_of, here, next(draws))
      visited[step] = here = _random_entry(gold, document, next(draws))
      goes_back = next(draws) / 2**31 < self.restart
      here = np.where(goes_back, labels, here)
    return visited


def _draws(labels: np.ndarray, seed: int) -> Iterator[np.ndarray]:
  """Yields random integers below 2^31 for labels, by splitmix64."""
  # They depend only on the seed and the label. (Steele et al. 2014)
  state = _mixed(np.uint64(seed) + _mixed(labels.astype(np.uint64)))
  while True:
    state = state + np.uint64(0x9E3779B97F4A7C15)
    yield (_mixed(state) >> np.uint64(33)).astype(np.int64)


def _mixed(x: np.ndarray) -> np.ndarray:
  x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
  x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
  return x ^ (x >> np.uint64(31))


def _random_entry(
  rows: Ragged, at: np.ndarray, draws: np.ndarray
) -> np.ndarray:
  """Returns an entry of each of some rows, chosen by draws below 2^31."""
  starts = rows.indptr[at]
  return rows.values[starts + (draws * (rows.indptr[at + 1] - starts) >> 31)]
