"""Trains or copies the models that a run uses, its stages.

The files of a stage are a workdir of their own, in stages/ of the run's
workdir. So the run needs no file of another run, and a killed stage resumes.
"""

from typing import Any

from absl import logging

from xjax.config.json import load_config
from xjax.config.run import Config
from xjax.config.stages import StageConfig, StageVectors
from xjax.core.distributed import barrier, is_host0
from xjax.core.errors import ConfigError
from xjax.data.schema import Corpus
from xjax.run.api.saved import save_run
from xjax.run.judging import prior_metrics
from xjax.run.load import kind_of_run, load
from xjax.run.predictor import Predictor
from xjax.run.stages.vectors import ENCODER, DocumentVectors
from xjax.score.config import RunVectors, is_neural
from xjax.train.preemption import Preemption
from xjax.train.workdir import Workdir, split_step

_FIELD = 'config.model.vectors.workdir'


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


def check_vectors(config: Config, folder: Workdir) -> None:
  """Checks that the run whose vectors are joined exists, unless it was copied.

  Args:
    config: config of the run.
    folder: workdir of the run.

  Raises:
    ConfigError: there is no run.
  """
  vectors = config.model.vectors
  copied = folder.stage(ENCODER).config.exists()
  if isinstance(vectors, RunVectors) and not copied:
    source, _ = check_run(vectors.workdir, _FIELD)
    theirs = load_config(Workdir.at(source).config)
    _check_encoder(theirs, source)
    check_zones(config, source, theirs)


def _check_encoder(config: Config, workdir: str) -> None:
  """Checks that a run has an encoder.

  Raises:
    ConfigError: the model of the run is not neural.
  """
  if not is_neural(config.model):
    raise ConfigError(
      f'{_FIELD}={workdir}: is a {type(config.model).__name__}, which has no '
      'encoder; give the workdir of a neural model'
    )


def vectors_of_new_run(
  config: Config, folder: Workdir, corpus: Corpus, preemption: Preemption
) -> DocumentVectors:
  """Returns the vectors that a run joins to sparse features.

  The stage of the encoder is trained or copied first, if this was not done.

  Args:
    config: config of the run.
    folder: workdir of the run.
    corpus: corpus of the run.
    preemption: notices SIGTERM and Ctrl-C; its context has been entered.

  Returns:
    The vectors.

  Raises:
    As train_stage and copy_run.
  """
  vectors, stage = config.model.vectors, folder.stage(ENCODER)
  match vectors:
    case RunVectors():
      copy_run(vectors.workdir, stage, _FIELD)
    case StageVectors(stage=StageConfig() as trained):
      model = train_stage(trained.run_config(config), stage, corpus, preemption)
      record(folder, stage)
      return DocumentVectors.of(model, vectors.weight)
  record(folder, stage)
  return saved_vectors(config, folder)


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


def saved_vectors(config: Config, folder: Workdir) -> DocumentVectors:
  """Returns the vectors of a run whose stage of the encoder is complete.

  Args:
    config: config of the run.
    folder: workdir of the run.

  Raises:
    DataError: a file of the stage is missing or damaged.
  """
  vectors = config.model.vectors
  stage = folder.stage(ENCODER)
  folder.check(stage.digest_list)
  model = load(stage.path)
  return DocumentVectors.of(model, vectors.weight)
