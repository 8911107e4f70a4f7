"""Defines what ranks the listed labels of a stack, and the simplest ranker."""

import abc
from collections.abc import Callable, Iterator, Sequence
import dataclasses
import pathlib
from typing import Any, ClassVar, Protocol

from jaxtyping import Bool, Float32, Float64, Int
import numpy as np

from xjax.core.atomic import write_json
from xjax.core.config_part import ConfigPart
from xjax.core.types import ScoreKind
from xjax.models.stack.stack_pairs import LISTED

_LOWEST = -10.0  # the score of labels without a classifier


@dataclasses.dataclass(frozen=True, eq=False)
class RankerPairs:
  """Holds the pairs that a ranker learns from."""

  features_XF: Float32[np.ndarray, 'X F']
  gold_X: Bool[np.ndarray, ' X']  # whether the label is gold for the document
  names: Sequence[str]  # of the F features
  fold_X: Int[np.ndarray, ' X']  # the fold of the document


class TrainedRanker(Protocol):
  """Scores pairs by their features."""

  def scores(
    self, features_XF: Float32[np.ndarray, 'X F']
  ) -> Float32[np.ndarray, ' X']: ...

  def contributions(
    self, features_XF: Float32[np.ndarray, 'X F']
  ) -> Float64[np.ndarray, 'X F_and_1']:
    """Returns what each feature adds to the score, and last what all have."""


@dataclasses.dataclass
class Ranker(ConfigPart, abstract=True):
  """Defines how the pairs of a stack are scored."""

  score_kind: ClassVar[ScoreKind] = ScoreKind.LOGIT

  def check_machine(self) -> None:
    """Raises a UserError if the ranker cannot be trained on this machine."""

  @abc.abstractmethod
  def fit(
    self,
    pairs: Callable[[], RankerPairs],
    seed: int,
    workers: int,
    between: Callable[[], Any],  # called now and then; may raise an error
  ) -> Callable[[pathlib.Path], None]:
    """Trains a ranker, perhaps on pairs, and returns what writes its file."""

  @abc.abstractmethod
  def load(self, path: pathlib.Path, names: Sequence[str]) -> TrainedRanker:
    """Reads the file that `fit` has written, for features with these names."""


@dataclasses.dataclass
class ListedRanker(Ranker):
  """Ranks labels by the scores of the linear classifiers of listed labels.

  Labels without such a classifier come last. Nothing else is learned.
  """

  score_kind = ScoreKind.MARGIN

  def faults(self, config: Any, path: str) -> Iterator[str]:
    model = config.model
    if not model.linear.reads or not model.features.scores:
      yield f'{path}: ListedRanker needs linear.reads and features.scores'

  def fit(
    self,
    pairs: Callable[[], RankerPairs],
    seed: int,
    workers: int,
    between: Callable[[], Any],
  ) -> Callable[[pathlib.Path], None]:
    del pairs, seed, workers, between
    return lambda path: write_json(path, LISTED)  # nothing to load

  def load(self, path: pathlib.Path, names: Sequence[str]) -> 'ListedScores':
    return ListedScores(names.index(f'{LISTED}:score'))


@dataclasses.dataclass(frozen=True)
class ListedScores:
  """Scores pairs by one of their features."""

  column: int

  def scores(
    self, features_XF: Float32[np.ndarray, 'X F']
  ) -> Float32[np.ndarray, ' X']:
    return np.maximum(features_XF[:, self.column], _LOWEST)

  def contributions(
    self, features_XF: Float32[np.ndarray, 'X F']
  ) -> Float64[np.ndarray, 'X F_and_1']:
    shares = np.zeros((len(features_XF), features_XF.shape[1] + 1))
    shares[:, self.column] = self.scores(features_XF)
    return shares
