"""Trains or copies the models that a run uses, its stages.

The files of a stage are a workdir of their own, in stages/ of the run's
workdir. So the run needs no file of another run, and a killed stage resumes.
Only one process can train a run with stages.
"""

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import functools
import re
from typing import Any

from absl import logging
import numpy as np

from xjax.core.errors import ConfigError, DataError
from xjax.core.processes.lock import is_locked
from xjax.data.load import cut_corpus
from xjax.data.schema import Corpus, LabelSpace
from xjax.models.contract import (
  Config,
  Run,
  Scorer,
  check_resumable,
  open_folder,
)
from xjax.models.copies import save_run
from xjax.models.stage_config import StageConfig, with_stage_paths
from xjax.train.run_record import RunRecord
from xjax.train.workdir import Workdir, split_step

_STAGE = 'stage'  # in keys of Run.made


def check_run(source: str, path: str) -> tuple[str, int | None]:
  """Returns the workdir and the step (None: best) of a finished run."""
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


def open_other(source: str, path: str) -> tuple[Run, Scorer]:
  """Opens the model of a finished run, WORKDIR[@step]; see check_run."""
  workdir, step = check_run(source, path)
  with _damage_as_fault(source, path):
    return open_folder(Workdir.at(workdir), step)


@contextlib.contextmanager
def _damage_as_fault(source: str, path: str) -> Iterator[None]:
  try:
    yield
  except DataError as error:
    raise ConfigError(
      f'{path}: the run in {source} is not finished or is damaged; train it '
      f'to its end first ({error})'
    ) from error


def check_zones(config: Config, source: str, theirs: Config) -> None:
  """Checks that a run's documents have all zones that another run reads."""
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
  source: str,  # WORKDIR[@step] of the other run
  theirs: LabelSpace,  # labels of the other run
  n: int,  # number of labels that its model scores
  space: LabelSpace,  # labels of the corpus
  path: str,  # of the config's field, for messages
) -> None:
  """Checks that another run gives the numbers of a corpus to its labels."""
  remedy = 'use a run with the same labels, which is trained on the same corpus'
  if n > space.n_inside:
    raise ConfigError(
      f'{path}: the run in {source} has {n} labels, but this corpus has '
      f'{space.n_inside}; {remedy}'
    )
  for number, (our, their) in enumerate(zip(space.ids[:n], theirs.ids)):
    if our != their:
      raise ConfigError(
        f'{path}: label {number} is {their!a} in the run in {source}, but '
        f'{our!a} in this corpus; {remedy}'
      )
  # A warning only: runs on parts of a corpus may well be combined.
  if not np.array_equal(theirs.train_counts[:n], space.train_counts[:n]):
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


@dataclasses.dataclass(frozen=True, eq=False)
class Stage:
  """Checks and trains a stage of a run; corpora have the run's documents."""

  settings: StageConfig
  run: Run
  name: str
  path: str  # of the stage in the run's config
  checks_zones: bool = True  # whether training documents must have the zones
  given: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @functools.cached_property
  def own(self) -> Run:
    """Returns the stage's run, which keeps what an earlier check has made."""
    # Each call makes a new Run of the stage, and all of them share what checks
    # have made.
    made = self.run.made.setdefault((_STAGE, self.name), {})
    own = self.run.sub(self.name, self.config, self.given)
    return dataclasses.replace(own, made=made)

  @functools.cached_property
  def config(self) -> Config:
    return self.settings.run_config(self.run.config)

  def corpus(self, corpus: Corpus) -> Corpus:
    """Returns a corpus with only the stage's zones, or raises a ConfigError."""
    if not self.settings.zones:
      return corpus
    try:
      return cut_corpus(corpus, self.settings.zones, self.checks_zones)
    except DataError as error:
      field = f'{self.path}.zones={self.settings.zones}'
      raise ConfigError(f'{field}: {error}') from error

  def check(self, corpus: Corpus) -> None:
    """Checks, before the run's first write, that the stage can be trained."""
    cut = self.corpus(corpus)
    with self.paths():
      self.check_unchanged()
      self.config.model.check(cut, self.own)

  def check_unchanged(self) -> None:
    """Raises a ConfigError if a stage that was used would change."""
    if not _has_results(self.run.folder):
      return
    changes = check_resumable(self.config, self.own.folder)
    changed = [str(c) for c in changes if _DECIDING.fullmatch(c.path)]
    if changed:
      raise ConfigError(
        f'the run in {self.run.folder.path} was trained with a stage that had '
        f'another config:\n  config.{changed[0]}\nuse a new workdir, or the '
        'same config as before'
      )

  def train(self, corpus: Corpus) -> Scorer:
    """Trains the stage, or resumes its training, and returns its best model."""
    cut = self.corpus(corpus)
    with self.paths():
      return self.run.stage(self.own, cut)

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
  # Levels and search.json are written before stages are trained, so they say
  # nothing.
  files = folder.model.iterdir() if folder.model.exists() else ()
  return folder.checkpoints.exists() or any(f.name not in own for f in files)


def copy_other(source: str, run: Run, name: str, path: str) -> Scorer:
  """Copies another run to a stage's folder, if absent, and opens the copy."""
  stage = run.folder.stage(name)
  if not stage.config.exists():
    other, scorer = open_other(source, path)
    with run.folder.recording(stage.digest_list):
      save_run(other, scorer.step, stage.path)
  return run.open_stage(name)
