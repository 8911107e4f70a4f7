"""Trains a linear classifier per label on the documents that list the label.

A one-vs-all classifier learns to tell the documents of its label from all
others, most of which are unlike them. Here, the other documents are only those
for which some model lists the label too. So a classifier learns what matters
among listed labels, and training takes time and memory in proportion to the
listed pairs.

The objective is that of models.linear.dual with the squared hinge, and so is
the solver (Hsieh et al. 2008, Algorithm 1, with shrinking). But it trains one
label at a time, since each label has documents of its own.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
import dataclasses
import pathlib
import threading
from typing import Any

from jaxtyping import Bool, Float32, Int64
from numba import njit
import numpy as np
from scipy import sparse

from xjax.core.arrays import Arrays, csr_arrays, matrix_arrays
from xjax.core.atomic import write_npz
from xjax.core.config_part import (
  AMOUNT,
  AT_LEAST_1,
  POSITIVE,
  ConfigPart,
  field,
)
from xjax.core.progress import Progress
from xjax.core.types import offsets_of
from xjax.models.linear.dual import CALM, JIT

_PART = 64  # labels that a thread trains at a time


@dataclasses.dataclass(frozen=True, eq=False)
class ListedClassifiers:
  """Holds a linear classifier for each of L labels that were learned."""

  weights: sparse.csr_array  # float32 [L, D]
  bias_L: np.ndarray  # float32 [L], NaN for labels without a classifier

  def scores(
    self, rows: sparse.csr_array, keys: Int64[np.ndarray, ' X'], n_labels: int
  ) -> Float32[np.ndarray, ' X']:
    """Returns the scores of pairs, NaN for labels without a classifier.

    A key is row * n_labels + label, for rows of features, and keys ascend.
    """
    row, label = np.divmod(keys, n_labels)
    known = label < len(self.bias_L)
    scores = np.append(self.bias_L, np.float32(np.nan))
    scores = scores[np.where(known, label, -1)]
    known &= ~np.isnan(scores)
    memory = np.zeros(rows.shape[1], np.float32)
    bounds = offsets_of(np.bincount(row[known], minlength=rows.shape[0]))
    own, weights = csr_arrays(rows), csr_arrays(self.weights)
    scores[known] += _products(own, weights, bounds, label[known], memory)
    return scores

  def save(self, path: pathlib.Path) -> None:
    arrays = matrix_arrays('weights', self.weights)
    features = np.int64(self.weights.shape[1])
    write_npz(path, {**arrays, 'bias': self.bias_L, 'features': features})

  @classmethod
  def load(cls, path: pathlib.Path) -> 'ListedClassifiers':
    arrays = Arrays.read(path)
    weights = arrays.matrix('weights', arrays.count('features'))
    bias_L = arrays.take('bias', np.float32, (weights.shape[0],))
    arrays.finish()
    return cls(weights, bias_L)


@dataclasses.dataclass
class ListedLinear(ConfigPart):
  """Trains classifiers of listed labels, whose scores the ranker sees.

  Each learns from the documents that list its label, and no others.
  """

  reads: tuple[str, ...] = field(
    (),
    'Names of proposers, whose features the classifiers read side by side. If '
    'empty, there are no classifiers.',
  )
  c: float = field(
    0.3,
    'Weight of the losses, relative to the regulariser (C of LIBLINEAR).',
    POSITIVE,
  )
  eps: float = field(
    0.1, 'Violation at which training ends, as in LIBLINEAR.', POSITIVE
  )
  max_epochs: int = field(
    100, 'Largest number of passes over the documents of a label.', AT_LEAST_1
  )
  threshold: float = field(
    0.01, 'Weights with a smaller absolute value become 0.', AMOUNT
  )

  def fit(
    self,
    rows: sparse.csr_array,  # float32 [N, D], columns ascending in each row
    keys: Int64[np.ndarray, ' X'],  # row * n_labels + label, ascending
    gold_X: Bool[np.ndarray, ' X'],
    n_labels: int,
    *,
    seed: int,
    workers: int = 1,
    between: Callable[[], Any] = lambda: None,  # may raise an error to stop
  ) -> ListedClassifiers:
    """Trains the classifiers of all labels that are gold in a pair.

    The number of workers, which are threads, changes no classifier.
    """
    row, label = np.divmod(keys, n_labels)
    order = np.argsort(label, kind='stable')
    row, sign = row[order], np.where(gold_X, np.float32(1), -1)[order]
    starts = offsets_of(np.bincount(label, minlength=n_labels))
    labels = np.unique(label[gold_X])
    arrays, local = csr_arrays(rows), threading.local()
    settings = self.c, self.eps, self.max_epochs, self.threshold

    def train(part: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, float]]:
      if not hasattr(local, 'memory'):
        n = rows.shape[1]  # zeros, and zeros again after each label
        local.memory = np.zeros(n, np.float32), np.zeros(n, bool)
      own = [slice(starts[x], starts[x + 1]) for x in part]
      return [
        _train(arrays, row[x], sign[x], settings, seed, local.memory)
        for x in own
      ]

    columns = [np.zeros(0, np.uint32)] * n_labels
    values = [np.zeros(0, np.float32)] * n_labels
    bias_L = np.full(n_labels, np.nan, np.float32)
    parts = np.split(labels, range(_PART, len(labels), _PART))
    title = 'linear classifiers of listed labels'
    with (
      Progress(title, len(labels)) as bar,
      ThreadPoolExecutor(workers) as pool,
    ):
      for part, trained in zip(parts, pool.map(train, parts)):
        between()
        for x, classifier in zip(part, trained):
          columns[x], values[x], bias_L[x] = classifier
        bar.update(len(part))
    indptr = offsets_of([len(x) for x in columns])
    indices = np.concatenate(columns).astype(np.int32)
    shape = n_labels, rows.shape[1]
    weights = sparse.csr_array((np.concatenate(values), indices, indptr), shape)
    return ListedClassifiers(weights, bias_L)


@njit(**JIT)
def _products(rows, weights, bounds, labels, memory):
  """Returns w.x of pairs; those of row i are bounds[i] to bounds[i + 1]."""
  (indptr, indices, values), (starts, columns, parts) = rows, weights
  out = np.zeros(len(labels), np.float32)
  for i in range(len(bounds) - 1):
    if bounds[i] == bounds[i + 1]:
      continue
    for e in range(indptr[i], indptr[i + 1]):
      memory[indices[e]] = values[e]
    for x in range(bounds[i], bounds[i + 1]):
      total = 0.0
      for e in range(starts[labels[x]], starts[labels[x] + 1]):
        total += np.float64(parts[e]) * memory[columns[e]]
      out[x] = total
    for e in range(indptr[i], indptr[i + 1]):
      memory[indices[e]] = 0
  return out


@njit(**JIT)
def _train(arrays, documents, sign, settings, seed, memory):
  """Returns the columns and values of a label's weights, and its bias."""
  (indptr, indices, values), (weights, used) = arrays, memory
  c, eps, max_epochs, threshold = settings
  np.random.seed(seed)  # of numba
  n = visited = len(documents)
  order, dual = np.arange(n), np.zeros(n, np.float32)
  norms = np.ones(n, np.float32)  # squared, with 1 for the bias
  total = 0
  for i in range(n):
    total += indptr[documents[i] + 1] - indptr[documents[i]]
  touched, n_touched = np.empty(total, np.uint32), 0
  for i in range(n):
    for e in range(indptr[documents[i]], indptr[documents[i] + 1]):
      norms[i] += values[e] * values[e]
      if not used[indices[e]]:
        used[indices[e]] = True
        touched[n_touched] = indices[e]
        n_touched += 1
  touched = np.sort(touched[:n_touched])
  half, bias = np.float32(0.5 / c), np.float32(0)
  for _ in range(max_epochs):
    for i in range(visited - 1, 0, -1):
      j = np.random.randint(0, i + 1)
      order[i], order[j] = order[j], order[i]
    high, low = np.float32(-np.inf), np.float32(np.inf)
    moving = 0
    for i in range(visited):
      at = order[i]
      first, last = indptr[documents[at]], indptr[documents[at] + 1]
      score = bias
      for e in range(first, last):
        score += values[e] * weights[indices[e]]
      old = dual[at]
      slope = sign[at] * score - np.float32(1) + half * old
      # A dual variable that is 0 can only rise.
      open_ = slope if old > 0 else min(slope, np.float32(0))
      high, low = max(high, open_), min(low, open_)
      new = max(old - slope / (norms[at] + half), np.float32(0))
      if new != old:
        dual[at], change = new, (new - old) * sign[at]
        bias += change
        for e in range(first, last):
          weights[indices[e]] += values[e] * change
      if abs(open_) > CALM * eps:
        # The next pass visits only documents that still move.
        order[moving], order[i] = at, order[moving]
        moving += 1
    done = high - low <= eps
    if done and visited == n:
      break
    visited = n if done else moving
  kept = 0
  out = np.empty(n_touched, np.float32)
  for column in touched:
    if abs(weights[column]) >= threshold and weights[column] != 0:
      touched[kept], out[kept] = column, weights[column]
      kept += 1
    weights[column], used[column] = 0, False
  return touched[:kept].copy(), out[:kept].copy(), bias
