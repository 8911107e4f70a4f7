"""Batches of sparse features, made of texts as they are read."""

from collections.abc import Callable, Iterator, Sequence
import dataclasses

import numpy as np

from xjax.core.share import WHOLE, Share
from xjax.core.types import PAD, Batch, Ragged


@dataclasses.dataclass(frozen=True, eq=False)
class SparseRows:
  """Sparse features of documents.

  Attributes:
    ids: N rows of feature ids, each sorted, none twice.
    weights: float32, parallel to ids.values; none is 0.
  """

  ids: Ragged
  weights: np.ndarray

  def padded(self, width: int) -> tuple[np.ndarray, np.ndarray]:
    """(int32 ids, float32 weights), both [N, width], 0 beyond a row's end."""
    ids_BT = self.ids.padded(np.arange(len(self.ids)), width, 0)
    weights_BT = np.zeros(ids_BT.shape, np.float32)
    weights_BT[np.arange(width) < self.ids.lengths[:, None]] = self.weights
    return ids_BT, weights_BT


Featurise = Callable[[Sequence[str]], SparseRows]


class SparseBatches:
  """Every document once, in order; features are made batch by batch.

  In a batch tokens_BT are ids of features and weights_BT their weights, both 0
  beyond a document's lengths_B, which may be 0. Each batch is as wide as its
  longest row. Rows that fill the last batch have mask False and doc PAD.
  Every process has the same number of batches and the rows of its share.
  """

  def __init__(
    self,
    text_of: Callable[[int], str],
    gold: Ragged,
    featurise: Featurise,
    *,
    batch_size: int,
    share: Share = WHOLE,
  ) -> None:
    """Reads nothing yet.

    Args:
      text_of: the text of a document, by row.
      gold: N rows of label indices (empty rows where there is no gold).
      featurise: texts -> their features.
      batch_size: documents of a batch, over all processes.
      share: of this process, whose rows the batches have.

    Raises:
      ConfigError: the batch does not divide into shares.
    """
    self._text_of, self._gold, self._featurise = text_of, gold, featurise
    self._batch_size = batch_size
    self._mine = share.rows(batch_size)
    self._positives = max(1, int(gold.lengths.max(initial=0)))

  def __len__(self) -> int:
    return -(-len(self._gold) // self._batch_size)

  def __iter__(self) -> Iterator[Batch]:
    for number in range(len(self)):
      rows = np.arange(self._batch_size, dtype=np.int32)
      rows += number * self._batch_size
      yield self._batch(np.where(rows < len(self._gold), rows, PAD)[self._mine])

  def _batch(self, rows: np.ndarray) -> Batch:
    real = rows != PAD
    texts = [self._text_of(int(row)) if row != PAD else '' for row in rows]
    features = self._featurise(texts)
    lengths_B = features.ids.lengths.astype(np.int32)
    ids_BT, weights_BT = features.padded(max(1, int(lengths_B.max())))
    return Batch(
      tokens_BT=ids_BT,
      lengths_B=lengths_B,
      positives_BP=self._gold.padded(rows, self._positives, PAD),
      mask_B=real,
      doc_B=rows,
      weights_BT=weights_BT,
    )
