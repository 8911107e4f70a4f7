"""What runs of every kind of model have in common."""

import abc
from collections.abc import Callable, Mapping
import dataclasses
from typing import ClassVar

from xjax.config.run import Config
from xjax.core.types import ScoreKind
from xjax.data.schema import Corpus
from xjax.run.judging import Metrics
from xjax.run.predictor import Predictor
from xjax.score.config import ModelConfig
from xjax.train.preemption import Preemption
from xjax.train.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class Fitted:
  """What fitting left in the workdir.

  Attributes:
    steps: optimizer steps taken; 0: the model takes none.
    best_step: of the checkpoint to judge.
    score_kind: of the model's scores.
    model: loads it.
  """

  steps: int
  best_step: int
  score_kind: ScoreKind
  model: Callable[[], Predictor]


@dataclasses.dataclass(frozen=True)
class Fit(abc.ABC):
  """A run of one kind of model in its workdir.

  Attributes:
    models: the kinds of model that it fits.
    load: (workdir, config) -> the run's best model, from its files alone.
    config: of the run.
    workdir: where it is kept.
    profile: first and last step that jax.profiler traces; None: none.
  """

  models: ClassVar[tuple[type[ModelConfig], ...]]
  load: ClassVar[Callable[[Workdir, Config], Predictor]]

  config: Config
  workdir: Workdir
  profile: tuple[int, int] | None = None

  @abc.abstractmethod
  def check_start(self) -> None:
    """Refuses what cannot go on, before the corpus is read.

    Raises:
      ConfigError: with the field.
    """

  @abc.abstractmethod
  def check_corpus(self, corpus: Corpus, prior: Mapping[str, Metrics]) -> None:
    """Refuses a corpus that the model cannot be fitted to; writes nothing.

    Args:
      corpus: with a split train.
      prior: metrics of the popularity prior by split.

    Raises:
      ConfigError, DataError: why.
    """

  @abc.abstractmethod
  def fit(self, corpus: Corpus, preemption: Preemption) -> Fitted:
    """Fits the model from where the workdir stands.

    Args:
      corpus: that the workdir was begun with.
      preemption: entered; SIGTERM asks to stop.

    Raises:
      Preempted: asked to stop; calling again resumes.
    """
