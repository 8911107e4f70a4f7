"""Finds labels that occur together, by random walks over documents.

For a label with few documents, a mean over them says more than its own features
(ECLARE, Mittal et al. 2021; CascadeXML, Kharbanda et al. 2022).
"""

from collections.abc import Iterator
import dataclasses

import numpy as np
from scipy import sparse

from xjax.core.config_part import AT_LEAST_1, RATE, ConfigPart, field
from xjax.core.ranking import best_cells
from xjax.core.types import PAD, Ragged, offsets_of

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
