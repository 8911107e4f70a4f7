"""Finds labels that occur together, by random walks over documents.

Features of a label with few documents say little. A mean over the label's
neighbours in a graph of co-occurrence says more (ECLARE, Mittal et al. 2021;
CascadeXML, Kharbanda et al. 2022).
"""

import concurrent.futures
import dataclasses

from numba import njit
import numpy as np
from scipy import sparse

from xjax.core.config_part import AT_LEAST_1, RATE, ConfigPart, field
from xjax.core.types import PAD, Ragged

_JIT = {'nogil': True, 'cache': True, 'error_model': 'numpy'}


@dataclasses.dataclass
class SmoothingConfig(ConfigPart, abstract=True):
  """Chooses how labels' features are mixed with those of other labels."""

  def weights(
    self, gold: Ragged, n_labels: int, seed: int, workers: int
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
    'Number of labels that are mixed. The labels that the walk visits most '
    'often are kept.',
    AT_LEAST_1,
  )

  def weights(
    self, gold: Ragged, n_labels: int, seed: int, workers: int
  ) -> sparse.csr_array:
    """Returns the weights; a label without documents has only itself."""
    documents = np.repeat(np.arange(len(gold)), gold.lengths)
    documents_of = documents[np.argsort(gold.values, kind='stable')]
    sizes = np.bincount(gold.values, minlength=n_labels)
    starts = np.append(0, np.cumsum(sizes))
    graph = gold.indptr, gold.values, starts, documents_of
    labels = np.full((n_labels, self.top), PAD, np.int32)
    visits = np.zeros((n_labels, self.top), np.float32)
    options = self.steps, self.restart, np.uint64(seed), labels, visits
    bounds = np.linspace(0, n_labels, workers + 1).astype(int)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
      futures = [
        pool.submit(_walk, *graph, first, last, *options)
        for first, last in zip(bounds, bounds[1:])
      ]
      for future in futures:
        future.result()
    visits /= visits.sum(axis=1, keepdims=True)
    real = labels != PAD
    ends = np.append(0, np.cumsum(real.sum(axis=1))).astype(np.int32)
    parts = visits[real], labels[real], ends
    return sparse.csr_array(parts, (n_labels, n_labels))


@njit(**_JIT)
def _walk(
  indptr, values, starts, documents, first, last, steps, restart, seed, top, n
):
  """Stores the labels that walks visit most often, and the numbers of visits.

  The walks start from the labels `first` to `last` - 1. Among labels with
  equally many visits, lower labels come first. The random numbers of a walk
  depend only on the seed and the label. `indptr` and `values` have the labels
  of each document, `starts` and `documents` the documents of each label. `top`
  is filled with PAD.
  """
  visited = np.empty(steps, np.int32)
  for label in range(first, last):
    if starts[label] == starts[label + 1]:
      top[label, 0], n[label, 0] = label, 1
      continue
    state = _mixed(seed + _mixed(np.uint64(label)))
    here = label
    for step in range(steps):
      # Each draw moves the state of splitmix64 on by its constant.
      state += np.uint64(0x9E3779B97F4A7C15)
      at = _below(state, starts[here + 1] - starts[here])
      document = documents[starts[here] + at]
      state += np.uint64(0x9E3779B97F4A7C15)
      at = _below(state, indptr[document + 1] - indptr[document])
      here = values[indptr[document] + at]
      visited[step] = here
      state += np.uint64(0x9E3779B97F4A7C15)
      if _below(state, 1 << 30) < restart * (1 << 30):
        here = label
    _count(np.sort(visited), top[label], n[label])


@njit(**_JIT)
def _count(visited, top, n):
  """Stores the most frequent of some sorted labels, and their numbers."""
  first = 0
  while first < len(visited):
    last = first
    while last < len(visited) and visited[last] == visited[first]:
      last += 1
    count = last - first
    if count > n[-1]:
      place = len(n) - 1
      while place > 0 and count > n[place - 1]:
        top[place], n[place] = top[place - 1], n[place - 1]
        place -= 1
      top[place], n[place] = visited[first], count
    first = last


@njit(**_JIT)
def _below(state, limit):
  """Returns a random integer from 0 to limit - 1, for limits up to 2^31."""
  high = _mixed(state) >> np.uint64(33)
  return np.int64((high * np.uint64(limit)) >> np.uint64(31))


@njit(**_JIT)
def _mixed(x):
  """Returns the output of splitmix64 for a state (Steele et al. 2014)."""
  x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
  x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
  return x ^ (x >> np.uint64(31))
