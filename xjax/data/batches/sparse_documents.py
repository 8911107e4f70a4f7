"""Documents that are rows of sparse features, and have no text."""

from collections.abc import Sequence
import dataclasses

import numpy as np
from scipy import sparse

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.schema import Document


@dataclasses.dataclass(frozen=True, eq=False)
class SparseDocuments(Sequence):
  """Documents by random access, without a zone; a document's id is its row.

  Attributes:
    source: the file they are from; for messages.
    rows: float32 [N, D], columns ascending.
    labels: N rows of columns, which are labels' ids; None: not known.
  """

  source: str
  rows: sparse.csr_array
  labels: Ragged | None = None

  def __len__(self) -> int:
    return self.rows.shape[0]

  def __getitem__(self, row: int) -> Document:
    row = range(len(self))[row]
    if self.labels is None:
      return Document(str(row), {}, None)
    return Document(str(row), {}, tuple(map(str, self.labels[row].tolist())))

  @property
  def n_features(self) -> int:
    """D."""
    return self.rows.shape[1]

  def some(self, rows: np.ndarray) -> 'SparseDocuments':
    """Some of them, in this order, without their labels."""
    return SparseDocuments(self.source, self.rows[rows])

  def of_width(self, n_features: int) -> 'SparseDocuments':
    """The same documents with as many columns as a model reads.

    Raises:
      DataError: they have features beyond these.
    """
    if self.n_features == n_features:
      return self
    if self.rows.nnz and (found := self.rows.indices.max()) >= n_features:
      raise DataError(
        f'{self.source}: feature {found} is not in 0..{n_features - 1}, those '
        'of the training split'
      )
    rows = self.rows
    parts = rows.data, rows.indices, rows.indptr
    shape = (len(self), n_features)
    return dataclasses.replace(self, rows=sparse.csr_array(parts, shape))
