"""Balanced k-means over sparse rows."""

from collections.abc import Sequence
import concurrent.futures

from numba import njit
import numpy as np
from scipy import sparse

from xjax.score.linear.dual import csr_arrays

_JIT = {
  'nogil': True,
  'cache': True,
  'error_model': 'numpy',
  'fastmath': {'contract', 'reassoc', 'nsz', 'arcp'},
}
_ROUNDS = 20
_GAIN = 1e-4  # of the mean similarity, below which clusters are done


def balanced_kmeans(
  features: sparse.csr_array,
  members: np.ndarray,
  k: int,
  seed: int | Sequence[int],
  *,
  spherical: bool = True,
  workers: int = 1,
) -> np.ndarray:
  """Parts rows into k clusters whose sizes differ by at most one.

  Rounds of Lloyd's algorithm. Rows go to the cluster that they are closest to;
  where more want to than have room, those stay to which it matters most: their
  similarity less that to the next best cluster with room (of two clusters this
  is the split of Parabel, Prabhu et al. 2018).

  Args:
    features: float32 [R, D].
    members: int [M], the rows to part.
    k: at most M.
    seed: chooses the rows that clusters begin with; it and nothing else
      decides the result.
    spherical: similarity is the cosine to the mean of a cluster's rows, which
      have length 1; else it is nearness.
    workers: threads.

  Returns:
    int64 [M], the cluster of each member.
  """
  rng = np.random.default_rng(seed)
  rows = _of_own_features(features[members])
  first = rng.choice(len(members), k, replace=False)
  centres = np.ascontiguousarray(rows[first].toarray().T)
  before = -np.inf
  for _ in range(_ROUNDS):
    similar = _similarities(rows, centres, spherical, workers)
    part = _assign(similar)
    mean = similar[np.arange(len(members)), part].mean(dtype=np.float64)
    if mean - before < _GAIN * abs(mean):
      break
    before = mean
    _centre(rows, part, centres, spherical)
  return part


def _of_own_features(rows: sparse.csr_array) -> sparse.csr_array:
  """Without the features that no row has: few rows have few of a million."""
  used, columns = np.unique(rows.indices, return_inverse=True)
  parts = rows.data, columns.astype(np.int32), rows.indptr
  return sparse.csr_array(parts, (rows.shape[0], len(used)))


def _similarities(
  rows: sparse.csr_array, centres_DK: np.ndarray, spherical: bool, workers: int
) -> np.ndarray:
  """float32 [M, K]."""
  m = rows.shape[0]
  similar = np.empty((m, centres_DK.shape[1]), np.float32)
  bounds = np.linspace(0, m, workers + 1).astype(int)
  with concurrent.futures.ThreadPoolExecutor(workers) as pool:
    done = [
      pool.submit(
        _products, *csr_arrays(rows), first, last, centres_DK, similar
      )
      for first, last in zip(bounds, bounds[1:])
    ]
    for each in done:
      each.result()
  if not spherical:  # nearer by |x - c|^2 = |x|^2 - 2 (x c - |c|^2 / 2)
    similar -= (centres_DK**2).sum(axis=0) / 2
  return similar


def _centre(
  rows: sparse.csr_array,
  part: np.ndarray,
  centres_DK: np.ndarray,
  spherical: bool,
) -> None:
  _sums(*csr_arrays(rows), part, centres_DK)
  if spherical:
    sizes = np.sqrt((centres_DK**2).sum(axis=0))
  else:
    sizes = np.bincount(part, minlength=centres_DK.shape[1])
  centres_DK /= np.maximum(sizes, np.float32(1e-12)).astype(np.float32)


def _assign(similar_MK: np.ndarray) -> np.ndarray:
  """int64 [M], balanced."""
  m, k = similar_MK.shape
  room = np.full(k, m // k)
  room[: m % k] += 1
  part = np.full(m, -1)
  left = np.arange(m)
  while len(left):
    wished = np.where(room > 0, similar_MK[left], -np.inf)
    best = wished.argmax(axis=1)
    rows = np.arange(len(left))
    top = wished[rows, best]
    wished[rows, best] = -np.inf
    next_best = wished.max(axis=1, initial=-np.inf)
    order = np.argsort(next_best - top, kind='stable')
    for cluster in np.flatnonzero(room):
      taken = order[best[order] == cluster][: room[cluster]]
      part[left[taken]] = cluster
      room[cluster] -= len(taken)
    left = left[part[left] < 0]
  return part


@njit(**_JIT)
def _products(indptr, indices, values, first, last, centres, out):
  k = centres.shape[1]
  for i in range(first, last):
    own = out[i]
    own[:] = 0
    for e in range(indptr[i], indptr[i + 1]):
      value, row = values[e], centres[indices[e]]
      for j in range(k):
        own[j] += value * row[j]


@njit(**_JIT)
def _sums(indptr, indices, values, part, centres):
  centres[:] = 0
  for i in range(len(part)):
    for e in range(indptr[i], indptr[i + 1]):
      centres[indices[e], part[i]] += values[e]
