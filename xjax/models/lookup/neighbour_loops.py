"""Compiles the loops that search for the nearest documents.

Some arguments are tuples of arrays:

- rows: indptr int64 [N + 1], columns uint32 [entries], values float32 [entries]
  and norms float64 [N] of N rows. A norm is the length of a row. The columns of
  a row ascend. If the rows are dense vectors, `columns` has no entries, and
  each row has as many values as there are columns.
- postings: starts int64 [D + 1], documents uint32 and values float32 of the
  columns that are not in the dense matrix. The documents of a column ascend.
- lists: ids int32 [B, K] and similarities float32 [B, K], sorted by descending
  similarity, with PAD and -inf at the end of short lists.
- memory: float32 [D], working memory. All entries must be 0, and are 0 at the
  end of a function. If the rows are dense vectors, it has no entries.
"""

import numba
from numba import njit
import numpy as np

from xjax.core.types import PAD

_JIT = {'nogil': True, 'cache': True, 'error_model': 'numpy'}
_GROUP = 64  # documents that are compared with the floor at a time

# Smaller cosines count as 0. Products below the smallest float32 number, which
# float32 sums lose, cannot add up to this number.
LEAST = np.float32(1e-20)


@njit(**_JIT)
def norms_of(indptr: np.ndarray, values: np.ndarray, norms: np.ndarray) -> None:
  """Writes the lengths of rows to `norms`, float64."""
  for row in range(len(norms)):
    total = 0.0
    for e in range(indptr[row], indptr[row + 1]):
      total += np.float64(values[e]) * np.float64(values[e])
    norms[row] = np.sqrt(total)


@njit(**_JIT)
def fill_common(rows: tuple, places: np.ndarray, common: np.ndarray) -> None:
  """Writes columns to their places, if not PAD, in a dense matrix of zeros."""
  indptr, columns, values, _ = rows
  for row in range(len(indptr) - 1):
    for e in range(indptr[row], indptr[row + 1]):
      if places[columns[e]] != PAD:
        common[row, places[columns[e]]] = values[e]


@njit(**_JIT)
def fill_postings(rows: tuple, places: np.ndarray, postings: tuple) -> None:
  """Writes the documents and values of postings, whose starts are given."""
  indptr, columns, values, _ = rows
  starts, documents, weights = postings
  ends = starts.copy()
  for row in range(len(indptr) - 1):
    for e in range(indptr[row], indptr[row + 1]):
      column = columns[e]
      if places[column] == PAD:
        documents[ends[column]], weights[ends[column]] = row, values[e]
        ends[column] += 1


@njit(**_JIT)
def first_places(
  columns: np.ndarray, postings: tuple, first: int
) -> np.ndarray:
  """Returns where documents from `first` on start in the lists of columns."""
  starts, documents, _ = postings
  places = np.empty(len(columns), np.int64)
  for e in range(len(columns)):
    low, high = starts[columns[e]], starts[columns[e] + 1]
    while low < high:
      middle = (low + high) // 2
      if documents[middle] < first:
        low = middle + 1
      else:
        high = middle
    places[e] = low
  return places


@njit(**_JIT)
def add_block(
  first: int,  # the block's first document
  products: np.ndarray,  # float32 [B, block] of common columns; adds others
  inverses: np.ndarray,  # float32 [block], 1 / norm, or 0 for rows of zeros
  queries: tuple,
  documents: tuple,
  postings: tuple,
  cursors: np.ndarray,  # first_places of the block, moved to the next block
  limits: tuple,
  lists: tuple,
  memory: np.ndarray,
) -> None:
  """Adds a block of documents to the lists of B queries.

  All documents of the block must come after the documents of earlier blocks.
  The limits are float32 [B], by how much cosines may be wrong; float32 [B], the
  lowest cosine of which the exact one can be above 0; and int64 [B], a document
  that is never listed.
  """
  for b in range(len(products)):
    if queries[3][b] == 0:
      continue
    row_C = products[b]
    if len(queries[1]):
      _add_postings(queries, b, np.uint32(first), postings, cursors, row_C)
    floor = _floor(queries, b, limits, lists)
    spread = False
    for start in range(0, len(row_C), _GROUP):
      end = min(start + _GROUP, len(row_C))
      group = slice(start, end)
      if not _count_from(row_C[group], inverses[group], floor):
        continue
      for i in range(start, end):
        if row_C[i] * inverses[i] >= floor and first + i != limits[2][b]:
          if not spread:
            _spread(queries, b, memory, 1)
            spread = True
          _consider(queries, b, documents, first + i, lists, memory)
          floor = _floor(queries, b, limits, lists)
    if spread:
      _spread(queries, b, memory, 0)


@njit(**_JIT)
def _spread(queries, b, memory, on):
  """Writes the values of a query to the places of its columns, or zeros."""
  indptr, columns, values, _ = queries
  if len(columns):
    for e in range(indptr[b], indptr[b + 1]):
      memory[columns[e]] = on * values[e]


@njit(**_JIT)
def _floor(queries, b, limits, lists):
  """Returns the least cosine, times the query's norm, to be considered."""
  worst = lists[1][b, -1] - limits[0][b]
  return np.float32(max(worst, limits[1][b]) * queries[3][b])


@njit(**_JIT)
def _add_postings(queries, b, first, postings, cursors, row_C):
  """Adds the columns that are not common to the products of a query."""
  indptr, columns, values, _ = queries
  starts, documents, weights = postings
  after = first + np.uint32(len(row_C))
  for e in range(indptr[b], indptr[b + 1]):
    at, end, value = cursors[e], starts[columns[e] + 1], values[e]
    while at < end and documents[at] < after:
      row_C[documents[at] - first] += value * weights[at]
      at += 1
    cursors[e] = at


@njit(**_JIT)
def _count_from(row_C, inverses, floor):
  """Counts the documents that are not below the floor."""
  count = numba.int32(0)
  # Counting needs no branches, so it is compiled to vector code.
  for i in range(len(row_C)):
    count += numba.int32(row_C[i] * inverses[i] >= floor)
  return count


@njit(**_JIT)
def _consider(queries, b, documents, document, lists, memory):
  """Adds a document to a query's list if its exact cosine is high enough.

  Documents are considered in ascending order. So a document comes after the
  listed documents with the same similarity. Queries with columns are in
  `memory`.
  """
  ids_K, sims_K = lists[0][b], lists[1][b]
  similarity = np.float32(
    _dot(queries, b, documents, document, memory)
    / (queries[3][b] * documents[3][document])
  )
  at = len(ids_K) - 1
  if not (similarity >= LEAST and similarity > sims_K[at]):
    return
  while at > 0 and similarity > sims_K[at - 1]:
    ids_K[at], sims_K[at] = ids_K[at - 1], sims_K[at - 1]
    at -= 1
  ids_K[at], sims_K[at] = document, similarity


@njit(**_JIT)
def _dot(queries, b, documents, document, memory):
  """Returns the dot product of two rows, in float64; see _consider."""
  other, last = documents[0][document], documents[0][document + 1]
  if not len(documents[1]):
    start, end = queries[0][b], queries[0][b + 1]
    return _dense_dot(queries[2][start:end], documents[2][other:last])
  total = 0.0
  for e in range(other, last):
    total += np.float64(memory[documents[1][e]]) * documents[2][e]
  return total


# With `reassoc`, numbers are added in the order that suits vector code. The
# order depends only on the length of the vectors.
@njit(**_JIT, fastmath={'reassoc'})
def _dense_dot(a, b):
  """Returns the dot product of two vectors, in float64."""
  total = 0.0
  for i in range(len(b)):
    total += np.float64(a[i]) * np.float64(b[i])
  return total
