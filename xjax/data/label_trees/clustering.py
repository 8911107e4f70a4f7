"""Divides sparse rows into clusters by k-means, of equal or of any size."""

from collections.abc import Sequence
import concurrent.futures

from numba import njit
import numpy as np
from scipy import sparse

from xjax.core.arrays import csr_arrays

_JIT = {
  'nogil': True,
  'cache': True,
  'error_model': 'numpy',
  'fastmath': {'contract', 'reassoc', 'nsz', 'arcp'},
}
_ROUNDS = 20
_GAIN = 1e-4  # rounds end if the mean similarity grows by less than this share


def kmeans(
  features: sparse.csr_array,
  members: np.ndarray,
  k: int,
  seed: int | Sequence[int],
  *,
  balanced: bool = True,
  spherical: bool = True,
  workers: int = 1,
) -> np.ndarray:
  """Divides rows into clusters by Lloyd's algorithm.

  If `balanced`, there are k clusters whose sizes differ by at most one. Each
  row chooses the most similar cluster that has room. If too many rows choose a
  cluster, it keeps the rows that would lose the most similarity by a move to
  the next best cluster, and the others choose again. (For two clusters, this is
  the split of Parabel, Prabhu et al. 2018.) Otherwise, each row chooses the
  most similar cluster; there are at most k clusters, none empty.

  `members` are the rows of `features`, float32 [rows, D], to divide; the
  result, int64, has the cluster of each. `seed` decides the first centres, the
  only random choice; `workers` threads change no result. If `spherical`,
  similarity is the cosine with the centre; else it is closeness to the mean.
  """
  rng = np.random.default_rng(seed)
  rows = _drop_unused_features(features[members])
  first = rng.choice(len(members), k, replace=False)
  centres = np.ascontiguousarray(rows[first].toarray().T)
  before = -np.inf
  for _ in range(_ROUNDS):
    similar = _similarities(rows, centres, spherical, workers)
    part = _assign(similar) if balanced else similar.argmax(axis=1)
    mean = similar[np.arange(len(members)), part].mean(dtype=np.float64)
    if mean - before < _GAIN * abs(mean):
      break
    before = mean
    _sums(*csr_arrays(rows), part, centres)
    if spherical:
      sizes = np.sqrt((centres**2).sum(axis=0))
    else:
      sizes = np.bincount(part, minlength=k)
    centres /= np.maximum(sizes, np.float32(1e-12)).astype(np.float32)
  return part if balanced else np.unique(part, return_inverse=True)[1]


def _drop_unused_features(rows: sparse.csr_array) -> sparse.csr_array:
  """Drops features that no row has, so that the centres are small."""
  used, columns = np.unique(rows.indices, return_inverse=True)
  parts = rows.data, columns.astype(np.int32), rows.indptr
  return sparse.csr_array(parts, (rows.shape[0], len(used)))


def _similarities(
  rows: sparse.csr_array, centres: np.ndarray, spherical: bool, workers: int
) -> np.ndarray:
  """Returns the similarity of each row to each centre, float32 [rows, k]."""
  m = rows.shape[0]
  similar = np.empty((m, centres.shape[1]), np.float32)
  bounds = np.linspace(0, m, workers + 1).astype(int)
  with concurrent.futures.ThreadPoolExecutor(workers) as pool:
    futures = [
      pool.submit(_products, *csr_arrays(rows), first, last, centres, similar)
      for first, last in zip(bounds, bounds[1:])
    ]
    for future in futures:
      future.result()
  if not spherical:
    # |x - c|^2 = |x|^2 - 2 (x c - |c|^2 / 2), and |x|^2 is the same for all c.
    similar -= (centres**2).sum(axis=0) / 2
  return similar


def _assign(similar: np.ndarray) -> np.ndarray:
  """Assigns rows to clusters of equal size by the similarities [rows, k]."""
  m, k = similar.shape
  room = np.full(k, m // k)
  room[: m % k] += 1
  part = np.full(m, -1)
  left = np.arange(m)
  while len(left):
    wished = np.where(room > 0, similar[left], -np.inf)
    best = wished.argmax(axis=1)
    rows = np.arange(len(left))
    top = wished[rows, best]
    wished[rows, best] = -np.inf
    next_best = wished.max(axis=1, initial=-np.inf)
    # Rows that lose the most by their next best cluster choose first.
    order = np.argsort(next_best - top, kind='stable')
    for cluster in np.flatnonzero(room):
      taken = order[best[order] == cluster][: room[cluster]]
      part[left[taken]] = cluster
      room[cluster] -= len(taken)
    left = left[part[left] < 0]
  return part


@njit(**_JIT)
def _products(indptr, indices, values, first, last, centres, out):
  """Stores products of the rows `first` to `last` - 1 and all centres."""
  k = centres.shape[1]
  for i in range(first, last):
    sums = out[i]
    sums[:] = 0
    for e in range(indptr[i], indptr[i + 1]):
      value, row = values[e], centres[indices[e]]
      for j in range(k):
        sums[j] += value * row[j]


@njit(**_JIT)
def _sums(indptr, indices, values, part, centres):
  centres[:] = 0
  for i in range(len(part)):
    for e in range(indptr[i], indptr[i + 1]):
      centres[indices[e], part[i]] += values[e]
