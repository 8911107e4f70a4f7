"""Finds the nearest training documents, and turns their labels into votes."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
import contextlib
import functools
import threading
from typing import NamedTuple

from jaxtyping import Float32, Int, Int32
import numpy as np
from scipy import sparse
from threadpoolctl import ThreadpoolController

from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged
from xjax.models.lookup.neighbour_loops import (
  LEAST,
  add_block,
  fill_common,
  fill_postings,
  first_places,
  norms_of,
)

# The number of threads of BLAS is a setting of the whole process.
_blas_setting = threading.Lock()

Rows = sparse.csr_array | np.ndarray  # the features or vectors of documents

# BLAS multiplies the columns that more than this share of the documents have.
# This share is the fastest of those that were measured, from 0.03 to 1. If a
# column is rarer, BLAS mostly multiplies zeros.
COMMON_SHARE = 0.1
_BLOCK, _QUERIES = 4096, 256  # at most 4 MiB of cosines in each thread
_TURNS = 8  # ranges of documents that a thread takes on average
_USUAL = 16  # the largest exponent of 2 of the length of a row
_ROUNDING = 2.0**-24  # the relative error of a float32 operation

Lists = tuple[np.ndarray, np.ndarray]  # `lists` in neighbour_loops.py


class LoopRows(NamedTuple):
  """Holds rows in the form that compiled loops read (see neighbour_loops)."""

  indptr: np.ndarray
  columns: np.ndarray
  values: np.ndarray
  norms: np.ndarray

  @classmethod
  def of(cls, rows: Rows) -> 'LoopRows':
    """Returns rows without a copy if all their lengths are usual.

    If the length of a row is below 2^-16 or above 2^16, all rows are copied and
    multiplied by powers of 2. That changes no cosine, but keeps products of
    float32 numbers from being lost.
    """
    if sparse.issparse(rows):
      if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
      indptr, values = rows.indptr.astype(np.int64, copy=False), rows.data
      columns = rows.indices.astype(np.int32, copy=False).view(np.uint32)
    else:
      indptr = np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1]
      columns, values = np.zeros(0, np.uint32), rows.reshape(-1)
    values = np.ascontiguousarray(values, np.float32)
    norms = np.empty(rows.shape[0])
    norms_of(indptr, values, norms)
    if not np.isfinite(norms).all():
      row = int(np.flatnonzero(~np.isfinite(norms))[0])
      raise DataError(f'row {row} of features has a value that is not finite')
    _, exponents = np.frexp(norms)
    if np.abs(exponents).max(initial=0) > _USUAL:
      sizes = np.diff(indptr)
      values = np.ldexp(values, np.repeat(-exponents, sizes))
      norms_of(indptr, values, norms)
    return cls(indptr, columns, values, norms)

  @property
  def inverses(self) -> np.ndarray:
    """Returns 1 / norm of each row, and 0 for rows of zeros, as float32."""
    inverses = np.zeros(len(self.norms), np.float32)
    np.divide(
      1, self.norms, out=inverses, where=self.norms > 0, casting='unsafe'
    )
    return inverses


class NearestDocuments:
  """Finds the nearest of N documents, by the cosine of their features.

  The search is exact. First, cosines are computed in float32, block by block of
  documents. Sparse columns that many documents have are stored in a dense
  matrix, and are multiplied by BLAS. The other columns are read from lists of
  their documents. These cosines are only used to skip documents that cannot be
  listed, as bounds of rounding errors prove. The cosines of the few documents
  that are left are computed in float64, in a fixed order, and only they decide.
  So block sizes, the number of threads and the way in which columns are stored
  never change a result.

  In addition to the rows, memory holds the dense matrix, the lists of columns
  and, in each thread, at most 4 MiB of cosines and 4 bytes per sparse column.
  In the worst case, the dense matrix takes 1 / (2 * share) times the memory of
  the sparse rows.
  """

  def __init__(
    self,
    rows: Rows,  # float32 [N, D]; usually not copied, so never change them
    *,
    share: float = COMMON_SHARE,  # columns above it are dense
    threads: int = 1,
    block: int = _BLOCK,  # documents that a thread compares at a time
    queries: int = _QUERIES,  # rows that are compared at a time
  ):
    self.n_documents, self.n_features = rows.shape
    self.dense = not sparse.issparse(rows)
    self.rows = LoopRows.of(rows)
    self._inverses = self.rows.inverses
    self.positive = not (self.rows.values < 0).any()
    self._threads, self._block = threads, block
    self._queries_at_once = queries
    if self.dense:
      self._common = self.rows.values.reshape(rows.shape)
      self._postings = _empty_postings(0, 0)
      return
    counts_D = np.bincount(self.rows.columns, minlength=self.n_features)
    is_common_D = counts_D > share * self.n_documents
    counts_D[is_common_D] = 0
    self._places = np.where(is_common_D, np.cumsum(is_common_D) - 1, PAD)
    self._common = self._dense_part(self.rows)
    self._postings = _empty_postings(self.n_features, counts_D.sum())
    np.cumsum(counts_D, out=self._postings[0][1:])
    fill_postings(self.rows, self._places, self._postings)

  def _dense_part(self, rows: LoopRows) -> np.ndarray:
    n_rows = len(rows.norms)
    if self.dense:
      return rows.values.reshape(n_rows, self.n_features)
    n_common = int(self._places.max(initial=PAD)) + 1
    common = np.zeros((n_rows, n_common), np.float32)
    fill_common(rows, self._places, common)
    return common

  def nearest(
    self, rows: Rows, k: int, exclude: Int[np.ndarray, ' B'] | None = None
  ) -> tuple[Int32[np.ndarray, 'B K'], Float32[np.ndarray, 'B K']]:
    """Returns the k documents with the largest cosines, for each row.

    Only documents with a cosine above 0 are listed. Cosines below 1e-20 count
    as 0, and so do the cosines of rows of zeros. The lists are sorted by
    descending cosine, as rounded to float32, and then by ascending document.
    Short lists end with PAD and -inf. `exclude` has a document that must not be
    in the list of a row, or PAD.
    """
    queries, excluded = self._queries(rows, exclude)
    limits = *self.error_bounds(queries), excluded
    lists = _empty_lists(len(excluded), k)
    with _one_blas_thread(), ThreadPoolExecutor(self._threads) as pool:
      for start in range(0, len(excluded), self._queries_at_once):
        part = slice(start, start + self._queries_at_once)
        own_limits = tuple(x[part] for x in limits)
        job = _cut(queries, part), own_limits, k, self._spans()
        jobs = [pool.submit(self._search, *job) for _ in range(self._threads)]
        merged = _merged([job.result() for job in jobs])
        for whole, own in zip(lists, merged):
          whole[part] = own
    return lists

  def _spans(self) -> deque[range]:
    """Returns ranges of blocks, named by their first documents."""
    firsts = range(0, self.n_documents, self._block)
    size = -(-len(firsts) // (_TURNS * self._threads))
    # Threads take one range after the other, so that a thread whose core is
    # busy with other programs takes fewer.
    return deque(firsts[x : x + size] for x in range(0, len(firsts), size or 1))

  def _search(
    self,
    queries: LoopRows,
    limits: tuple[np.ndarray, ...],
    k: int,
    spans: deque[range],
  ) -> Lists:
    """Returns the lists of rows, among the documents that it takes."""
    lists = _empty_lists(len(queries.norms), k)
    common = self._dense_part(queries)
    tile = np.empty(len(common) * self._block, np.float32)
    memory = self._memory()
    while spans:
      try:
        firsts = spans.popleft()
      except IndexError:  # another thread has taken the last range
        break
      cursors = np.empty(0, np.int64)
      if not self.dense:
        cursors = first_places(queries.columns, self._postings, firsts[0])
      for first in firsts:
        block = slice(first, min(first + self._block, self.n_documents))
        shape = len(common), block.stop - first
        products = tile[: shape[0] * shape[1]].reshape(shape)
        np.matmul(common, self._common[block].T, out=products)
        add_block(
          first,
          products,
          self._inverses[block],
          tuple(queries),
          tuple(self.rows),
          self._postings,
          cursors,
          limits,
          lists,
          memory,
        )
    return lists

  def _memory(self) -> np.ndarray:
    return np.zeros(0 if self.dense else self.n_features, np.float32)

  def _queries(
    self, rows: Rows, exclude: np.ndarray | None
  ) -> tuple[LoopRows, np.ndarray]:
    if rows.shape[1] != self.n_features:
      raise ValueError(
        f'rows have {rows.shape[1]} features, not {self.n_features}'
      )
    if sparse.issparse(rows) == self.dense:
      raise ValueError('rows must be sparse if, and only if, documents are')
    if exclude is None:
      exclude = np.full(rows.shape[0], PAD)
    return LoopRows.of(rows), np.asarray(exclude, np.int64)

  def error_bounds(self, queries: LoopRows) -> tuple[np.ndarray, np.ndarray]:
    """Returns how far float32 cosines may be from the exact cosines.

    A sum of n products of float32 numbers, in any order, has an error of at
    most about n 2^-24 times the sum of the absolute products (Higham 2002,
    Section 3.1). That sum is at most the product of the lengths of both rows. A
    few more errors come from rounding lengths and cosines. If a cosine is below
    the second bound of its row, the exact cosine is not above 0.
    """
    margins = (np.diff(queries.indptr) + 8) * (1.1 * _ROUNDING)
    margins = margins.astype(np.float32)
    if self.positive and not (queries.values < 0).any():
      # Without negative products, small sums are as accurate as large sums.
      return margins, np.full_like(margins, LEAST / 2)
    return margins, -margins


@functools.cache
def _libraries() -> ThreadpoolController:
  return ThreadpoolController()


@contextlib.contextmanager
def _one_blas_thread() -> Iterator[None]:
  """Lets BLAS use the thread that calls it, and no other threads."""
  # The threads of BLAS wait for each other in each product. If another program
  # uses the cores, that takes longer than the product of a block.
  with _blas_setting, _libraries().limit(limits=1, user_api='blas'):
    yield


def _empty_postings(n_features: int, size: int) -> tuple[np.ndarray, ...]:
  return (
    np.zeros(n_features + 1, np.int64),
    np.empty(size, np.uint32),
    np.empty(size, np.float32),
  )


def _empty_lists(n_rows: int, k: int) -> Lists:
  shape = n_rows, k
  return np.full(shape, PAD, np.int32), np.full(shape, -np.inf, np.float32)


def _merged(lists: Sequence[Lists]) -> Lists:
  """Returns the best of the lists of several threads."""
  ids, sims = (np.concatenate(x, axis=1) for x in zip(*lists))
  order = np.lexsort((ids, -sims), axis=1)[:, : lists[0][0].shape[1]]
  return tuple(np.take_along_axis(x, order, axis=1) for x in (ids, sims))


def _cut(rows: LoopRows, part: slice) -> LoopRows:
  norms = rows.norms[part]
  indptr = rows.indptr[part.start : part.start + len(norms) + 1]
  entries = slice(indptr[0], indptr[-1])
  columns, values = rows.columns[entries], rows.values[entries]
  return LoopRows(indptr - indptr[0], columns, values, norms)


class NeighbourVotes:
  """Turns the features of documents into votes of their nearest documents.

  The vote for a label is the sum of similarity^power over the nearest documents
  that have the label, divided by the sum over all nearest documents. So votes
  are from 0 to 1.
  """

  def __init__(
    self,
    documents: NearestDocuments,
    gold: Ragged,  # of the documents, each label at most once in a row
    n_labels: int,
    *,
    neighbours: int,
    power: float,
  ):
    self._documents, self._neighbours = documents, neighbours
    self._power, self.n_features = power, n_labels
    ones = np.ones(len(gold.values))
    shape = len(gold), n_labels
    self._gold = sparse.csr_array((ones, gold.values, gold.indptr), shape)

  def __call__(
    self, rows: Rows, exclude: Int[np.ndarray, ' B'] | None = None
  ) -> sparse.csr_array:
    """Returns the votes, float32 [B, L] with ascending columns, all above 0.

    `exclude` has a document that must not vote for a row, or PAD.
    """
    ids_BK, sims_BK = self._documents.nearest(rows, self._neighbours, exclude)
    listed_BK = ids_BK != PAD
    # Similarities are divided by the largest one of the row, so that no power
    # makes all of them 0.
    largest_B1 = np.where(listed_BK, sims_BK, 0)[:, :1]
    relative_BK = np.where(listed_BK, sims_BK, 0).astype(np.float64)
    relative_BK /= np.where(largest_B1 > 0, largest_B1, 1)
    weights_BK = np.where(listed_BK, relative_BK**self._power, 0)
    indptr = np.append(0, np.cumsum(listed_BK.sum(axis=1)))
    parts = weights_BK[listed_BK], ids_BK[listed_BK], indptr
    weights = sparse.csr_array(parts, (len(ids_BK), self._gold.shape[0]))
    votes = weights @ self._gold
    totals_B = weights_BK.sum(axis=1)
    votes.data /= np.repeat(totals_B, np.diff(votes.indptr))
    votes = votes.astype(np.float32)
    votes.eliminate_zeros()
    votes.sort_indices()
    return votes
