"""Writes the predictions of each document as a JSON line."""

from collections.abc import Sequence
import dataclasses
import json
import pathlib
from typing import NamedTuple

import numpy as np

from xjax.core.types import PAD
from xjax.data.schema import Document, Label
from xjax.data.text.words import WordPlace


class WeightedWord(NamedTuple):
  """Holds a word of a document, and the weight of the word for a label.

  Attributes:
    weight: the label's attention to the word, where the sum of the weights of
      all words that the model reads is 1. If the model is linear, the
      contribution of the word to the label's score before calibration.
    at: start and end of the word in the zone's text, counted in code points;
      the end is exclusive.
  """

  word: str  # as it is written in the text
  weight: float
  zone: str  # 'text' if a document has no zones
  at: tuple[int, int]


class WeightedFeature(NamedTuple):
  """Holds a feature of a document and a label, and its share in the score.

  Attributes:
    name: such as tree:score, where tree is a proposer; or `base` for the mean
      score of all pairs of document and label.
    value: None if it does not exist, as the score of a label that the proposer
      does not list.
    weight: how much the feature adds to the label's score before calibration.
  """

  name: str
  value: float | None
  weight: float


def proposer_shares(features: Sequence[WeightedFeature]) -> dict[str, float]:
  """Returns how much each proposer adds to a score, largest size first.

  The weights of features of one proposer are added; other features keep their
  names before the colon.
  """
  shares: dict[str, float] = {}
  for name, _, weight in features:
    proposer = name.partition(':')[0]
    shares[proposer] = shares.get(proposer, 0.0) + weight
  return dict(sorted(shares.items(), key=lambda item: -abs(item[1])))


@dataclasses.dataclass(frozen=True, eq=False)
class ExplainedLabel:
  """Holds a predicted label, and the weight of every word for the label.

  Attributes:
    score: the score that users see; see calibration.readable_scores.
    is_gold: None if it is not known.
    weights_T: float32, the weight of each word that the model read; 0 for an
      encoder's special tokens. Contributions of words may be negative.
    features: all features that the score is a sum of, largest share first; ()
      if the score does not come from features of pairs.
  """

  id: str
  name: str
  score: float
  is_gold: bool | None
  why: Sequence[WeightedWord]  # words that explain it, largest weight first
  weights_T: np.ndarray
  features: Sequence[WeightedFeature] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class ExplainedDocument:
  """Holds a document as a model read it, with its predicted labels."""

  document: Document  # with only the zones that were read
  words: Sequence[WordPlace]  # the T words that the model read, in order
  labels: Sequence[ExplainedLabel]  # best first


@dataclasses.dataclass(frozen=True, eq=False)
class Explanations:
  """Holds the explained documents of a file of predictions, X.jsonl.

  Attributes:
    documents: the first documents of the file, with explanations.
    words: the largest number of words that the file has for a label.
    attends: whether the weights of words are attention; otherwise, they are
      contributions of words to scores.
  """

  path: pathlib.Path
  documents: Sequence[ExplainedDocument]
  n_documents: int  # in the file
  words: int
  attends: bool = True


def weighted_words(
  document: Document,
  words: Sequence[WordPlace],
  at_W: np.ndarray,
  weights_W: np.ndarray,
) -> tuple[WeightedWord, ...]:
  """Returns the words that explain a label, with their weights.

  An encoder's special tokens, which are words without characters, are left out.
  So are indices `at_W` into `words` that are at or above len(words).
  """
  return tuple(
    WeightedWord(
      document.zones[words[at].zone][words[at].start : words[at].end],
      float(weight),
      words[at].zone,
      (words[at].start, words[at].end),
    )
    for at, weight in zip(at_W.tolist(), weights_W, strict=True)
    if at < len(words) and words[at].start < words[at].end
  )


_DIGITS = 6  # decimal places of weights of words


def prediction_line(
  doc_id: str,
  ids_K: np.ndarray,
  scores_K: np.ndarray,
  labels: Sequence[Label],
  whys: Sequence[Sequence[WeightedWord]] | None = None,
  features: Sequence[Sequence[WeightedFeature]] = (),
  n_features: int = 0,
) -> str:
  """Returns the JSON line of a document's predictions.

  The line is `{"id", "labels": [{"id", "name", "score"}, ...]}`, where the best
  label comes first. If `whys` is given, each label also has `"why": [{"word",
  "weight", "zone", "at"}, ...]`. If `features` is given, each label has
  `"shares": {proposer: share}`, whose sum is the score before calibration, and
  `"features": [{"name", "value", "weight"}, ...]`.

  Args:
    ids_K: int32 label indices, padded with PAD.
    scores_K: the scores that users see; see calibration.readable_scores.
    labels: descriptors by label index.
    whys: for each of the K labels, the words that explain the label.
    features: for each of the K labels, all its features; see ExplainedLabel.
    n_features: how many features are written for a label.
  """
  keep = np.asarray(ids_K) != PAD
  ids = np.asarray(ids_K)[keep].tolist()
  scores = np.asarray(scores_K, np.float64)[keep]
  row = [
    {'id': labels[i].id, 'name': labels[i].name, 'score': score}
    for i, score in zip(ids, scores.tolist(), strict=True)
  ]
  for label, why in zip(row, whys or ()):
    label['why'] = [
      {**word._asdict(), 'weight': round(word.weight, _DIGITS)} for word in why
    ]
  for label, parts in zip(row, features):
    shares = proposer_shares(parts)
    label['shares'] = {k: round(x, _DIGITS) for k, x in shares.items()}
    label['features'] = [
      {**part._asdict(), 'weight': round(part.weight, _DIGITS)}
      for part in parts[:n_features]
    ]
  return json.dumps({'id': doc_id, 'labels': row}, ensure_ascii=False)
