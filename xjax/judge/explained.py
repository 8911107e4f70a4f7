"""Predicted labels with the words that they attend to."""

from collections.abc import Sequence
import dataclasses
import pathlib
from typing import NamedTuple

import numpy as np

from xjax.data.schema import Document
from xjax.data.text.word_places import WordPlace


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
