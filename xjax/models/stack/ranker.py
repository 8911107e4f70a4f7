"""Defines the contract of rankers, which judge pairs of document and label."""

import abc
from collections.abc import Callable, Sequence
import dataclasses
import pathlib
from typing import Any

from jaxtyping import Bool, Float32, Float64, Int
import numpy as np

from xjax.core.config_part import ConfigPart


@dataclasses.dataclass(frozen=True, eq=False)
class RankerData:
  """Holds the pairs that a ranker learns from.

  The pairs of a document are next to each other; see pair_features.
  """

  features_XF: Float32[np.ndarray, 'X F']
  gold_X: Bool[np.ndarray, ' X']  # whether the label is gold for the document
  lengths_N: Int[np.ndarray, ' N']  # number of pairs of each document
  names: Sequence[str]  # of the F features


class PairRanker(abc.ABC):
  """Scores pairs by their features."""

  @abc.abstractmethod
  def scores(
    self, features_XF: Float32[np.ndarray, 'X F']
  ) -> Float32[np.ndarray, ' X']:
    """Returns the logits of pairs."""

  @abc.abstractmethod
  def contributions(
    self, features_XF: Float32[np.ndarray, 'X F']
  ) -> Float64[np.ndarray, 'X F_and_1']:
    """Returns how much each feature adds to the logit of a pair.

    The last column is the same for all pairs: the mean logit. All columns add
    up to the logit.
    """

  @abc.abstractmethod
  def save(self, path: pathlib.Path) -> None:
    """Writes the file of the ranker; an error leaves no partial file."""


@dataclasses.dataclass
class RankerConfig(ConfigPart, abstract=True):
  """Chooses the ranker of a stack."""

  @abc.abstractmethod
  def fit(
    self, data: RankerData, seed: int, workers: int, between: Callable[[], Any]
  ) -> PairRanker:
    """Trains a ranker, which must not depend on the number of threads.

    `between` is called from time to time. An error that it raises stops the
    training.
    """

  @abc.abstractmethod
  def load(self, path: pathlib.Path, names: Sequence[str]) -> PairRanker:
    """Reads the file that PairRanker.save wrote.

    A file that is missing, damaged or has other features raises a DataError.
    """
