"""Fits and judges the model of a config."""

import dataclasses
import os
import pathlib

from xjax.core.allocation import enough_memory
from xjax.core.errors import ConfigError
from xjax.core.mesh import make_mesh
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.load import load_corpus
from xjax.data.schema import Corpus
from xjax.judge.calibration import Calibration
from xjax.models.config_check import check_config
from xjax.models.contract import Config, Run, check_resumable, saved_calibration
from xjax.run.auto import resolve
from xjax.run.judging import Metrics, judge_splits, prior_metrics, read_splits
from xjax.run.open_run import OpenRun
from xjax.train.preemption import Preemption
from xjax.train.run_record import RunClock
from xjax.train.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class FitResult:
  workdir: pathlib.Path
  steps: int  # of the optimizer; 0 for a model without such steps
  best_step: int  # of the checkpoint that was judged
  metrics: dict[str, Metrics]  # of the judged checkpoint, by split
  prior: dict[str, Metrics]  # of the popularity prior, by split
  paths: dict[str, pathlib.Path]  # folders with the predictions and metrics
  corpus: Corpus
  calibration: Calibration | None  # None for uncalibrated scores


@enough_memory(
  'choose a smaller train.batch_size, eval.batch_size or model, or see --plan'
)
def fit(
  config: Config,
  workdir: str | os.PathLike,
  profile: tuple[int, int] | None = None,
) -> FitResult:
  """Trains and judges a model, or resumes the run of a workdir.

  A finished run is not trained again. But if the learning rate of the run is
  constant, and train.steps is increased, training continues. All processes of a
  run call this function with the same arguments.

  `profile` has the first and last step that jax.profiler traces to profile/ in
  the workdir; the first step of a run is step 1. None traces no step.

  Raises:
    ConfigError: a field is wrong, the workdir has another config, or another
      process uses the workdir.
    DataError: the corpus or the workdir is damaged or incomplete.
    UserError: a loss in training is not finite, or the memory is full.
    Preempted: SIGTERM or Ctrl-C came; another call resumes the run.
  """
  folder = Workdir.at(workdir)
  with Preemption() as preemption, folder.locked():
    # All checks come before the first write, so that a wrong config leaves no
    # files.
    run, corpus = read_for_run(Run(config, folder, preemption, profile))
    config, model = run.config, run.config.model
    prior = check_corpus(run, corpus)
    run.begin(corpus)
    with RunClock(folder) as clock:
      model.fit(corpus, run)
    steps, best = model.steps(run)
    metrics, kind = read_splits(corpus, folder, best), None
    is_new = clock.is_new(steps)
    if is_new:
      # A run that is killed from here on gets its record at the next start.
      clock.record.save(folder)
    if metrics is None:
      scorer = model.open(run)
      best, kind = scorer.step, scorer.score_kind
      opened = OpenRun(run, corpus.label_space, scorer)
      metrics = judge_splits(opened, corpus)
    ended = clock.before
    if is_new:
      ended = clock.record.ended(steps, model.size(run))
    ended.save(folder)
    method = config.eval.calibration
    return FitResult(
      workdir=folder.path,
      steps=steps,
      best_step=best,
      metrics=metrics,
      prior=prior,
      paths={name: folder.evaluation(name) for name in metrics},
      corpus=corpus,
      calibration=saved_calibration(folder, method, best, kind)[0],
    )


def read_for_run(run: Run, log: bool = True) -> tuple[Run, Corpus]:
  """Reads the corpus of a run, and completes its config; writes nothing.

  An error says that the run, new or resumed, cannot have this config or corpus.
  """
  config, folder = run.config, run.folder
  check_config(config)
  config = dataclasses.replace(config, data=config.data.with_guesses())
  config, corpus = resolve(config, folder, log)
  _check_profile(run.profile, config.train.steps)
  check_resumable(config, folder)
  if config.model.has_steps:
    make_mesh(config.mesh)  # refuses a mesh before a large corpus is read
  if corpus is None:
    leave_out = config.eval.leave_out
    corpus = load_corpus(config.data, config.seed, leave_out=leave_out, log=log)
  corpus.split(TRAIN)  # refuses a corpus without it
  return dataclasses.replace(run, config=config), corpus


def check_corpus(run: Run, corpus: Corpus) -> dict[str, Metrics]:
  """Raises an error if the model of a run cannot learn from its corpus.

  Returns the metrics of the popularity prior by split.
  """
  prior = prior_metrics(corpus, run.config.eval)
  run.config.model.check(corpus, run)
  return prior


def _check_profile(profile: tuple[int, int] | None, steps: int) -> None:
  if profile and not steps:
    raise ConfigError(
      'only the steps of neural models can be profiled; this model has no steps'
    )
  if profile and not 1 <= profile[0] <= profile[1] <= steps:
    raise ConfigError(
      f'cannot profile steps {profile[0]} to {profile[1]}: the first step must '
      'be 1 or more, the last step must not be smaller than the first step, '
      f'and the last step must not be larger than config.train.steps={steps}'
    )
