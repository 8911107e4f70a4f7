"""From a config to a model and its judged predictions, and loading them.

All that the kinds of models have in common is done here.
"""

import dataclasses
import os
import pathlib

from xjax.config.check import check_config
from xjax.config.json import load_config
from xjax.config.run import Config
from xjax.core.errors import ConfigError, DataError
from xjax.data.load import load_corpus
from xjax.data.schema import Corpus
from xjax.judge.calibration import Calibration
from xjax.run.contract import Fit
from xjax.run.exact_match import ExactMatchFit
from xjax.run.judging import (
  Metrics,
  judge_splits,
  prior_metrics,
  read_splits,
  saved_calibration,
)
from xjax.run.neural import NeuralFit
from xjax.run.predictor import Predictor
from xjax.run.sparse import LinearFit, TreeFit
from xjax.train.preemption import Preemption
from xjax.train.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class FitResult:
  """What a finished run has.

  Attributes:
    workdir: its folder.
    steps: optimizer steps taken; 0: the model takes none.
    best_step: of the checkpoint judged.
    metrics: by split, of that checkpoint.
    prior: by split, of the popularity prior.
    paths: by split, the folder of predictions and metrics.
    corpus: what it was trained and judged on.
    calibration: of that checkpoint's scores, if there is one.
  """

  workdir: pathlib.Path
  steps: int
  best_step: int
  metrics: dict[str, Metrics]
  prior: dict[str, Metrics]
  paths: dict[str, pathlib.Path]
  corpus: Corpus
  calibration: Calibration | None


def fit(
  config: Config,
  workdir: str | os.PathLike,
  profile: tuple[int, int] | None = None,
) -> FitResult:
  """Trains and judges a model, or goes on with the run in a workdir.

  A finished run is not trained again; where the learning rate stays constant,
  raising train.steps continues it.
  Several processes call it alike.

  Args:
    config: of the run.
    workdir: its folder; made where absent.
    profile: first and last step (from 1) that jax.profiler traces, in the
      workdir's profile/; None: none.

  Raises:
    ConfigError: a field is wrong, or the workdir has another config.
    DataError: the corpus or the workdir is damaged or incomplete.
    UserError: training met a loss that is not finite.
    Preempted: SIGTERM came; calling again resumes.
  """
  check_config(config)
  folder = Workdir.at(workdir)
  _check_profile(profile, config.train.steps)
  run = _kind_of_run(config)(config, folder, profile)
  with Preemption() as preemption:
    # A config that is refused, here or further on, leaves nothing behind.
    folder.compare(config)
    run.check_start()
    corpus = load_corpus(config.data, config.seed)
    if 'train' not in corpus.splits:
      raise DataError(
        'this corpus has no train split; it has: ' + ', '.join(corpus.splits)
      )
    prior = prior_metrics(corpus, config.eval)
    run.check_corpus(corpus, prior)
    folder.record_corpus(corpus)
    folder.open(config)
    fitted = run.fit(corpus, preemption)
    best = fitted.best_step
    metrics = read_splits(corpus, folder, best)
    if metrics is None:
      model = fitted.model()
      best, metrics = model.step, judge_splits(model, corpus, folder)
    return FitResult(
      workdir=folder.path,
      steps=fitted.steps,
      best_step=best,
      metrics=metrics,
      prior=prior,
      paths={name: folder.evaluation(name) for name in metrics},
      corpus=corpus,
      calibration=saved_calibration(
        folder, config.eval.calibration, best, fitted.score_kind
      ),
    )


def load(workdir: str | os.PathLike) -> Predictor:
  """The best model of a run, from its workdir alone.

  Raises:
    DataError: there is no run, or a file of it is missing or damaged.
  """
  folder = Workdir.at(workdir)
  if not folder.config.exists():
    raise DataError(f'{folder.path}: no run of xjax here (no config.json)')
  config = load_config(folder.config)
  return _kind_of_run(config).load(folder, config)


def _kind_of_run(config: Config) -> type[Fit]:
  for kind in (NeuralFit, LinearFit, TreeFit, ExactMatchFit):
    if isinstance(config.model, kind.models):
      return kind
  raise ConfigError(f'no model is made from {config.model!r}')


def _check_profile(profile: tuple[int, int] | None, steps: int) -> None:
  if profile and not steps:
    raise ConfigError('only neural models take steps that can be profiled')
  if profile and not 1 <= profile[0] <= profile[1] <= steps:
    raise ConfigError(
      f'cannot profile steps {profile[0]} to {profile[1]}: they must ascend '
      f'from at least 1 to at most config.train.steps={steps}'
    )
