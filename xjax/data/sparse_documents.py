"""Makes batches of documents that have sparse features."""

from collections.abc import Callable, Iterator, Sequence
import dataclasses

import numpy as np
from scipy import sparse

from xjax.core.errors import DataError
from xjax.core.mesh_config import WHOLE, Share
from xjax.core.types import PAD, Batch, Ragged
from xjax.data.schema import Document


@dataclasses.dataclass(frozen=True, eq=False)
class SparseDocuments(Sequence):
  """Holds documents that have sparse features instead of text.

  The id of a document is its row number in the file, from 0.

  Attributes:
    source: name of the file, for messages.
    rows: float32 [N, D], columns ascending in each row.
    labels: N rows of label ids, as integers; None if the labels are unknown.
    numbers: int [N], row numbers in the file; None if these are all its rows.
  """

  source: str
  rows: sparse.csr_array
  labels: Ragged | None = None
  numbers: np.ndarray | None = None

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
    """Returns the ids of the documents."""
    numbers = range(len(self)) if self.numbers is None else self.numbers
    return tuple(map(str, numbers))

  @property
  def n_features(self) -> int:
    """Returns the number D of features."""
    return self.rows.shape[1]

  def select(self, rows: np.ndarray) -> 'SparseDocuments':
    """Returns the given documents in the order of `rows`; drops the labels."""
    return SparseDocuments(self.source, self.rows[rows])

  def part(self, rows: np.ndarray) -> 'SparseDocuments':
    """Returns some of the documents, with their labels and ids."""
    labels = self.labels
    return SparseDocuments(
      self.source,
      self.rows[rows],
      labels and Ragged.of([labels[row] for row in rows]),
      rows if self.numbers is None else self.numbers[rows],
    )

  def with_width(self, n_features: int) -> 'SparseDocuments':
    """Returns the same documents, but with n_features columns.

    Raises:
      DataError: a document has a feature outside 0..n_features - 1.
    """
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


# Takes row numbers of documents. Returns the features of these documents,
# [len(rows), D], with ascending columns in each row.
Features = Callable[[np.ndarray], sparse.csr_array]


class SparseBatches:
  """Yields all documents once, in batches and in order.

  Features are computed when a batch is read. In each batch:

  - tokens_BT holds the ids of features, and weights_BT holds the weights of
    features. Both arrays are 0 after the last feature of a document.
  - lengths_B holds the number of features of each document, which may be 0.
    Features of weight 0 count too.
  - T is the number of features of the longest document in the batch, but at
    least 1.
  - Rows that only fill the last batch have mask_B False and doc_B PAD.

  All processes yield the same number of batches. A process yields only the rows
  of its share.
  """

  def __init__(
    self,
    features: Features,
    gold: Ragged,
    *,
    batch_size: int,
    share: Share = WHOLE,
  ) -> None:
    """Prepares the batches without computing features.

    Args:
      features: computes the features of documents.
      gold: N rows of label indices (empty rows if there are no gold labels).
      batch_size: int, documents per batch, over all processes.
      share: the share of this process in the rows of each batch.

    Raises:
      ConfigError: the batch size is not divisible by the number of shares.
    """
    self._features, self._gold = features, gold
    self._batch_size = batch_size
    self._own_rows = share.rows(batch_size)
    self._positives = max(1, int(gold.lengths.max(initial=0)))

  def __len__(self) -> int:
    return -(-len(self._gold) // self._batch_size)

  def __iter__(self) -> Iterator[Batch]:
    for number in range(len(self)):
      rows = np.arange(self._batch_size, dtype=np.int32)
      rows += number * self._batch_size
      yield self._batch(
        np.where(rows < len(self._gold), rows, PAD)[self._own_rows]
      )

  def _batch(self, rows: np.ndarray) -> Batch:
    """Makes a batch.

    Args:
      rows: int32 [B], rows of the documents, or PAD for rows that only fill the
        batch.
    """
    real = rows != PAD
    features = self._features(rows[real])
    lengths_B = np.zeros(len(rows), np.int32)
    lengths_B[real] = np.diff(features.indptr)
    inside_BT = np.arange(max(1, lengths_B.max())) < lengths_B[:, None]
    ids_BT = np.zeros(inside_BT.shape, np.int32)
    weights_BT = np.zeros(inside_BT.shape, np.float32)
    ids_BT[inside_BT], weights_BT[inside_BT] = features.indices, features.data
    return Batch(
      tokens_BT=ids_BT,
      lengths_B=lengths_B,
      positives_BP=self._gold.padded(rows, self._positives, PAD),
      mask_B=real,
      doc_B=rows,
      weights_BT=weights_BT,
    )


def batch_rows(batch: Batch, n_features: int) -> sparse.csr_array:
  """Returns the features of a batch as a sparse matrix.

  Args:
    batch: a batch that SparseBatches yielded, on the host.
    n_features: int, D.

  Returns:
    float32 [B, D] with int32 indices. Rows that only fill the batch are empty.
  """
  inside_BT = np.arange(batch.tokens_BT.shape[1]) < batch.lengths_B[:, None]
  indptr = np.zeros(len(batch.lengths_B) + 1, np.int32)
  np.cumsum(batch.lengths_B, out=indptr[1:])
  parts = batch.weights_BT[inside_BT], batch.tokens_BT[inside_BT], indptr
  return sparse.csr_array(parts, shape=(len(batch.lengths_B), n_features))
