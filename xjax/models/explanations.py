"""Computes which words explain the labels of a document."""

from collections.abc import Callable, Sequence
import dataclasses
import math
from typing import Protocol

import numpy as np

from xjax.core.progress import progress
from xjax.data.documents import Documents
from xjax.data.schema import Document
from xjax.data.text.words import WordPlace, WordShares
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


class WordFeaturiser(WordReader, Protocol):
  """Divides the features of documents among their words."""

  def word_shares(self, document: str | Document) -> WordShares:
    """Returns which share of each feature comes from each word."""


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
  """Holds the words that explain the K labels of each of N documents.

  The weight of a word is attention (attention_of), or the word's contribution
  to the score of the label (contributions_of).
  """

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


def contributions_of(
  # Of features [D] in labels [K], float64 [D, K]; PAD has weights 0.
  weights_of: Callable[[np.ndarray, np.ndarray], np.ndarray],
  featuriser: WordFeaturiser,  # divides the features of documents among words
  documents: Documents,
  ids_NK: np.ndarray,  # int32, PAD after the last label
  words: int,  # to list for each label, W at most
  n_first: int = 0,  # first documents of which all contributions are kept
) -> LabelExplanations:
  """Computes how much each word of a document adds to the scores of labels.

  The contribution of a word to a label is the sum over all features of the
  word's share of the feature's value, times the weight of the feature in the
  label. So all contributions and the bias of a one-vs-all classifier add up to
  the label's score before calibration. For label trees, see
  TreeSearch.feature_weights.

  A word that occurs several times is listed once, at its first place, with the
  sum of its contributions. Only words with a sum above 0 are listed.
  """
  lists, first = [], []
  shares = map(featuriser.word_shares, documents)
  with progress(shares, 'explaining', total=len(ids_NK)) as shown:
    for ids_K, document in zip(ids_NK, shown, strict=True):
      # Only the features of this document are looked up, since a matrix of all
      # features and labels would not fit into memory.
      weights_DK = weights_of(document.features, ids_K)
      contributions_KT = document.contributions(weights_DK)
      lists.append(_largest(contributions_KT, document.terms, words))
      if len(first) < n_first:
        first.append(contributions_KT.astype(np.float32))
  # Documents list different numbers of words, so the arrays are made last.
  widest = max((len(at_W) for row in lists for at_W, _ in row), default=0)
  at_NKW = np.full((*ids_NK.shape, widest), BEYOND, np.int32)
  weights_NKW = np.zeros(at_NKW.shape, np.float32)
  for at_KW, weights_KW, row in zip(at_NKW, weights_NKW, lists, strict=True):
    for number, (at_W, weights_W) in enumerate(row):
      at_KW[number, : len(at_W)] = at_W
      weights_KW[number, : len(at_W)] = weights_W
  return LabelExplanations(
    documents, featuriser, at_NKW, weights_NKW, words, first
  )


def _largest(
  contributions_KT: np.ndarray, terms: Sequence[str], words: int
) -> list[tuple[np.ndarray, np.ndarray]]:
  """Returns first places and sums of at most `words` terms for each label."""
  # The first place of each term. reversed() lets earlier places win.
  place_of = dict(zip(reversed(terms), range(len(terms) - 1, -1, -1)))
  first_T = np.fromiter(map(place_of.__getitem__, terms), np.int64, len(terms))
  lists = []
  for contributions_T in contributions_KT:
    sums_T = np.bincount(first_T, contributions_T, len(terms))
    # The other places of a term have sum 0.
    at = np.flatnonzero(sums_T > 0)
    # The sort is stable, so that of equal words the earlier one comes first.
    at = at[np.argsort(-sums_T[at], kind='stable')[:words]]
    lists.append((at, sums_T[at]))
  return lists
