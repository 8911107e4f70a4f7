"""Predictions as text: a JSON line per document."""

from collections.abc import Sequence
import dataclasses
import json
import pathlib
from typing import NamedTuple

import numpy as np

from xjax.core.types import PAD, ScoreKind
from xjax.data.schema import Document, Label
from xjax.data.text.words import WordPlace
from xjax.judge.calibration import Calibration, readable_scores


class AttendedWord(NamedTuple):
  """A word of a document, and how much a label attends to it.

  Attributes:
    word: as it stands in the text.
    weight: of 1, which all words that the model reads share.
    zone: whose text has it; 'text' where a document has no zones.
    at: the characters [start, end) of that text (code points).
  """

  word: str
  weight: float
  zone: str
  at: tuple[int, int]


@dataclasses.dataclass(frozen=True, eq=False)
class ExplainedLabel:
  """A label predicted for a document, and all that it attends to.

  Attributes:
    id, name: of the label.
    score: as it is shown to readers.
    is_gold: whether the document has it; None: not known.
    weights_T: float32, of each word that the model read; 0 of an encoder's
      special tokens.
  """

  id: str
  name: str
  score: float
  is_gold: bool | None
  weights_T: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class ExplainedDocument:
  """A document as a model read it, with its labels.

  Attributes:
    document: its id and text, with no more than the zones read.
    words: the T words that the model read, in order.
    labels: best first.
  """

  document: Document
  words: Sequence[WordPlace]
  labels: Sequence[ExplainedLabel]


@dataclasses.dataclass(frozen=True, eq=False)
class Explanations:
  """What is shown beside a file of predictions.

  Attributes:
    path: the file, X.jsonl.
    documents: the first of its documents.
    n_documents: how many it has.
    words: the words of each label that it tells at most.
  """

  path: pathlib.Path
  documents: Sequence[ExplainedDocument]
  n_documents: int
  words: int


def attended_words(
  document: Document,
  words: Sequence[WordPlace],
  at_W: np.ndarray,
  weights_W: np.ndarray,
) -> tuple[AttendedWord, ...]:
  """Words by their places.

  Args:
    document: whose words they are.
    words: all that the model read; those without characters, an encoder's
      special tokens, are left out.
    at_W: integers into words; those beyond them are left out.
    weights_W: of each.
  """
  return tuple(
    AttendedWord(
      document.zones[words[at].zone][words[at].start : words[at].end],
      float(weight),
      words[at].zone,
      (words[at].start, words[at].end),
    )
    for at, weight in zip(at_W.tolist(), weights_W, strict=True)
    if at < len(words) and words[at].start < words[at].end
  )


_DIGITS = 6  # of weights


def prediction_line(
  doc_id: str,
  ids_K: np.ndarray,
  scores_K: np.ndarray,
  labels: Sequence[Label],
  kind: ScoreKind,
  calibration: Calibration | None = None,
  whys: Sequence[Sequence[AttendedWord]] | None = None,
) -> str:
  """`{"id", "labels": [{"id", "name", "score"}, ...]}`, best label first.

  With whys, each label has `"why": [{"word", "weight", "zone", "at"}, ...]`.

  Args:
    doc_id: the document's id.
    ids_K: int32 label indices, PAD beyond the list.
    scores_K: float32 scores; printed as readable_scores.
    labels: descriptors by label index.
    kind: what the scores are.
    calibration: of these scores, if there is one.
    whys: for each of the K labels, the words that it attends to.
  """
  keep = np.asarray(ids_K) != PAD
  ids = np.asarray(ids_K)[keep].tolist()
  scores = readable_scores(np.asarray(scores_K)[keep], kind, calibration)
  row = [
    {'id': labels[i].id, 'name': labels[i].name, 'score': score}
    for i, score in zip(ids, scores.tolist(), strict=True)
  ]
  for label, why in zip(row, whys or ()):
    label['why'] = [
      {**word._asdict(), 'weight': round(word.weight, _DIGITS)} for word in why
    ]
  return json.dumps({'id': doc_id, 'labels': row}, ensure_ascii=False)
