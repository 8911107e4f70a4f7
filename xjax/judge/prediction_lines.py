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

  The weight is the label's attention; in a linear model, it is what the word
  adds to the score before calibration.
  """

  word: str  # as it is written in the text
  weight: float
  zone: str  # 'text' if a document has no zones
  at: tuple[int, int]  # start and exclusive end in the zone, in code points


class WeightedFeature(NamedTuple):
  """Holds a feature of a document and a label, and its share in the score."""

  # Such as tree:score of a proposer `tree`; `base` is the mean score of all
  # pairs.
  name: str
  # None, for example, if the proposer does not list the label.
  value: float | None
  weight: float  # what it adds to the score before calibration


def proposer_shares(features: Sequence[WeightedFeature]) -> dict[str, float]:
  """Returns how much each proposer adds to a score, largest size first.

  Features without a proposer keep their names.
  """
  shares: dict[str, float] = {}
  for name, _, weight in features:
    proposer = name.partition(':')[0]
    shares[proposer] = shares.get(proposer, 0.0) + weight
  return dict(sorted(shares.items(), key=lambda item: -abs(item[1])))


@dataclasses.dataclass(frozen=True, eq=False)
class ExplainedLabel:
  """Holds a predicted label, and the weight of every word for the label."""

  id: str
  name: str
  score: float  # as users see it
  is_gold: bool | None  # None if unknown
  why: Sequence[WeightedWord]  # words that explain it, largest weight first
  # float32, of each word that the model read; 0 for special tokens.
  weights_T: np.ndarray
  # Of which the score is a sum, largest share first.
  features: Sequence[WeightedFeature] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class ExplainedDocument:
  """Holds a document as a model read it, with its predicted labels."""

  document: Document  # with only the zones that were read
  words: Sequence[WordPlace]  # the T words that the model read, in order
  labels: Sequence[ExplainedLabel]  # best first


@dataclasses.dataclass(frozen=True, eq=False)
class Explanations:
  """Holds the first, explained documents of a file of predictions, X.jsonl."""

  path: pathlib.Path
  documents: Sequence[ExplainedDocument]
  n_documents: int  # in the file
  words: int  # largest number for a label
  # Whether weights are attention, else contributions to scores.
  attends: bool = True


def weighted_words(
  document: Document,
  words: Sequence[WordPlace],
  at_W: np.ndarray,
  weights_W: np.ndarray,
) -> tuple[WeightedWord, ...]:
  """Returns the words that explain a label, with their weights.

  Special tokens, words without characters, are left out, and so are indices
  `at_W` that are not below len(words).
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
  label comes first. With `whys`, each label also has `"why": [{"word",
  "weight", "zone", "at"}, ...]`. With `features`, each label has `"shares":
  {proposer: share}`, whose sum is the score before calibration, and the first
  n_features of `"features": [{"name", "value", "weight"}, ...]`. The scores are
  those that users see (calibration.readable_scores).
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
