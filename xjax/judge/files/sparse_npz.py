"""Reads and checks sparse matrices that scipy.sparse.save_npz wrote."""

import dataclasses
import os

import numpy as np

from xjax.core.arrays import Arrays
from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.formats.svmlight import MOST, check_width
from xjax.judge.files.rows import LabelRows

FORMATS = ('csr', 'csc', 'coo')


def read_sparse_npz(path: str | os.PathLike) -> LabelRows:
  """Reads a csr, csc or coo matrix of a row per document, a column per label.

  Each stored value, even 0, is an entry with this score. In csc and coo, the
  entries of a row are sorted by column.
  """
  arrays = Arrays.read(path)
  arrays.left.pop('_is_array', None)
  kind = _format(arrays)
  n, n_labels = _shape(arrays)
  data = _numbers(arrays, 'data', 'biuf')
  if kind == 'csr':
    columns = _indices(arrays, 'indices', len(data))
    ragged = Ragged(_indptr(arrays, n, len(data)), columns)
  elif kind == 'csc':
    columns = _column_of_entries(_indptr(arrays, n_labels, len(data)))
    rows = _indices(arrays, 'indices', len(data))
    ragged, data = _by_row(path, rows, columns, data, n)
  else:
    rows = _indices(arrays, 'row', len(data))
    columns = _indices(arrays, 'col', len(data))
    ragged, data = _by_row(path, rows, columns, data, n)
  arrays.finish()
  if data.dtype not in (np.float32, np.float64):
    data = data.astype(np.float64)
  matrix = LabelRows(path, ragged, n_labels=n_labels, scores=data)
  outside = (ragged.values < 0) | (ragged.values >= n_labels)
  matrix.check(outside, f'label {{}} is not in 0..{n_labels - 1}')
  ids = ragged.values.astype(np.int32, copy=False)
  ragged = Ragged(ragged.indptr, ids)
  return dataclasses.replace(matrix, rows=ragged).validate()


def _format(arrays: Arrays) -> str:
  value = arrays.left.pop('format', np.array(0))
  if value.shape or value.dtype.kind not in 'SU':
    arrays.fail('format', 'missing, so this is not a sparse matrix of scipy')
  kind = value.astype('U').item()
  if kind not in FORMATS:
    arrays.fail('format', f'is {kind!a}; save the matrix as csr')
  return kind


def _shape(arrays: Arrays) -> tuple[int, int]:
  shape = _numbers(arrays, 'shape', 'iu')
  if len(shape) != 2 or shape.min() < 0 or shape.max() > MOST:
    arrays.fail(
      'shape', f'is {shape.tolist()}, but must be [documents, labels]'
    )
  return int(shape[0]), int(shape[1])


def _numbers(arrays: Arrays, name: str, kinds: str) -> np.ndarray:
  """Takes the vector `name`, whose dtype.kind must be in `kinds`."""
  if name not in arrays.left:
    arrays.fail(name, 'missing')
  array = arrays.left.pop(name)
  if array.ndim != 1 or array.dtype.kind not in kinds:
    arrays.fail(
      name,
      f'is {array.dtype} {list(array.shape)}, but must be a vector of numbers',
    )
  return array


def _indices(arrays: Arrays, name: str, length: int) -> np.ndarray:
  """Takes a vector of integers, one per entry of the matrix."""
  indices = _numbers(arrays, name, 'iu')
  if len(indices) != length:
    arrays.fail(name, f'has {len(indices)} indices for {length} entries')
  return indices


def _column_of_entries(indptr: np.ndarray) -> np.ndarray:
  """Returns the column of each entry, int32, from the bounds of the columns."""
  return np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))


def _indptr(arrays: Arrays, n: int, length: int) -> np.ndarray:
  indptr = _numbers(arrays, 'indptr', 'iu').astype(np.int64)
  if len(indptr) != n + 1:
    arrays.fail('indptr', f'has {len(indptr)} bounds for {n} rows or columns')
  arrays.check_offsets('indptr', indptr, length)
  return indptr


def _by_row(
  path: str | os.PathLike,
  rows: np.ndarray,
  columns: np.ndarray,
  data: np.ndarray,
  n: int,
) -> tuple[Ragged, np.ndarray]:
  check_width(path, n, 'row', len(data))
  outside = (rows < 0) | (rows >= n)
  if np.any(outside):
    at = int(np.argmax(outside))
    raise DataError(
      f'{path}: label {columns[at]} is in row {rows[at]}, which is not in '
      f'0..{n - 1}'
    )
  order = np.lexsort((columns, rows))
  indptr = np.zeros(n + 1, np.int64)
  np.cumsum(np.bincount(rows, minlength=n), out=indptr[1:])
  return Ragged(indptr, columns[order]), data[order]
