"""Trains or copies the models that a run uses, its stages.

A stage has a workdir of its own, in stages/ of the run's workdir, so a killed
stage resumes. Only one process can train a run with stages.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import re

from absl import logging
import numpy as np

from xjax.core.config_part import AT_LEAST_1, ConfigPart, field
from xjax.core.errors import ConfigError, DataError
from xjax.core.processes.lock import is_locked
from xjax.data.formats.data_config import DataConfig
from xjax.data.load import cut_corpus
from xjax.data.schema import Corpus, LabelSpace
from xjax.data.tokens_config import TokensConfig, WordsConfig
from xjax.models.config_check import check_config
from xjax.models.contract import (
  Config,
  Model,
  Run,
  Scorer,
  check_resumable,
  default_model,
  default_train,
  open_folder,
)
from xjax.models.run_copies import save_run
from xjax.train.run_record import RunRecord
from xjax.train.train_config import TrainConfig
from xjax.train.workdir import Workdir, split_step

# Finds the fields of a run's config that a stage has itself.
_OWN_FIELDS = re.compile(r'\bconfig\.(?:data\.(tokens)|(model|train))\b')


def with_stage_paths(message: str, path: str) -> str:
  """Replaces paths like config.train.steps of a stage by those of the run.

  `path` is that of the stage in the run's config, such as config.model.matcher.
  """
  # All replacements are made at once, because `path` has config.model.
  return _OWN_FIELDS.sub(rf'{path}.\1\2', message)


def _pooled_model() -> Model:
  return default_model().pooled()


@dataclasses.dataclass
class StageConfig(ConfigPart):
  """Configures a stage: a model that is trained before the run's own model.

  The stage has the corpus, the seed, the evaluation and the mesh of the run.
  """

  is_stage = True

  tokens: TokensConfig = field(WordsConfig, 'How the model reads documents.')
  zones: tuple[str, ...] = field(
    (),
    'The zones that the model reads, which must be zones of the run. If empty, '
    'the model reads all zones of the run.',
  )
  model: Model = field(_pooled_model, 'The model.')
  train: TrainConfig = field(default_train, 'How the model is trained.')
  batch_size: int = field(
    64, 'Documents per batch when the model is judged or used.', AT_LEAST_1
  )

  def run_config(self, config: Config) -> Config:
    zones = self.zones_of(config.data) or config.data.zones
    data = dataclasses.replace(config.data, tokens=self.tokens, zones=zones)
    if data.facts:
      data = dataclasses.replace(data, facts=())
    return dataclasses.replace(
      config,
      data=data,
      model=self.model,
      train=self.train,
      eval=dataclasses.replace(config.eval, batch_size=self.batch_size),
    )

  def zones_of(self, data: DataConfig) -> tuple[str, ...]:
    """Returns the zones to which documents of the run are cut; () for none."""
    return self.zones or data.text_zones * bool(data.facts)

  def faults(self, config: Config, path: str) -> Iterator[str]:
    known = *config.data.zones, *config.data.facts
    outside = [zone for zone in self.zones if zone not in known]
    if config.data.zones and outside:
      yield (
        f'{path}.zones={self.zones}: {", ".join(outside)} must be in '
        f'config.data.zones={config.data.zones}'
      )
    try:
      check_config(self.run_config(config))
    except ConfigError as error:
      yield from with_stage_paths(str(error), path).splitlines()


_STAGE = 'stage'  # in keys of Run.made


@dataclasses.dataclass(frozen=True, eq=False)
class FinishedRun:
  """Opens and copies a finished run that a run uses."""

  source: str  # WORKDIR[@step]
  run: Run
  name: str  # of the stage that is its copy
  path: str  # of the config's field, for messages

  def open(self) -> tuple[Run, Scorer]:
    """Opens the model of the other run, or its copy if there is one.

    The other run must have the zones that this run reads. It may be gone once
    it was copied.
    """
    if self.run.folder.stage(self.name).config.exists():
      return self.run.opened_stage(self.name)
    workdir, step = split_step(self.source)
    folder = Workdir.at(workdir)
    if not folder.config.exists():
      raise ConfigError(
        f'{self.path}={self.source}: there is no run of xjax in this folder; '
        'train it first, or correct the path'
      )
    if is_locked(folder.path):
      raise ConfigError(
        f'{self.path}: another process uses the run in {self.source}; wait '
        'until it ends'
      )
    try:
      record = RunRecord.read(folder)
      if record and not record.finished:
        raise DataError('its training was stopped')
      other, scorer = open_folder(folder, step)
    except DataError as error:
      raise ConfigError(
        f'{self.path}: the run in {self.source} is not finished or is damaged; '
        f'train it to its end first ({error})'
      ) from error
    self._check_zones(other.config)
    return other, scorer

  def copy(self) -> None:
    """Copies the other run to the stage's folder, if absent."""
    stage = self.run.folder.stage(self.name)
    if not stage.config.exists():
      other, scorer = self.open()
      with self.run.folder.recording(stage.digest_list):
        save_run(other, scorer.step, stage.path)

  def _check_zones(self, theirs: Config) -> None:
    """Checks that a run's documents have all zones that another run reads."""
    ours, others = self.run.config.data, theirs.data
    zones = tuple(ours.zones) or ours.full_text
    wanted = tuple(others.zones) or others.full_text
    if zones and not (wanted and set(wanted) <= set(zones)):
      needed = f'the zones {", ".join(wanted)}' if wanted else 'all zones'
      raise ConfigError(
        f'config.data.zones={zones}: the run in {self.source} reads {needed}; '
        'choose all zones that a run reads'
      )

    if others.facts:
      raise ConfigError(
        f'{self.path}: the run in {self.source} reads facts of documents, '
        'which this run has not; give one without data.facts'
      )

  def check_labels(self, other: Run, n: int, space: LabelSpace) -> None:
    """Checks that n labels of the other run have the numbers of a corpus."""
    theirs, where = other.label_space(), f'{self.path}: '
    remedy = (
      'use a run with the same labels, which is trained on the same corpus'
    )
    if n > space.n_inside:
      raise ConfigError(
        f'{where}the run in {self.source} has {n} labels, but this corpus has '
        f'{space.n_inside}; {remedy}'
      )
    for number, (our, their) in enumerate(zip(space.ids[:n], theirs.ids)):
      if our != their:
        raise ConfigError(
          f'{where}label {number} is {their!a} in the run in {self.source}, '
          f'but {our!a} in this corpus; {remedy}'
        )
    # A warning only: runs on parts of a corpus may well be combined.
    if not np.array_equal(theirs.train_counts[:n], space.train_counts[:n]):
      logging.warning(
        '%s was trained on other documents than the split train of this '
        'corpus. If it was trained on documents of dev or test, the metrics of '
        'this run are too high',
        self.source,
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

  @functools.cached_property
  def own(self) -> Run:
    """Returns the stage's run, which keeps what an earlier check has made."""
    # Each call makes a new Run of the stage, and all of them share what checks
    # have made.
    values = self.run.cached_values.setdefault((_STAGE, self.name), {})
    own = self.run.sub(self.name, self.config)
    return dataclasses.replace(own, cached_values=values)

  @functools.cached_property
  def config(self) -> Config:
    return self.settings.run_config(self.run.config)

  def corpus(self, corpus: Corpus) -> Corpus:
    """Returns a corpus with only the stage's zones, or raises a ConfigError."""
    zones = self.settings.zones_of(self.run.config.data)
    if not zones:
      return corpus
    try:
      return cut_corpus(corpus, zones, self.checks_zones)
    except DataError as error:
      field = f'{self.path}.zones={zones}'
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
