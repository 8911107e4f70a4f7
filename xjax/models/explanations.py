"""Holds which words explain the labels of documents."""

from collections.abc import Sequence
import dataclasses
import math
from typing import Protocol

import numpy as np

from xjax.data.documents import Documents
from xjax.data.schema import Document
from xjax.data.text.words import WordPlace
from xjax.judge.prediction_lines import (
  WeightedFeature,
  WeightedWord,
  weighted_words,
)

BEYOND = np.iinfo(np.int32).max  # a place after the end of every document
_BASE = 'base'  # names the part of a score that all pairs have


class WordReader(Protocol):
  """Reads the words of documents as a model does."""

  def document(self, document: str | Document) -> Document:
    """Returns a document with only the zones that the model reads."""

  def words(self, document: str | Document) -> list[WordPlace]:
    """Returns the words of a document that the model reads, in order."""


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureShares:
  """Holds the features of the K labels of each of N documents, and shares."""

  names: Sequence[str]  # of the F features
  values_NKF: np.ndarray  # float32, NaN where there is no value
  weights_NKF: np.ndarray  # float32, what a feature adds to a score
  base: float  # what is added to the score of every label

  def of(self, row: int) -> list[tuple[WeightedFeature, ...]]:
    """Returns the features of each label of a document, largest share first."""
    return [
      self._sorted(values_F.tolist(), weights_F.tolist())
      for values_F, weights_F in zip(
        self.values_NKF[row], self.weights_NKF[row], strict=True
      )
    ]

  def _sorted(
    self, values: Sequence[float], weights: Sequence[float]
  ) -> tuple[WeightedFeature, ...]:
    features = [
      WeightedFeature(name, None if math.isnan(value) else value, weight)
      for name, value, weight in zip(self.names, values, weights, strict=True)
      if weight
    ]
    features.append(WeightedFeature(_BASE, None, self.base))
    # sorted is stable, so features of equal weight stay in the order of names.
    return tuple(sorted(features, key=lambda part: -abs(part.weight)))


@dataclasses.dataclass(frozen=True, eq=False)
class LabelExplanations:
  """Holds the words that explain the K labels of each of N documents."""

  documents: Documents
  reader: WordReader  # reads words as the model does
  # int32, places of the words with the largest weights, in descending order of
  # weight and then ascending; at the end places after the end of the document.
  at_NKW: np.ndarray
  weights_NKW: np.ndarray  # float32, the weights of these words
  words: int  # the most words to show for each label
  # For a few first documents, the weights of all words or tokens, float32
  # [K, T]; 0 for padding.
  first: list[np.ndarray]
  shares: FeatureShares | None = None  # None if scores do not come from pairs

  def why(self, row: int) -> list[tuple[WeightedWord, ...]]:
    """Returns the words that explain the K labels of a document best."""
    zones, words = self.read(row)
    return [
      weighted_words(zones, words, at_W, weights_W)[: self.words]
      for at_W, weights_W in zip(
        self.at_NKW[row], self.weights_NKW[row], strict=True
      )
    ]

  def read(self, row: int) -> tuple[Document, list[WordPlace]]:
    document = self.documents[row]
    return self.reader.document(document), self.reader.words(document)

  def features(self, row: int) -> list[tuple[WeightedFeature, ...]]:
    """Returns the features of each label of a document; [] if none exist."""
    return self.shares.of(row) if self.shares else []
