"""Reads and checks sparse matrices that scipy.sparse.save_npz wrote."""

import os

import numpy as np
import scipy.sparse

from xjax.core.errors import DAMAGE, DataError
from xjax.core.types import Ragged, offsets_of
from xjax.data.formats.xc_files import MOST, check_width
from xjax.judge.files.document_labels import DocumentLabels


def read_sparse_npz(path: str | os.PathLike) -> DocumentLabels:
  """Reads a csr, csc or coo matrix of documents x labels; stored 0s count."""
  try:
    matrix = scipy.sparse.load_npz(path)
    _check(matrix)
  # SciPy raises NotImplementedError for a format that it does not know.
  except (*DAMAGE, NotImplementedError) as error:
    raise DataError(
      f'{path}: cannot be read as a sparse matrix of scipy ({error}); save the '
      'matrix as csr, or, if the file is damaged or cut short, get it again'
    ) from error
  n, n_labels = matrix.shape
  data = matrix.data
  if matrix.format == 'csr':
    indptr, columns = matrix.indptr.astype(np.int64), matrix.indices
  else:
    check_width(path, n, 'row', len(data))
    entries = matrix.tocoo()
    order = np.lexsort((entries.col, entries.row))
    counts = np.bincount(entries.row, minlength=n)
    indptr = offsets_of(counts)
    columns, data = entries.col[order], entries.data[order]
  if data.dtype not in (np.float32, np.float64):
    data = data.astype(np.float64)
  rows = Ragged(indptr, columns.astype(np.int32, copy=False))
  return DocumentLabels(path, rows, n_labels=n_labels, scores=data).validate()


def _check(matrix: scipy.sparse.sparray | scipy.sparse.spmatrix) -> None:
  if matrix.format not in ('csr', 'csc', 'coo'):
    raise ValueError(f'its format is {matrix.format}')
  if matrix.ndim != 2 or max(matrix.shape) > MOST:
    raise ValueError(f'its shape is {[*matrix.shape]}')
  if matrix.dtype.kind not in 'biuf':
    raise ValueError(f'its values are {matrix.dtype}')
  if matrix.format != 'coo':
    matrix.check_format(full_check=True)
