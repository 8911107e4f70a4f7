"""What runs of every kind of model have in common."""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Protocol

from xjax.core.types import ScoreKind
from xjax.data.schema import Corpus
from xjax.run.judging import Metrics
from xjax.run.predictor import Predictor
from xjax.train.preemption import Preemption


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


class Fit(Protocol):
  """A run of one kind of model in its workdir."""

  def check_start(self) -> None:
    """Refuses what cannot go on, before the corpus is read.

    Raises:
      ConfigError: with the field.
    """
    ...

  def check_corpus(self, corpus: Corpus, prior: Mapping[str, Metrics]) -> None:
    """Refuses a corpus that the model cannot be fitted to; writes nothing.

    Args:
      corpus: with a split train.
      prior: metrics of the popularity prior by split.

    Raises:
      ConfigError, DataError: why.
    """
    ...

  def fit(self, corpus: Corpus, preemption: Preemption) -> Fitted:
    """Fits the model from where the workdir stands.

    Args:
      corpus: that the workdir was begun with.
      preemption: entered; SIGTERM asks to stop.

    Raises:
      Preempted: asked to stop; calling again resumes.
    """
    ...
