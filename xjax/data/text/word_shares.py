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

  Attributes:
    terms: the T words of the text, in the form in which they are compared, such
      as lower case.
    features: int [D], the D features that the text has, ascending.
    shares: float64 [T, D], the share of each word in the value of each feature.
      The sum over the words is the value of the feature.
  """

  terms: Sequence[str]
  features: np.ndarray
  shares: sparse.csr_array

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
      terms: attribute of WordShares.
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
    cells = np.repeat(parts, size), (words, np.repeat(at, size))
    shape = len(terms), len(features)
    return cls(terms, features, sparse.csr_array(cells, shape=shape))


class TextFeatures(Protocol):
  """Computes sparse features of texts, and says from which words they come."""

  def __call__(self, texts: Sequence[str]) -> sparse.csr_array:
    """Returns the features [N, D] of N texts; columns ascend in each row."""

  def words(self, document: Document) -> list[WordPlace]:
    """Returns the place of each word of a document, in reading order."""

  def word_shares(self, document: Document) -> WordShares:
    """Divides the features of a document among the words of the document."""
