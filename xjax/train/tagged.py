"""Documents with the labels that a run predicts for them."""

from collections.abc import Iterator
import dataclasses

import numpy as np

from xjax.core.types import PAD
from xjax.data.schema import LabelSpace, Split
from xjax.evaluate.calibration import readable_scores
from xjax.evaluate.explained import ExplainedDocument, ExplainedLabel
from xjax.evaluate.predictions import Predictions
from xjax.evaluate.text import prediction_line
from xjax.metrics.slices import ALL
from xjax.train.attention import Attention
from xjax.train.predictor import Predictor


@dataclasses.dataclass(frozen=True, eq=False)
class Tagged:
  """Documents and their K best labels.

  Attributes:
    predictor: of the run.
    predictions: its lists, K or longer.
    split: the documents.
    space: labels of the predictions.
    k: labels told of each document.
  """

  predictor: Predictor
  predictions: Predictions
  split: Split
  space: LabelSpace
  k: int

  @property
  def ids_NK(self) -> np.ndarray:
    """int32 label indices, PAD beyond a list."""
    return self.predictions.lists[ALL].ids[:, : self.k]

  @property
  def scores_NK(self) -> np.ndarray:
    """float32, as the scorer gives them."""
    return self.predictions.lists[ALL].scores[:, : self.k]

  def attention(self, words: int, n_first: int) -> Attention:
    """What the labels attend to, as Predictor.attention."""
    return self.predictor.attention(
      self.split.documents, self.ids_NK, words, n_first
    )

  def lines(self, attention: Attention | None) -> Iterator[str]:
    """A JSON line per document, with words where there is attention."""
    for row, id_ in enumerate(self.predictions.doc_ids):
      whys = None
      if attention is not None:
        whys = self.predictor.why(self.split.documents[row], attention, row)
      line = prediction_line(
        id_,
        self.ids_NK[row],
        self.scores_NK[row],
        self.space.labels,
        self.predictions.score_kind,
        self.predictor.calibration,
        whys,
      )
      yield line + '\n'

  def explained(self, attention: Attention, row: int) -> ExplainedDocument:
    """One of the first documents, as a page shows it."""
    inputs, given = self.predictor.inputs, self.split.documents[row]
    words = inputs.words(given)
    is_word_T = np.array([word.start < word.end for word in words], bool)
    real = self.ids_NK[row] != PAD
    scores = readable_scores(
      self.scores_NK[row, real],
      self.predictions.score_kind,
      self.predictor.calibration,
    )
    labels = [
      ExplainedLabel(
        id=(label := self.space.labels[at]).id,
        name=label.name,
        score=float(score),
        is_gold=None if given.labels is None else label.id in given.labels,
        weights_T=weights_T[: len(words)] * is_word_T,
      )
      for at, score, weights_T in zip(
        self.ids_NK[row, real], scores, attention.first[row][real], strict=True
      )
    ]
    return ExplainedDocument(inputs.document(given), words, labels)
