"""Trains or copies the models that a run uses, its stages.

The files of a stage are a workdir of their own, in stages/ of the run's
workdir. So the run needs no file of another run, and a killed stage resumes.
"""

from typing import Any

from absl import logging

from xjax.config.run import Config
from xjax.core.distributed import barrier, is_host0
from xjax.core.errors import ConfigError
from xjax.data.schema import Corpus
from xjax.run.api.saved import save_run
from xjax.run.judging import prior_metrics
from xjax.run.load import kind_of_run, load
from xjax.run.predictor import Predictor
from xjax.train.preemption import Preemption
from xjax.train.workdir import Workdir, split_step


def check_run(source: str, path: str) -> tuple[str, int | None]:
  """Checks that a config names a finished run, and returns its workdir.

  Args:
    source: WORKDIR[@step].
    path: path of the config's field, for messages.

  Returns:
    The workdir, and the step, or None for the best checkpoint.

  Raises:
    ConfigError: there is no run.
  """
  workdir, step = split_step(source)
  if not Workdir.at(workdir).config.exists():
    raise ConfigError(
      f'{path}={source}: there is no run of xjax in this folder; train it '
      'first, or correct the path'
    )
  return workdir, step


def check_zones(config: Config, source: str, theirs: Config) -> None:
  """Checks that a run's documents have all zones that another run reads.

  Args:
    config: config of the run.
    source: workdir of the other run, for the message.
    theirs: config of the other run.

  Raises:
    ConfigError: a zone is missing.
  """
  ours, others = config.data, theirs.data
  zones = tuple(ours.zones) or ours.full_text
  wanted = tuple(others.zones) or others.full_text
  if zones and not (wanted and set(wanted) <= set(zones)):
    needed = f'the zones {", ".join(wanted)}' if wanted else 'all zones'
    raise ConfigError(
      f'config.data.zones={zones}: the run in {source} reads {needed}; '
      'choose all zones that a run reads'
    )


def train_stage(
  config: Config,
  folder: Workdir,
  corpus: Corpus,
  preemption: Preemption,
  **parts: Any,
) -> Predictor:
  """Trains the model of a stage, or resumes its training.

  Args:
    config: config of the stage's own run (StageConfig.run_config).
    folder: folder of the stage.
    corpus: the corpus of the run.
    preemption: notices SIGTERM and Ctrl-C; its context has been entered.
    parts: further attributes of the stage's Fit.

  Returns:
    The best model of the stage.

  Raises:
    UserError: as in run.fit.
    Preempted: SIGTERM or Ctrl-C came; another call resumes the stage.
  """
  with folder.locked():
    run = kind_of_run(config)(config, folder, **parts)
    folder.compare(config)
    run.check_start()
    run.check_corpus(corpus, prior_metrics(corpus, config.eval))
    folder.record_corpus(corpus)
    folder.open(config)
    if is_host0():
      logging.info('stage %s: %s', folder.path.name, folder.path)
    return run.fit(corpus, preemption).model()


def copy_run(source: str, folder: Workdir, path: str) -> None:
  """Copies what loading the model of another run needs to a stage's folder.

  A copy that exists is kept.

  Args:
    source: WORKDIR[@step] of the other run.
    folder: folder of the stage.
    path: path of the config's field, for messages.

  Raises:
    ConfigError: there is no run.
    DataError: a file of the other run is damaged.
  """
  if is_host0() and not folder.config.exists():
    save_run(load(*check_run(source, path)), folder.path)
  barrier('xjax:copied')


def record(folder: Workdir, stage: Workdir) -> None:
  """Records the digest of the complete stage of a run.

  Args:
    folder: workdir of the run.
    stage: workdir of the stage.
  """
  if is_host0():
    with folder.recording(stage.digest_list):
      pass  # the stage has written the file already
  barrier('xjax:stage')
