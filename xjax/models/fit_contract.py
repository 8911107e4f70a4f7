"""Defines the contract that the runs of every kind of model meet."""

import abc
from collections.abc import Callable, Mapping
import dataclasses
import typing
from typing import ClassVar

from xjax.core.distributed import process_count
from xjax.core.errors import ConfigError
from xjax.core.types import ScoreKind
from xjax.models.config import Config
from xjax.models.model_configs import ModelConfig
from xjax.models.workdir import Workdir

if typing.TYPE_CHECKING:
  from xjax.data.schema import Corpus
  from xjax.judge.judge import Metrics
  from xjax.models.predictor import Predictor
  from xjax.train.preemption import Preemption


def check_one_process(config: Config) -> None:
  """Checks that the only process trains or uses a model.

  Args:
    config: config of a run whose model only one process can use.

  Raises:
    ConfigError: there are several processes.
  """
  if process_count() > 1:
    raise ConfigError(
      f'config.model={type(config.model).__name__}(...): can only be used by '
      'one process; start the run on one host'
    )


@dataclasses.dataclass(frozen=True)
class Fitted:
  """Holds the result of a fit; the files of the model are in the workdir.

  Attributes:
    steps: int, number of optimizer steps; 0 for a model without such steps.
    best_step: int, step of the checkpoint to judge.
    score_kind: kind of the model's scores.
    model_bytes: int, size of the parameters or of the files of the model.
    model: function that loads the model.
  """

  steps: int
  best_step: int
  score_kind: ScoreKind
  model_bytes: int
  model: 'Callable[[], Predictor]'


@dataclasses.dataclass(frozen=True)
class Fit(abc.ABC):
  """Fits one kind of model in the workdir of a run.

  Attributes:
    models: config classes of the models that this class fits.
    label_free: paths in the workdir of files that do not depend on labels. A
      stage for another part of the same documents may start with copies of
      them.
    load: function (workdir, config) -> the run's best model. It reads only the
      files of the workdir. Neural models also take the step of a checkpoint.
    config: config of the run.
    workdir: folder of the run.
    profile: first and last step that jax.profiler traces; None for no step.
  """

  models: ClassVar[tuple[type[ModelConfig], ...]]
  label_free: ClassVar[tuple[str, ...]] = ()
  load: 'ClassVar[Callable[..., Predictor]]'

  config: Config
  workdir: Workdir
  profile: tuple[int, int] | None = None

  def shares_files(self, other: 'Fit') -> bool:
    """Returns whether another fit has equal label_free files.

    Args:
      other: the fit of a run on the same or more documents.
    """
    return self.config.data == other.config.data

  @abc.abstractmethod
  def check_start(self) -> None:
    """Checks, before the corpus is read, that the run can start or resume.

    Raises:
      ConfigError: the run cannot start; the message names the field.
    """

  @abc.abstractmethod
  def check_corpus(
    self, corpus: 'Corpus', prior: 'Mapping[str, Metrics]'
  ) -> None:
    """Checks that the model can be fitted to a corpus; writes nothing.

    Args:
      corpus: corpus with a split train.
      prior: metrics of the popularity prior by split.

    Raises:
      ConfigError, DataError: the model cannot be fitted; the message says why.
    """

  @abc.abstractmethod
  def fit(self, corpus: 'Corpus', preemption: 'Preemption') -> Fitted:
    """Fits the model, or continues an earlier fit from the workdir's files.

    Args:
      corpus: the corpus that the run was started with.
      preemption: notices SIGTERM and Ctrl-C; its context has been entered.

    Raises:
      Preempted: SIGTERM or Ctrl-C came; another call continues the fit.
    """
