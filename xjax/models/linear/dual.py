"""Trains linear classifiers by dual coordinate descent, 16 labels at a time.

As in LIBLINEAR (Fan et al. 2008), each label's classifier minimises

  (|w|^2 + b^2) / 2 + sum_i c_i loss(y_i (w x_i + b)).

w and b are the weights and the bias of the label, and x_i are the features of
document i. y_i is 1 if document i has the label, else -1. c_i is c, times
positive_weight if document i has the label. There are two losses:

- The squared hinge. The algorithm is Algorithm 1 of Hsieh et al. 2008, "A Dual
  Coordinate Descent Method for Large-scale Linear SVM".
- The logistic loss. The algorithm is Algorithm 4 of Yu, Huang, Lin 2011, "Dual
  coordinate descent methods for logistic regression and maximum entropy
  models". Unlike Algorithm 4, the code solves for the logits of the dual
  variables.

The solver visits a document once for all WIDTH = 16 labels of a block. The 16
weights of a feature are stored next to each other, so a visit takes a few wide
additions per feature.

If the dual variables of a document hardly change, the document is left out
until all other documents have converged (shrinking, as in LIBLINEAR). Training
ends after a pass over all documents in which the violation of the optimality
conditions (as in LIBLINEAR) is at most eps, or after max_epochs passes.
"""

import dataclasses
import enum
import math

from jaxtyping import Bool, Float32, Int, Int64
from numba import njit
import numpy as np
from scipy import sparse

from xjax.core.arrays import csr_arrays

WIDTH = 16  # labels of a block; 16 float32 values fill a cache line

JIT = {
  'nogil': True,
  'cache': True,
  'error_model': 'numpy',
  # Not 'nnan' and 'ninf': the loops compare with infinities.
  'fastmath': {'contract', 'reassoc', 'nsz', 'arcp'},
}
_HALF = np.float32(0.5)
_SAME = 1e-9  # smaller changes of dual variables are not applied to weights
# Documents whose violations are below CALM * eps are left out for a while.
CALM = np.float32(0.3)
# The largest number of Newton steps for one dual variable of the logistic loss.
_INNER = 12


class Loss(enum.Enum):
  """Chooses the loss of a document, a function of the document's margin m.

  The margin is m = y (w.x + b). Here, x are the features of the document, and w
  and b are the weights and the bias of a label. y is 1 if the document has the
  label, else -1.
  """

  SQUARED_HINGE = 'squared_hinge'  # max(0, 1 - m)^2: an SVM; scores are margins
  LOGISTIC = 'logistic'  # log(1 + exp(-m)): scores are logits


@dataclasses.dataclass(frozen=True)
class Solver:
  """Describes the objective of training, and when training stops."""

  loss: Loss
  c: float  # weight of the losses relative to the regulariser (LIBLINEAR's C)
  eps: float  # violation at which the training of a block ends, as in LIBLINEAR
  max_epochs: int  # largest number of passes over the documents
  positive_weight: float = 1.0  # factor of c for documents that have the label
  threshold: float = 0.0  # weights with a smaller absolute value become 0

  @property
  def costs(self) -> tuple[np.float32, np.float32]:
    """Returns c of documents with the label, and of those without it."""
    return np.float32(self.c * self.positive_weight), np.float32(self.c)


class Workspace:
  """Holds arrays that a thread reuses for blocks, 65 bytes per feature."""

  def __init__(self, n_features: int):
    self.weights = np.zeros((n_features, WIDTH), np.float32)  # 0 between blocks
    self.used = np.zeros(n_features, bool)  # False between blocks


def solve_block(
  rows: sparse.csr_array,  # float32 [N, D] with sorted indices
  documents: Int[np.ndarray, ' documents'],  # the rows to learn from
  positive: Bool[np.ndarray, 'documents C'],
  solver: Solver,
  seed: int,  # decides the order in which documents are visited
  workspace: Workspace,
) -> tuple[
  Int64[np.ndarray, ' features'],
  Float32[np.ndarray, 'features C'],
  Float32[np.ndarray, ' C'],
]:
  """Trains the classifiers of at most WIDTH labels.

  Returns the features that the documents have, ascending, with their weights
  (all others are 0), and the biases.
  """
  width = positive.shape[1]
  sign = np.full((len(documents), WIDTH), -1, np.float32)
  sign[:, :width][positive] = 1
  bias = np.zeros(WIDTH, np.float32)
  arrays = csr_arrays(rows)
  _mark(*arrays[:2], documents, workspace.used)
  solve = _squared_hinge if solver.loss is Loss.SQUARED_HINGE else _logistic
  stop = np.float32(solver.eps), solver.max_epochs
  model = workspace.weights, bias
  solve(arrays, documents, sign, model, solver.costs, stop, seed, width)
  features = np.flatnonzero(workspace.used)
  weights = workspace.weights[features, :width]
  # Only the rows that were used are cleared: a block has few of all features.
  workspace.weights[features] = 0
  workspace.used[features] = False
  return features, weights, bias[:width]


@njit(**JIT)
def _mark(indptr, indices, documents, used):
  for document in documents:
    for e in range(indptr[document], indptr[document + 1]):
      used[indices[e]] = True


@njit(**JIT)
def _squared_hinge(arrays, documents, sign, model, costs, stop, seed, width):
  """Minimises the squared hinge, and changes weights and bias in place."""
  (indptr, indices, values), (weights, bias) = arrays, model
  eps, max_epochs = stop
  n = visited = len(documents)
  order = _first_order(n, seed)
  norms = _norms(indptr, values, documents)
  dual = np.zeros_like(sign)
  # A block may have fewer than WIDTH labels. Columns without a label must not
  # change.
  used = (np.arange(WIDTH) < width).astype(np.float32)
  scores, change = np.empty(WIDTH, np.float32), np.empty(WIDTH, np.float32)
  high, low = np.empty(WIDTH, np.float32), np.empty(WIDTH, np.float32)
  # 1 / (2 c) is what the squared hinge adds to the diagonal of the dual
  # problem.
  positive_half, negative_half = _HALF / costs[0], _HALF / costs[1]
  calm = CALM * eps
  for _ in range(max_epochs):
    _shuffle(order[:visited])
    high[:] = -np.inf
    low[:] = np.inf
    moving = 0
    for i in range(visited):
      at = order[i]
      first, last = indptr[documents[at]], indptr[documents[at] + 1]
      _score(indices, values, first, last, weights, bias, scores)
      positive_step = np.float32(1) / (norms[at] + positive_half)
      negative_step = np.float32(1) / (norms[at] + negative_half)
      moved, steepest = np.float32(0), np.float32(0)
      for k in range(WIDTH):
        old, positive = dual[at, k], sign[at, k] > 0
        half = positive_half if positive else negative_half
        step = positive_step if positive else negative_step
        slope = sign[at, k] * scores[k] - np.float32(1) + half * old
        slope *= used[k]
        # A dual variable that is 0 can only rise.
        open_ = slope if old > 0 else min(slope, np.float32(0))
        high[k], low[k] = max(high[k], open_), min(low[k], open_)
        steepest = max(steepest, abs(open_))
        new = max(old - slope * step, np.float32(0))
        dual[at, k] = new
        change[k] = (new - old) * sign[at, k]
        moved = max(moved, abs(change[k]))
      # All 16 weights of a feature change in one pass over the document.
      if moved > _SAME:
        _add(indices, values, first, last, weights, bias, change)
      if steepest > calm:
        # Documents that still move are gathered at the front of `order`. The
        # next pass visits only them.
        order[moving], order[i] = at, order[moving]
        moving += 1
    done = np.max(high - low) <= eps
    # To have converged on the visited documents is not enough: a last pass
    # over all documents must confirm it.
    if done and visited == n:
      break
    visited = n if done else moving


@njit(**JIT)
def _logistic(arrays, documents, sign, model, costs, stop, seed, width):
  """Minimises the logistic loss, and changes weights and bias in place."""
  (indptr, indices, values), (weights, bias) = arrays, model
  eps, max_epochs = stop
  n = visited = len(documents)
  order = _first_order(n, seed)
  norms = _norms(indptr, values, documents)
  # Dual variables are between 0 and c_i and start near 0. The loop changes
  # their logits.
  # Weights start at 0, as if these dual variables, 1e-8 c_i, were 0.
  logits = np.full_like(sign, np.log(1e-8))
  scores, change = np.empty(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
  worst = np.zeros(WIDTH, np.float32)
  calm = CALM * eps
  # A root needs no more digits than the violations that count.
  within = min(np.float32(1e-3), calm)
  for _ in range(max_epochs):
    _shuffle(order[:visited])
    worst[:] = 0
    moving = 0
    for i in range(visited):
      at = order[i]
      first, last = indptr[documents[at]], indptr[documents[at] + 1]
      _score(indices, values, first, last, weights, bias, scores)
      moved, steepest = np.float32(0), np.float32(0)
      for k in range(width):
        margin = sign[at, k] * scores[k]
        old = logits[at, k]
        error = abs(margin + old)
        worst[k], steepest = max(worst[k], error), max(steepest, error)
        c = costs[0] if sign[at, k] > 0 else costs[1]
        before = c * _sigmoid(old)
        new = _root(margin - norms[at] * before, norms[at] * c, old, within)
        logits[at, k] = new
        change[k] = (c * _sigmoid(new) - before) * sign[at, k]
        moved = max(moved, abs(change[k]))
      if moved > _SAME:
        _add(indices, values, first, last, weights, bias, change)
      if steepest > calm:
        order[moving], order[i] = at, order[moving]
        moving += 1
    done = np.max(worst) <= eps
    if done and visited == n:
      break
    visited = n if done else moving


@njit(**JIT)
def _root(shift, slope, start, within):
  """Solves u + shift + slope * sigmoid(u) = 0 for u. The slope is above 0.

  The search ends when the left side is closer to 0 than `within`. If this holds
  at `start`, the result is `start`. So violations below `within` are not
  reduced, and eps must be at least `within`.
  """
  # The sigmoid is from 0 to 1, so the root is in this interval.
  low, high = -shift - slope, -shift
  u = min(max(start, low), high)
  for _ in range(_INNER):
    share = _sigmoid(u)
    error = u + shift + slope * share
    if abs(error) < within:
      break
    if error > 0:
      high = u
    else:
      low = u
    u -= error / (np.float32(1) + slope * share * (np.float32(1) - share))
    # Newton's method has left the interval; bisection always converges.
    if u <= low or u >= high:
      u = np.float32(0.5) * (low + high)
  return u


@njit(**JIT)
def _sigmoid(x):
  return np.float32(1) / (np.float32(1) + np.float32(math.exp(-x)))


@njit(**JIT)
def _first_order(n, seed):
  # numba has random numbers of its own.
  np.random.seed(seed)
  return np.arange(n)


@njit(**JIT)
def _shuffle(order):
  for i in range(len(order) - 1, 0, -1):
    j = np.random.randint(0, i + 1)
    # Fisher and Yates, in place, by the random numbers of numba, so that the
    # seed decides the order.
    order[i], order[j] = order[j], order[i]


@njit(**JIT)
def _norms(indptr, values, documents):
  """Returns the squared norms, with the constant feature 1 of the bias."""
  norms = np.ones(len(documents), np.float32)
  for i in range(len(documents)):
    for e in range(indptr[documents[i]], indptr[documents[i] + 1]):
      norms[i] += values[e] * values[e]
  return norms


@njit(**JIT)
def _score(indices, values, first, last, weights, bias, scores):
  scores[:] = bias
  whole = first + (last - first) // 8 * 8
  # With one feature at a time, the compiler would gather along features instead
  # of loading all weights of a feature at once.
  for e in range(first, whole, 8):
    v0, v1, v2, v3 = values[e], values[e + 1], values[e + 2], values[e + 3]
    v4, v5, v6, v7 = values[e + 4], values[e + 5], values[e + 6], values[e + 7]
    w0, w1 = weights[indices[e]], weights[indices[e + 1]]
    w2, w3 = weights[indices[e + 2]], weights[indices[e + 3]]
    w4, w5 = weights[indices[e + 4]], weights[indices[e + 5]]
    w6, w7 = weights[indices[e + 6]], weights[indices[e + 7]]
    for k in range(WIDTH):
      low = v0 * w0[k] + v1 * w1[k] + v2 * w2[k] + v3 * w3[k]
      high = v4 * w4[k] + v5 * w5[k] + v6 * w6[k] + v7 * w7[k]
      scores[k] += low + high
  for e in range(whole, last):
    w = weights[indices[e]]
    for k in range(WIDTH):
      scores[k] += values[e] * w[k]


@njit(**JIT)
def _add(indices, values, first, last, weights, bias, change):
  bias += change
  whole = first + (last - first) // 4 * 4
  for e in range(first, whole, 4):
    v0, v1, v2, v3 = values[e], values[e + 1], values[e + 2], values[e + 3]
    w0, w1 = weights[indices[e]], weights[indices[e + 1]]
    w2, w3 = weights[indices[e + 2]], weights[indices[e + 3]]
    for k in range(WIDTH):
      w0[k] += v0 * change[k]
      w1[k] += v1 * change[k]
      w2[k] += v2 * change[k]
      w3[k] += v3 * change[k]
  for e in range(whole, last):
    w = weights[indices[e]]
    for k in range(WIDTH):
      w[k] += values[e] * change[k]
