"""The words that predicted labels attend to, over batches of documents."""

from collections.abc import Iterable
import dataclasses

import numpy as np
import tqdm

from xjax.core.types import PAD, Batch
from xjax.select.model_scorer import ModelScorer


@dataclasses.dataclass(frozen=True, eq=False)
class Attention:
  """What the labels of N documents attend to.

  Attributes:
    at_NKW: int32, the W tokens with the most attention of each label, most
      first, ties to the first in the text. Where a document has fewer tokens,
      what follows is beyond them.
    weights_NKW: float32, their weights.
    words: how many to tell of each label, at most W.
    first: for each of the first documents float32 [K, T], the weights of all
      its words (and of padding: 0).
  """

  at_NKW: np.ndarray
  weights_NKW: np.ndarray
  words: int
  first: list[np.ndarray]


def attention_of(
  scorer: ModelScorer,
  batches: Iterable[Batch],
  ids_NK: np.ndarray,
  words: int,
  n_special: int = 0,
  n_first: int = 0,
) -> Attention:
  """Goes over the documents once more, for labels that are known.

  Args:
    scorer: whose labels attend to words.
    batches: every document once.
    ids_NK: int32, the labels of each document, PAD beyond a list.
    words: how many to tell of a label.
    n_special: tokens of a document that are none of its words; W is as many
      more.
    n_first: documents of which all weights are kept.
  """
  shape = (*ids_NK.shape, words + n_special)
  at_NKW = np.full(shape, np.iinfo(np.int32).max, np.int32)
  weights_NKW = np.zeros(shape, np.float32)
  first = [np.zeros(0, np.float32)] * min(n_first, len(ids_NK))
  for batch in tqdm.tqdm(batches, 'explaining', leave=False, disable=None):
    alpha_BKT = scorer.attention(batch, ids_NK[batch.doc_B])
    at_BKW = np.argsort(-alpha_BKT, axis=2, kind='stable')[:, :, : shape[2]]
    found = at_BKW.shape[2]
    real_B = batch.doc_B != PAD
    rows = batch.doc_B[real_B]
    at_NKW[rows, :, :found] = at_BKW[real_B]
    weights_NKW[rows, :, :found] = np.take_along_axis(
      alpha_BKT, at_BKW, axis=2
    )[real_B]
    for row, alpha_KT in zip(rows.tolist(), alpha_BKT[real_B], strict=True):
      if row < len(first):
        first[row] = alpha_KT
  return Attention(at_NKW, weights_NKW, words, first)
