"""Trains or copies the models that a run uses, its stages.

The files of a stage are a workdir of their own, in stages/ of the run's
workdir. So the run needs no file of another run, and a killed stage resumes.
Only one process can train a run with stages.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import re

from absl import logging
import numpy as np

from xjax.core.errors import ConfigError, DataError
from xjax.core.processes.lock import is_locked
from xjax.data.load import cut_corpus
from xjax.data.schema import Corpus, LabelSpace
from xjax.models.config import Config
from xjax.models.fit_contract import Fit
from xjax.models.load import kind_of_run, load
from xjax.models.predictor import Predictor
from xjax.models.staged.stage_config import StageConfig, with_stage_paths
from xjax.models.workdir import Workdir, split_step
from xjax.run.api.saved import save_run
from xjax.run.judging import prior_metrics
from xjax.train.preemption import Preemption
from xjax.train.run_record import RunRecord


def check_run(source: str, path: str) -> tuple[str, int | None]:
  """Checks that a config names a finished run, and returns its workdir.

  Args:
    source: WORKDIR[@step].
    path: path of the config's field, for messages.

  Returns:
    The workdir, and the step, or None for the best checkpoint.

  Raises:
    ConfigError: there is no run, or it is not finished.
  """
  workdir, step = split_step(source)
  folder = Workdir.at(workdir)
  if not folder.config.exists():
    raise ConfigError(
      f'{path}={source}: there is no run of xjax in this folder; train it '
      'first, or correct the path'
    )
  if is_locked(folder.path):
    raise ConfigError(
      f'{path}: another process uses the run in {source}; wait until it ends'
    )
  with _damage_as_fault(source, path):
    run = RunRecord.read(folder)
    if run and not run.finished:
      raise DataError('its training was stopped')
  return workdir, step


def load_run(source: str, path: str) -> Predictor:
  """Loads the model of a finished run that a config names.

  Args:
    source: WORKDIR[@step].
    path: path of the config's field, for messages.

  Raises:
    ConfigError: there is no run, or it is not finished or is damaged.
  """
  workdir, step = check_run(source, path)
  with _damage_as_fault(source, path):
    return load(workdir, step)


@contextlib.contextmanager
def _damage_as_fault(source: str, path: str) -> Iterator[None]:
  """Raises a ConfigError for a file that another run lacks or has damaged."""
  try:
    yield
  except DataError as error:
    raise ConfigError(
      f'{path}: the run in {source} is not finished or is damaged; train it '
      f'to its end first ({error})'
    ) from error


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


def check_labels(
  source: str, model: Predictor, space: LabelSpace, path: str
) -> None:
  """Checks that another run gives the numbers of a corpus to its labels.

  Args:
    source: WORKDIR[@step] of the other run.
    model: its model.
    space: labels of the corpus.
    path: path of the config's field, for messages.

  Raises:
    ConfigError: the run has another label; the message names it.
  """
  n = model.n_labels
  remedy = 'use a run with the same labels, which is trained on the same corpus'
  if n > space.n_inside:
    raise ConfigError(
      f'{path}: the run in {source} has {n} labels, but this corpus has '
      f'{space.n_inside}; {remedy}'
    )
  for number, (ours, theirs) in enumerate(zip(space.ids[:n], model.space.ids)):
    if ours != theirs:
      raise ConfigError(
        f'{path}: label {number} is {theirs!a} in the run in {source}, but '
        f'{ours!a} in this corpus; {remedy}'
      )
  counts = model.space.train_counts[:n], space.train_counts[:n]
  if not np.array_equal(*counts):
    logging.warning(
      '%s was trained on other documents than the split train of this corpus. '
      'If it was trained on documents of dev or test, the metrics of this run '
      'are too high',
      source,
    )


# Fields of a finished stage that decide what the stage gives the run.
_DECIDING = re.compile(
  r'train\.steps|model\.(beam|exact|kept)|model\.shortlist\.prior'
)


@dataclasses.dataclass(eq=False)
class Stage:
  """Checks and trains a model that a run uses, which is a stage of the run.

  Attributes:
    stage: config of the stage.
    config: config of the run.
    folder: workdir of the run.
    name: name of the stage.
    path: path of the stage in the run's config.
    checks_zones: whether to check that training documents have the zones.
  """

  stage: StageConfig
  config: Config
  folder: Workdir
  name: str
  path: str
  checks_zones: bool = True

  @functools.cached_property
  def run(self) -> Fit:
    """Returns the stage's own run."""
    config = self.stage.run_config(self.config)
    return kind_of_run(config)(config, self.folder.stage(self.name))

  def corpus(self, corpus: Corpus) -> Corpus:
    """Returns the corpus of the stage, whose documents have only its zones.

    Args:
      corpus: a corpus with the documents of the run.

    Raises:
      ConfigError: no training document has one of the zones.
    """
    if not self.stage.zones:
      return corpus
    try:
      return cut_corpus(corpus, self.stage.zones, self.checks_zones)
    except DataError as error:
      field = f'{self.path}.zones={self.stage.zones}'
      raise ConfigError(f'{field}: {error}') from error

  def check_start(self) -> None:
    """Checks, before the corpus is read, that the stage can start or resume.

    Raises:
      ConfigError: the stage cannot start, or would change although the run has
        used it already; the message names the field.
    """
    with self.paths():
      if _has_results(self.folder):
        self._check_unchanged()
      self.run.check_start()

  def _check_unchanged(self) -> None:
    changes = self.run.workdir.compare(self.run.config)
    changed = [str(c) for c in changes if _DECIDING.fullmatch(c.path)]
    if changed:
      raise ConfigError(
        f'the run in {self.folder.path} was trained with a stage that had '
        f'another config:\n  config.{changed[0]}\nuse a new workdir, or the '
        'same config as before'
      )

  def check_corpus(self, corpus: Corpus) -> None:
    """Checks, before the run's first write, that the stage can be trained.

    Args:
      corpus: the labels of the stage, with the documents of the run.

    Raises:
      ConfigError, DataError: the stage cannot be trained; the message says why.
    """
    cut = self.corpus(corpus)
    with self.paths():
      self.run.check_corpus(cut, prior_metrics(cut, self.run.config.eval))

  def train(self, corpus: Corpus, preemption: Preemption) -> Predictor:
    """Trains the model of the stage, or resumes its training.

    Args:
      corpus: the labels of the stage, with the documents of the run.
      preemption: notices SIGTERM and Ctrl-C; its context has been entered.

    Returns:
      The best model of the stage.

    Raises:
      As train_stage.
    """
    cut = self.corpus(corpus)
    with self.paths():
      return train_stage(self.run, self.folder, cut, preemption)

  @contextlib.contextmanager
  def paths(self) -> Iterator[None]:
    """Raises a ConfigError about the stage with the paths of the run."""
    try:
      yield
    except ConfigError as error:
      raise ConfigError(with_stage_paths(str(error), self.path)) from error


def _has_results(folder: Workdir) -> bool:
  """Returns whether a run has files that its stages have decided."""
  own = {folder.levels.name, 'search.json'}
  files = folder.model.iterdir() if folder.model.exists() else ()
  return folder.checkpoints.exists() or any(f.name not in own for f in files)


def train_stage(
  run: Fit, folder: Workdir, corpus: Corpus, preemption: Preemption
) -> Predictor:
  """Trains the model of a stage, or resumes its training.

  Args:
    run: the stage's own run.
    folder: workdir of the run that the stage belongs to.
    corpus: the corpus of the stage.
    preemption: notices SIGTERM and Ctrl-C; its context has been entered.

  Returns:
    The best model of the stage.

  Raises:
    DataError: the stage has changed since an earlier start of the run.
    UserError: as in run.fit.
    Preempted: SIGTERM or Ctrl-C came; another call resumes the stage.
  """
  config, stage = run.config, run.workdir
  folder.check(stage.digest_list)
  # A resumed stage may have other settings, such as another data folder. So its
  # digest is recorded again.
  with folder.recording(stage.digest_list), stage.locked():
    stage.compare(config)
    run.check_start()
    run.check_corpus(corpus, prior_metrics(corpus, config.eval))
    stage.record_corpus(corpus)
    stage.open(config)
    logging.info('stage %s', stage.path)
    return run.fit(corpus, preemption).model()


def copy_run(source: str, folder: Workdir, name: str, path: str) -> Predictor:
  """Copies what loading the model of another run needs to a stage's folder.

  A copy that exists is kept.

  Args:
    source: WORKDIR[@step] of the other run.
    folder: workdir of the run.
    name: name of the stage.
    path: path of the config's field, for messages.

  Returns:
    The model of the copy.

  Raises:
    ConfigError: there is no run, or it is not finished or is damaged.
    DataError: the copy has changed since it was made.
  """
  if not folder.stage(name).config.exists():
    copy_model(load_run(source, path), folder, name)
  return load_stage(folder, name)


def copy_model(model: Predictor, folder: Workdir, name: str) -> None:
  """Copies what loading the model of another run needs to a stage's folder.

  Args:
    model: the model.
    folder: workdir of the run.
    name: name of the stage, which has no folder yet.
  """
  stage = folder.stage(name)
  with folder.recording(stage.digest_list):
    save_run(model, stage.path)


def load_stage(folder: Workdir, name: str) -> Predictor:
  """Loads the model of a complete stage of a run.

  Args:
    folder: workdir of the run.
    name: name of the stage.

  Raises:
    DataError: a file of the stage is missing, damaged or has changed.
  """
  stage = folder.stage(name)
  folder.check(stage.digest_list)
  return load(stage.path)
