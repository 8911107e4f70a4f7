"""Documents with the labels that a run predicts for them."""

from collections.abc import Iterator
import dataclasses

import numpy as np

from xjax.core.types import PAD
from xjax.data.schema import LabelSpace, Split
from xjax.judge.calibration import readable_scores
from xjax.judge.explained import ExplainedDocument, ExplainedLabel
from xjax.judge.lists import Lists
from xjax.judge.prediction_lines import prediction_line
from xjax.run.attention import Attention
from xjax.run.predictor import Predictor


@dataclasses.dataclass(frozen=True, eq=False)
class Tagged:
  """Documents and the labels told of them.

  Attributes:
    predictor: of the run.
    lists: the labels, with scores as the predictor gives them.
    split: the documents.
    space: labels of the lists.
  """

  predictor: Predictor
  lists: Lists
  split: Split
  space: LabelSpace

  def attention(self, words: int, n_first: int) -> Attention:
    """What the labels attend to, as Predictor.attention."""
    return self.predictor.attention(
      self.split.documents, self.lists.ids, words, n_first
    )

  def lines(self, attention: Attention | None) -> Iterator[str]:
    """A JSON line per document, with words where there is attention."""
    for row, id_ in enumerate(self.split.ids):
      whys = None
      if attention is not None:
        whys = self.predictor.why(self.split.documents[row], attention, row)
      line = prediction_line(
        id_,
        self.lists.ids[row],
        self.lists.scores[row],
        self.space.labels,
        self.predictor.score_kind,
        self.predictor.calibration,
        whys,
      )
      yield line + '\n'

  def explained(self, attention: Attention, row: int) -> ExplainedDocument:
    """One of the first documents, as a page shows it."""
    inputs, given = self.predictor.inputs, self.split.documents[row]
    words = inputs.words(given)
    is_word_T = np.array([word.start < word.end for word in words], bool)
    ids_K = self.lists.ids[row]
    real = ids_K != PAD
    scores = readable_scores(
      self.lists.scores[row, real],
      self.predictor.score_kind,
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
        ids_K[real], scores, attention.first[row][real], strict=True
      )
    ]
    return ExplainedDocument(inputs.document(given), words, labels)
