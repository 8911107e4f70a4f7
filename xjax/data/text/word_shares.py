"""Divides the features of a text among the words of the text."""

from collections.abc import Callable, Sequence
import dataclasses
from typing import Protocol, Self

import numpy as np
from scipy import sparse

from xjax.data.schema import Document
from xjax.data.text.words import WordPlace


@dataclasses.dataclass(frozen=True, eq=False)
class WordShares:
  """Holds which share of each feature of a text comes from each word.

  Word words[i] has the share shares[i] in the value of the feature
  features[places[i]]. All shares of a feature add up to its value. A word may
  have several shares in the same feature.
  """

  terms: Sequence[str]  # T words, as compared, such as in lower case
  features: np.ndarray  # int [D], the text's features, ascending
  words: np.ndarray
  places: np.ndarray
  shares: np.ndarray

  @classmethod
  def of(
    cls,
    terms: Sequence[str],
    occurrences: tuple[np.ndarray, np.ndarray, np.ndarray],
    values: Callable[[np.ndarray, np.ndarray], np.ndarray],
  ) -> Self:
    """Divides features that stand for one or several words in a row.

    The value of a feature is divided equally among all its occurrences, and the
    share of an occurrence equally among its words.

    Args:
      occurrences: for each occurrence of a feature in the text, three integers:
        the first word, the number of words, and the feature.
      values: takes the features of the text and their numbers of occurrences.
        Returns the value of each of these features.
    """
    start, size, feature = occurrences
    features, at, counts = np.unique(
      feature, return_inverse=True, return_counts=True
    )
    ends = np.cumsum(size)
    words = np.arange(size.sum()) + np.repeat(start - (ends - size), size)
    parts = (values(features, counts) / counts)[at] / size
    return cls(
      terms, features, words, np.repeat(at, size), np.repeat(parts, size)
    )

  def contributions(self, weights_DK: np.ndarray) -> np.ndarray:
    """Returns how much each word adds to K weighted sums of the D features.

    The result is float64 [K, T]; the contributions to a sum add up to the sum.
    """
    contributions_KT = np.zeros((weights_DK.shape[1], len(self.terms)))
    for contributions_T, weights_D in zip(contributions_KT, weights_DK.T):
      parts = self.shares * weights_D[self.places]
      contributions_T[:] = np.bincount(self.words, parts, len(self.terms))
    return contributions_KT


class TextFeatures(Protocol):
  """Computes sparse features of texts, and says from which words they come."""

  n_features: int  # D

  def __call__(self, texts: Sequence[str]) -> sparse.csr_array:
    """Returns the features [N, D] of N texts; columns ascend in each row."""

  def words(self, document: Document) -> list[WordPlace]:
    """Returns the place of each word of a document, in reading order."""

  def word_shares(self, document: Document) -> WordShares:
    """Divides a document's features among its words."""
