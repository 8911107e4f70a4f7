"""Asks models for lists of labels, and makes lists of joined labels.

A cell is a pair of a document and a label, as the number
document * n_labels + label.
"""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Bool, Float32, Int32, Int64
import numpy as np

from xjax.core.distributed import rank_documents
from xjax.core.types import PAD, Batch, Scorer


def member_lists(
  scorer: Scorer,
  batches: Sequence[Batch],
  rows: int,
  size: int,
  masks: Sequence[Bool[np.ndarray, ' L_or_more']] = (),
  **filters: Any,
) -> tuple[Int32[np.ndarray, 'G B K'], Float32[np.ndarray, 'G B K']]:
  """Returns the lists of a model, for some documents of a larger batch.

  Args:
    scorer: the model.
    batches: batches of the model. Their doc_B are rows of the larger batch.
    rows: number of documents of the larger batch.
    size: length of the lists.
    masks: slices of labels.
    **filters: `weights` and `allowed` of core.types.Scorer. If `allowed` is
      bool [B, L], it has a row for each document of the larger batch.
  """

  def topk(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    own = dict(filters)
    if np.ndim(own.get('allowed')) == 2:
      own['allowed'] = own['allowed'][batch.doc_B]
    return scorer.topk(batch, size, slices=masks, **own)

  return rank_documents(batches, topk, rows, size, 1 + len(masks))[:2]


def best_cells(
  cells: Int64[np.ndarray, ' X'],
  scores: Float32[np.ndarray, ' X'],
  n_labels: int,
  rows: int,
  k: int,
) -> tuple[Int32[np.ndarray, 'B K'], Float32[np.ndarray, 'B K']]:
  """Returns the k best labels of each document.

  If scores are equal, the lower label comes first.

  Args:
    cells: the labels that are ranked, each cell at most once.
    scores: scores of the cells. Cells with -inf are never selected.
    n_labels: number of labels.
    rows: number B of documents.
    k: length of the lists.

  Returns:
    ids_BK and scores_BK, PAD and -inf after the last label of a list.
  """
  listed = scores > -np.inf
  document, label = np.divmod(cells[listed], n_labels)
  scores = scores[listed]
  order = np.lexsort((label, -scores, document))
  document = document[order]
  rank = np.arange(len(order)) - np.searchsorted(document, document)
  top = rank < k
  places, order = (document[top], rank[top]), order[top]
  ids_BK = np.full((rows, k), PAD, np.int32)
  scores_BK = np.full((rows, k), -np.inf, np.float32)
  ids_BK[places], scores_BK[places] = label[order], scores[order]
  return ids_BK, scores_BK
