"""Holds documents that have sparse features instead of text."""

from collections.abc import Sequence
import dataclasses

import numpy as np
from scipy import sparse

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.schema import Document


@dataclasses.dataclass(frozen=True, eq=False)
class SparseDocuments(Sequence):
  """Holds documents of sparse features, not text; their ids are row numbers."""

  source: str  # name of the file, for messages
  rows: sparse.csr_array  # float32 [N, D], columns ascending in each row
  labels: Ragged | None = None  # label ids, as integers; None if unknown
  numbers: np.ndarray | None = None  # int [N], rows in the file; None: all

  def __len__(self) -> int:
    return self.rows.shape[0]

  def __getitem__(self, row: int) -> Document:
    row = range(len(self))[row]
    id_ = str(row if self.numbers is None else self.numbers[row])
    if self.labels is None:
      return Document(id_, {}, None)
    return Document(id_, {}, tuple(map(str, self.labels[row].tolist())))

  @property
  def ids(self) -> tuple[str, ...]:
    numbers = range(len(self)) if self.numbers is None else self.numbers
    return tuple(map(str, numbers))

  @property
  def n_features(self) -> int:
    return self.rows.shape[1]

  def part(self, rows: np.ndarray) -> 'SparseDocuments':
    labels = self.labels
    return SparseDocuments(
      self.source,
      self.rows[rows],
      None if labels is None else labels.take(rows),
      rows if self.numbers is None else self.numbers[rows],
    )

  def with_width(self, n_features: int) -> 'SparseDocuments':
    """Returns documents of n_features columns; a DataError for others."""
    if self.n_features == n_features:
      return self
    if self.rows.nnz and (largest := self.rows.indices.max()) >= n_features:
      raise DataError(
        f'{self.source}: feature {largest} is not in 0..{n_features - 1}, the '
        'features of the training split'
      )
    rows = self.rows
    parts = rows.data, rows.indices, rows.indptr
    shape = (len(self), n_features)
    return dataclasses.replace(self, rows=sparse.csr_array(parts, shape))
