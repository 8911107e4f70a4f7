"""Finds the nearest training documents."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
import contextlib
import functools
import threading

from jaxtyping import Bool, Float32, Float64, Int, Int32
import numba
from numba import njit
import numpy as np
from scipy import sparse
from threadpoolctl import ThreadpoolController

from xjax.core.arrays import csr_arrays
from xjax.core.errors import DataError
from xjax.core.processes.forks import let_forks_wait_for
from xjax.core.types import PAD

# The number of threads of BLAS is a setting of the whole process.
_blas_setting = threading.RLock()
let_forks_wait_for(_blas_setting)

# BLAS multiplies the columns that more than this share of the documents have.
# This share is the fastest of those that were measured, from 0.03 to 1. If a
# column is rarer, BLAS mostly multiplies zeros.
COMMON_SHARE = 0.1
_BLOCK, _QUERIES = 4096, 256  # at most 4 MiB of cosines in each thread
_GROUP = 64  # documents that are compared with the floor at a time
_USUAL = 16  # the largest exponent of 2 of the length of a row
_ROUNDING = 2.0**-24  # the relative error of a float32 operation
# Smaller cosines count as 0. Products below the smallest float32 number, which
# float32 sums lose, cannot add up to this number.
_LEAST = np.float32(1e-20)
_JIT = {'nogil': True, 'cache': True, 'error_model': 'numpy'}


class NearestDocuments:
  """Finds the nearest of N documents, by the cosine of their features.

  The search is exact. First, cosines are computed in float32, block by block of
  documents. Columns that many documents have are a dense matrix for BLAS; the
  others are lists of their documents. These cosines only skip documents that
  cannot be listed, as bounds of rounding errors prove. The cosines of the few
  others are computed in float64, in a fixed order, and only they decide. So
  block sizes and the number of threads never change a result.

  In addition to the rows, memory holds the dense matrix, the lists of columns
  and, in each thread, at most 4 MiB of cosines and 4 bytes per column. In the
  worst case, the dense matrix takes 1 / (2 * share) times the memory of the
  rows.
  """

  def __init__(
    self,
    rows: sparse.csr_array,  # float32 [N, D]; usually not copied
    *,
    share: float = COMMON_SHARE,  # columns above it are dense
    threads: int = 1,
    block: int = _BLOCK,  # documents that a thread compares at a time
  ):
    self.n_documents, self.n_features = rows.shape
    self._threads, self._block = threads, block
    rows, norms = _usual(rows)
    self._rows = *_loop_arrays(rows), norms
    self._inverses = np.zeros(len(norms), np.float32)  # 0 for rows of zeros
    # Inverses are multiplied instead of dividing by each length. That error is
    # in the bounds, too.
    np.divide(1, norms, out=self._inverses, where=norms > 0, casting='unsafe')
    # Bounds are much tighter if no products cancel (_error_bounds).
    self._positive = not (rows.data < 0).any()
    counts_D = np.bincount(rows.indices, minlength=self.n_features)
    self._is_common_D = counts_D > share * self.n_documents
    self._common = _dense(rows, self._is_common_D)
    self._postings = _loop_arrays(rows[:, ~self._is_common_D].tocsc())

  def nearest(
    self,
    rows: sparse.csr_array,
    k: int,
    exclude: Int[np.ndarray, ' B'] | None = None,
  ) -> tuple[Int32[np.ndarray, 'B K'], Float32[np.ndarray, 'B K']]:
    """Returns the k documents with the largest cosines, for each row.

    Only documents with a cosine above 0 are listed. Cosines below 1e-20 count
    as 0, and so do the cosines of rows of zeros. The lists are sorted by
    descending cosine, as rounded to float32, and then by ascending document.
    Short lists end with PAD and -inf. `exclude` has a document that must not be
    in the list of a row, or PAD.
    """
    if rows.shape[1] != self.n_features:
      raise ValueError(
        f'rows have {rows.shape[1]} features, not {self.n_features}'
      )
    (rows, norms), n = _usual(rows), rows.shape[0]
    excluded = np.full(n, PAD) if exclude is None else np.asarray(exclude)
    ids = np.full((n, k), PAD, np.int32)
    sims = np.full((n, k), -np.inf, np.float32)
    # Each thread gets at least one part, also of few rows.
    size = max(1, min(_QUERIES, -(-n // self._threads)))

    def search(start: int) -> None:
      part = slice(start, start + size)
      lists = ids[part], sims[part]
      self._search(rows[part], norms[part], excluded[part], lists)

    with _one_blas_thread(), ThreadPoolExecutor(self._threads) as pool:
      list(pool.map(search, range(0, n, size)))
    return ids, sims

  def _search(
    self,
    rows: sparse.csr_array,
    norms: np.ndarray,
    excluded: np.ndarray,
    lists: tuple[np.ndarray, np.ndarray],
  ) -> None:
    common = _dense(rows, self._is_common_D)
    rare = _loop_arrays(rows[:, ~self._is_common_D])
    # Blocks are visited in ascending order, so each list of documents is read
    # once from its start to its end.
    # A copy (the index is an array), which _add_rare moves on.
    cursors = self._postings[0][rare[1]]  # into the lists of rare columns
    limits = *self._error_bounds(rows), excluded.astype(np.int64)
    # One buffer for the products of all blocks, since a new one would be
    # cleared by the operating system each time.
    tile = np.empty(len(common) * self._block, np.float32)
    memory = np.zeros(self.n_features, np.float32)
    # In blocks, so that the cosines stay in the cache of a core.
    for first in range(0, self.n_documents, self._block):
      block = slice(first, min(first + self._block, self.n_documents))
      shape = len(common), block.stop - first
      products = tile[: shape[0] * shape[1]].reshape(shape)
      np.matmul(common, self._common[block].T, out=products)
      _add_block(
        first,
        products,
        self._inverses[block],
        (*_loop_arrays(rows), norms),
        self._rows,
        (*rare, cursors),
        self._postings,
        limits,
        lists,
        memory,
      )

  def _error_bounds(
    self, rows: sparse.csr_array
  ) -> tuple[Float32[np.ndarray, ' B'], Float32[np.ndarray, ' B']]:
    """Returns how far float32 cosines may be from the exact cosines.

    A sum of n products of float32 numbers, in any order, has an error of at
    most about n 2^-24 times the sum of the absolute products (Higham 2002,
    Section 3.1). That sum is at most the product of the lengths of both rows. A
    few more errors come from rounding lengths and cosines. If a cosine is below
    the second bound of its row, the exact cosine is not above 0.
    """
    margins = (np.diff(rows.indptr) + 8) * (1.1 * _ROUNDING)
    margins = margins.astype(np.float32)
    if self._positive and not (rows.data < 0).any():
      # Without negative products, small sums are as accurate as large sums.
      # Half: rounding changes a sum of positive products by far less than half.
      return margins, np.full_like(margins, _LEAST / 2)
    return margins, -margins


def _usual(
  rows: sparse.csr_array,
) -> tuple[sparse.csr_array, Float64[np.ndarray, ' N']]:
  """Returns rows whose columns ascend, and their lengths.

  If the length of a row is below 2^-16 or above 2^16, all rows are multiplied
  by powers of 2. That changes no cosine, but keeps products of float32 numbers
  from being lost.
  """
  if not rows.has_canonical_format:
    # sum_duplicates changes its matrix, which belongs to the caller.
    rows = rows.copy()
    rows.sum_duplicates()
  rows = rows.astype(np.float32, copy=False)
  norms = _lengths(rows)
  if not np.isfinite(norms).all():
    row = int(np.flatnonzero(~np.isfinite(norms))[0])
    raise DataError(f'row {row} of features has a value that is not finite')
  _, exponents = np.frexp(norms)
  if np.abs(exponents).max(initial=0) > _USUAL:
    values = np.ldexp(rows.data, np.repeat(-exponents, np.diff(rows.indptr)))
    parts = values, rows.indices, rows.indptr
    rows = sparse.csr_array(parts, rows.shape)
    norms = _lengths(rows)
  return rows, norms


def _lengths(rows: sparse.csr_array) -> Float64[np.ndarray, ' N']:
  # float64: squares of float32 numbers overflow or vanish in float32.
  parts = rows.data.astype(np.float64) ** 2, rows.indices, rows.indptr
  squares = sparse.csr_array(parts, rows.shape)
  return np.sqrt(squares @ np.ones(rows.shape[1]))


def _dense(
  rows: sparse.csr_array, columns_D: Bool[np.ndarray, ' D']
) -> Float32[np.ndarray, 'N common']:
  dense = np.zeros((rows.shape[0], np.count_nonzero(columns_D)), np.float32)
  for start in range(0, len(dense), _BLOCK):  # a copy of all would be large
    part = slice(start, start + _BLOCK)
    dense[part] = rows[part][:, columns_D].toarray()
  return dense


def _loop_arrays(rows: sparse.sparray) -> tuple[np.ndarray, ...]:
  """Returns int64 bounds, uint32 indices and values; numba compiles once."""
  bounds, indices, values = csr_arrays(rows)
  return bounds.astype(np.int64, copy=False), indices, values


@functools.cache
def _libraries() -> ThreadpoolController:
  return ThreadpoolController()


@contextlib.contextmanager
def _one_blas_thread() -> Iterator[None]:
  # The threads of BLAS wait for each other in each product. If another program
  # uses the cores, that takes longer than the product of a block.
  with _blas_setting, _libraries().limit(limits=1, user_api='blas'):
    yield


@njit(**_JIT)
def _add_block(
  first: int,  # the block's first document
  products: np.ndarray,  # float32 [B, block] of common columns; adds others
  inverses: np.ndarray,  # float32 [block], 1 / norm, or 0 for rows of zeros
  queries: tuple,  # CSR arrays of B rows, and their lengths
  documents: tuple,  # CSR arrays of all documents, and their lengths
  rare: tuple,  # CSR arrays of rare columns, and where their lists go on
  postings: tuple,  # CSC arrays of the rare columns of all documents
  limits: tuple,  # _error_bounds, and a document that is never listed
  lists: tuple,  # int32 ids and float32 similarities [B, K]
  memory: np.ndarray,  # float32 [D], zeros, and again zeros at the end
) -> None:
  """Adds a block of documents to the lists of B queries, in ascending order."""
  for b in range(len(products)):
    # A row of zeros has no neighbours.
    if queries[3][b] == 0:
      continue
    row_C = products[b]
    _add_rare(rare, b, np.uint32(first), postings, row_C)
    # The values of the query, by column, for the exact cosines.
    for e in range(queries[0][b], queries[0][b + 1]):
      memory[queries[1][e]] = queries[2][e]
    floor = _floor(queries, b, limits, lists)
    for start in range(0, len(row_C), _GROUP):
      end = min(start + _GROUP, len(row_C))
      # Most groups have no document that is near enough, and are skipped
      # without a branch for each document.
      if not _count_from(row_C[start:end], inverses[start:end], floor):
        continue
      for i in range(start, end):
        if row_C[i] * inverses[i] >= floor and first + i != limits[2][b]:
          _consider(queries[3][b], documents, first + i, memory, b, lists)
          floor = _floor(queries, b, limits, lists)
    for e in range(queries[0][b], queries[0][b + 1]):
      memory[queries[1][e]] = 0


@njit(**_JIT)
def _add_rare(rare, b, first, postings, row_C):
  """Adds the columns that are not common to the products of a query."""
  bounds, columns, values, cursors = rare
  starts, documents, weights = postings
  after = first + np.uint32(len(row_C))
  for e in range(bounds[b], bounds[b + 1]):
    at, end, value = cursors[e], starts[columns[e] + 1], values[e]
    while at < end and documents[at] < after:
      row_C[documents[at] - first] += value * weights[at]
      at += 1
    cursors[e] = at


@njit(**_JIT)
def _floor(queries, b, limits, lists):
  """Returns the least cosine, times the query's norm, to be considered."""
  # Rounding may have made a cosine too small by the error bound, so the floor
  # is lower by this bound.
  worst = lists[1][b, -1] - limits[0][b]
  return np.float32(max(worst, limits[1][b]) * queries[3][b])


@njit(**_JIT)
def _count_from(row_C, inverses, floor):
  count = numba.int32(0)
  # Counting needs no branches, so it is compiled to vector code.
  for i in range(len(row_C)):
    count += numba.int32(row_C[i] * inverses[i] >= floor)
  return count


@njit(**_JIT)
def _consider(norm, documents, document, memory, b, lists):
  """Adds a document to a query's list if its exact cosine is high enough.

  Documents are considered in ascending order. So a document comes after the
  listed documents with the same similarity.
  """
  bounds, columns, values, norms = documents
  total = 0.0
  for e in range(bounds[document], bounds[document + 1]):
    # In the order of the document's columns, which no setting changes: so the
    # same pair always has the same cosine.
    total += np.float64(memory[columns[e]]) * values[e]
  similarity = np.float32(total / (norm * norms[document]))
  ids_K, sims_K = lists[0][b], lists[1][b]
  at = len(ids_K) - 1
  if not (similarity >= _LEAST and similarity > sims_K[at]):
    return
  # Strictly above: a later document stays behind an equal one.
  while at > 0 and similarity > sims_K[at - 1]:
    ids_K[at], sims_K[at] = ids_K[at - 1], sims_K[at - 1]
    at -= 1
  ids_K[at], sims_K[at] = document, similarity
