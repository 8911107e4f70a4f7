"""What every way of training one-vs-all asks of documents and labels."""

import numpy as np
from scipy import sparse

from xjax.core.errors import DataError
from xjax.core.types import Ragged

_ROWS = 4096  # that are squared at a time


def check_rows(rows: sparse.csr_array, gold: Ragged) -> None:
  """Raises DataError where documents cannot be trained on."""
  if rows.shape[0] != len(gold):
    raise ValueError(f'{rows.shape[0]} rows, {len(gold)} documents')
  if not rows.nnz:
    raise DataError('no document has any feature: there is nothing to train on')
  if not np.isfinite(rows.data).all():
    raise DataError('features of documents must be finite')


def documents_of_labels(
  gold: Ragged, n_labels: int
) -> tuple[np.ndarray, np.ndarray]:
  """The documents that have each label: gold transposed.

  Returns:
    indptr: int64 [L + 1].
    documents: int32, ascending in each label.
  """
  docs = np.repeat(np.arange(len(gold), dtype=np.int32), gold.lengths)
  known = gold.values < n_labels
  order = np.argsort(gold.values[known], kind='stable')
  indptr = np.zeros(n_labels + 1, np.int64)
  np.cumsum(np.bincount(gold.values[known], minlength=n_labels), out=indptr[1:])
  return indptr, docs[known][order]


def largest_norm(rows: sparse.csr_array) -> float:
  """Of the documents' rows."""
  largest = 0.0
  for first in range(0, rows.shape[0], _ROWS):
    part = rows[first : first + _ROWS].astype(np.float64)
    part.data **= 2
    largest = max(largest, float(part.sum(axis=1).max(initial=0)))
  return largest**0.5
