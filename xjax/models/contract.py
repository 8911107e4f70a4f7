"""Defines the two contracts of models, and the run that holds them together.

A kind of model is one class, `Model`: its fields are its settings in a config,
and its methods check, fit and open a trained model, which is a `Scorer`. A
`Run` is the folder, the config and the signal to stop that they work with.
"""

import abc
from collections.abc import Callable, Hashable, Iterator, Mapping
import contextlib
import dataclasses
import os
import pathlib
import typing
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeVar

from absl import logging

from xjax import data, losses, models, networks, train
from xjax.core.atomic import write_json
from xjax.core.config_part import (
  SEED,
  ConfigPart,
  field,
  kind_named,
  kinds_that,
  offer_kinds,
)
from xjax.core.distributed import barrier, is_host0, process_count
from xjax.core.errors import ConfigError, DataError
from xjax.core.mesh_config import MeshConfig
from xjax.core.types import ScoreKind
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.schema import Corpus, LabelSpace
from xjax.data.tokens_config import TokensConfig
from xjax.judge.calibration import Calibration, Method
from xjax.models.config_check import check_values
from xjax.models.config_json import ConfigDifference, diff, read_part, to_json
from xjax.models.eval_config import EvalConfig
from xjax.models.scorer import Scorer
from xjax.train.run_record import RunRecord
from xjax.train.train_config import NoTrain, TrainConfig
from xjax.train.workdir import Workdir

if typing.TYPE_CHECKING:
  from xjax.train.preemption import Preemption

offer_kinds(data, losses, networks, train, models)

T = TypeVar('T')
# What model cards say of labels without training documents.
SCORES_NAMES = (
  'The model scores labels by their names, so it also ranks labels without '
  'training documents. The slices zero and held_out show how well. Further '
  'labels can be added with `xjax predict --labels=FILE`.'
)
SCORES_TRAINED = (
  'The model knows labels only from their training documents. For labels '
  'without training documents it has learned nothing, so they are not '
  'predicted or come last.'
)
DEV = 'dev'
_LABELS = 'label_space'  # names the labels in Run.made
JUDGED = DEV, 'test'  # the splits that are judged at the end of a run


class StageToTrain(NamedTuple):
  """A stage: a model that is trained before the model of a run."""

  config: 'Config'  # of the stage's own run
  name: str
  # The most clusters that it ranks; None if it ranks the labels of the run.
  clusters: int | None = None


@dataclasses.dataclass
class Model(ConfigPart, abstract=True):
  """Holds the settings of a kind of model, which ranks labels of documents."""

  reads: ClassVar[tuple[type[TokensConfig], ...]] = ()  # kinds of data.tokens
  trained_by: ClassVar[type[TrainConfig]] = NoTrain  # the class of config.train
  chooses: ClassVar[bool] = False  # whether the corpus decides on the model
  has_steps: ClassVar[bool] = False  # whether it has optimizer steps
  has_features: ClassVar[bool] = False  # whether its scorer has a featuriser
  detail_names = ()  # what its scorer says beside scores (Query.details)
  knows_dates = False  # whether its scorer has `days`, dates of documents
  reads_facts = False  # whether it reads data.facts
  # Paths in the run's folder. A stage for another part of the same documents
  # may start with copies of these files.
  label_independent_files: ClassVar[tuple[str, ...]] = ()

  def check(self, corpus: Corpus, run: 'Run') -> None:
    """Checks that the model can be fitted to a corpus; writes nothing.

    The corpus has a split train, and the run is new or resumed. A ConfigError
    or DataError names the field, the document or the label.
    """
    del corpus
    check_one_process(run.config)

  @abc.abstractmethod
  def fit(self, corpus: Corpus, run: 'Run') -> None:
    """Fits the model, or continues an earlier fit from the files of the run.

    It leaves files in the folder of the run, and nothing else. Preempted says
    that SIGTERM or Ctrl-C came; another call continues the fit.
    """

  @abc.abstractmethod
  def open(self, run: 'Run') -> 'Scorer':
    """Returns the trained model; only files of the run's folder are read."""

  def reads_names(self, config: 'Config') -> bool:
    """Returns whether the model scores labels of no document by their names."""
    del config
    return False

  def about_unseen(self, config: 'Config') -> str:
    """Says in the model card what happens to labels of no training document."""
    return SCORES_NAMES if self.reads_names(config) else SCORES_TRAINED

  def same_files(self, config: 'Config', other: 'Config') -> bool:
    """Returns whether two runs have equal label_independent_files.

    The first run has this model. The other one has the same documents, or more.
    """
    return config.data == other.data

  def search_settings(self) -> dict[str, Any]:
    """Returns the settings that decide lists, but not what is trained.

    If a resumed run has other values, its lists are judged again.
    """
    return {
      x.name: to_json(getattr(self, x.name))
      for x in dataclasses.fields(self)
      if x.metadata.get('may_change')
    }

  def steps(self, run: 'Run') -> tuple[int, int]:
    """Returns the optimizer steps of a fitted model, and the best step."""
    del run
    return 0, 0

  def size(self, run: 'Run') -> int:
    """Returns the size of a fitted model in bytes: that of its files."""
    return sum(
      path.stat().st_size
      for folder in (run.folder.model, run.folder.stages)
      for path in folder.rglob('*')
      if path.is_file()
    )

  def open_stages(self, run: 'Run') -> tuple[str, ...]:
    """Returns the names of the stages that the trained model uses."""
    paths = run.folder.stages.glob('*/config.json')
    return tuple(sorted(path.parent.name for path in paths))

  def trained_stages(self, config: 'Config') -> tuple[StageToTrain, ...]:
    """Returns the stages of a run, in the order of training."""
    del config
    return ()

  def faults(self, config: Any, path: str) -> Iterator[str]:
    tokens, data = config.data.tokens, config.data
    where = f'config.data.tokens={type(tokens).__name__}(...)'
    if tokens.sparse != data.sparse:
      data_kinds = f'config.data={kinds_that("sparse", DataConfig)}'
      tokens_kinds = kinds_that('sparse', TokensConfig)
      if tokens.sparse:
        yield f'{where}: needs {data_kinds}'
      else:
        yield f'{where}: {data_kinds} needs config.data.tokens={tokens_kinds}'
    elif not isinstance(tokens, self.reads):
      yield (
        f'{where}: {type(self).__name__}(...) reads only '
        + ' or '.join(f'{kind.__name__}(...)' for kind in self.reads)
      )
    else:
      yield from self.token_faults(config)

  def token_faults(self, config: Any) -> Iterator[str]:
    """Yields one error for each rejected setting of data.tokens."""
    if config.data.tokens.by_zone:
      yield (
        'config.data.tokens.by_zone=True: this model reads zones as one text; '
        'set by_zone=False'
      )


def check_one_process(config: 'Config') -> None:
  """Raises a ConfigError if several processes train or use a model."""
  if process_count() > 1:
    raise ConfigError(
      f'config.model={type(config.model).__name__}(...): can only be used by '
      'one process; start the run on one host'
    )


def default_model() -> Model:
  """Returns the model of a config that names none."""
  return kind_named('NeuralModel', Model)()


def default_train() -> TrainConfig:
  """Returns the training of a config that names none."""
  return kind_named('NeuralTrain', TrainConfig)()


@dataclasses.dataclass
class Config(ConfigPart):
  seed: int = field(0, 'Seed of all random numbers.', SEED)
  data: DataConfig = field(SyntheticData, 'The corpus, and how it is read.')
  model: Model = field(default_model, 'The model, which scores labels.')
  train: TrainConfig = field(default_train, 'How the model is trained.')
  eval: EvalConfig = field(EvalConfig, 'How the model is judged.')
  mesh: MeshConfig = field(
    MeshConfig, 'The devices on which the model is trained.', may_change=True
  )


@dataclasses.dataclass
class AutoTrain(TrainConfig):
  """Stands for the training of the model that is chosen for AutoModel."""


@dataclasses.dataclass
class AutoModel(Model):
  """Stands for the model that xjax.run.auto chooses when a run starts.

  The choice is saved in the workdir in place of this part.
  """

  reads = (TokensConfig,)
  trained_by = AutoTrain
  chooses = reads_facts = True

  def fit(self, corpus: Corpus, run: 'Run') -> NoReturn:
    raise ConfigError(f'config.model: no kind of run fits {self!r}')

  def check(self, corpus: Corpus, run: 'Run') -> NoReturn:
    self.fit(corpus, run)

  def open(self, run: 'Run') -> NoReturn:
    raise ConfigError(f'config.model: no kind of run fits {self!r}')


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """Holds what a model is fitted and opened with: config, folder, signal."""

  config: Config
  folder: Workdir
  preemption: 'Preemption | None' = None  # None if the run is only opened
  profile: tuple[int, int] | None = None  # first and last step of jax.profiler
  step: int | None = None  # of the checkpoint that is opened; None for the best
  # What the run of which this is a stage has computed for it.
  given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  # What `check` and `fit` have made and later calls need not make again.
  cached_values: dict[Hashable, Any] = dataclasses.field(default_factory=dict)

  def once(
    self,
    path: pathlib.Path,
    build: Callable[[], Callable[[pathlib.Path], None]],
    read: Callable[[pathlib.Path], T],
  ) -> T:
    """Reads an artefact of the run, which is built and written if absent.

    `build` computes the artefact, and returns a function that writes it to a
    path, at once or not at all. With several processes, all build, and host 0
    writes.
    """
    if not path.exists():
      write = build()
      barrier('xjax:built')  # wait until no process looks for the file
      if is_host0():
        path.parent.mkdir(parents=True, exist_ok=True)
        with self.folder.recording(path):
          write(path)
      barrier('xjax:written')
    return self.read(path, read)

  def read(self, path: pathlib.Path, read: Callable[[pathlib.Path], T]) -> T:
    """Reads an artefact; a DataError says that it is missing or has changed."""
    # The digest finds files that can be read but have changed.
    artefact = read(path)
    self.folder.check(path)
    return artefact

  def label_space(self) -> LabelSpace:
    """Returns the labels of a run that was begun; they are read once."""
    if _LABELS not in self.cached_values:
      self.cached_values[_LABELS] = self.folder.label_space()
    return self.cached_values[_LABELS]

  def begin(self, corpus: Corpus) -> None:
    """Writes the labels and the config of a new or resumed run.

    It raises an error if the run has another config or corpus.
    """
    # The corpus is recorded first. A run that is killed between the two writes
    # has no config.json yet, so it starts again as a new run.
    self.folder.record_corpus(corpus)
    write_config(self.config, self.folder)
    if search := self.config.model.search_settings():
      self.folder.record_search(search, JUDGED)

  def sub(
    self, name: str, config: Config, given: Mapping[str, Any] | None = None
  ) -> 'Run':
    """Returns the run of a stage, for which this run has computed `given`."""
    folder = self.folder.stage(name)
    return Run(config, folder, self.preemption, given=given or {})

  def fitted(self, corpus: Corpus) -> Scorer:
    """Checks, fits and opens the model of the run; see the methods of Model."""
    model = self.config.model
    # Locked until it is open, so that no other process resumes it in between.
    with self.folder.locked():
      check_resumable(self.config, self.folder)
      model.check(corpus, self)
      self.begin(corpus)
      model.fit(corpus, self)
      return model.open(self)

  def stage(self, stage: 'Run', corpus: Corpus) -> Scorer:
    """Checks, fits and opens the model of a stage, which `sub` has returned.

    What an earlier start of the run has finished is not done again. If it has
    changed since, a DataError is raised.
    """
    self.folder.check(stage.folder.digest_list)
    # A resumed stage may have other settings, such as another data folder. So
    # its digest is recorded again.
    with self.folder.recording(stage.folder.digest_list):
      logging.info('stage %s', stage.folder.path)
      return stage.fitted(corpus)

  def open_stage(self, name: str) -> Scorer:
    """Opens the model of a complete stage, if its files have not changed."""
    return self.opened_stage(name)[1]

  def opened_stage(self, name: str) -> 'tuple[Run, Scorer]':
    """Returns the run of a complete stage, and its model (see open_stage)."""
    folder = self.folder.stage(name)
    self.folder.check(folder.digest_list)
    return open_folder(folder)

  def calibration(self, scorer: Scorer) -> Calibration | None:
    """Returns the calibration of the scores of this run's scorer, if any."""
    method = self.config.eval.calibration
    return saved_calibration(
      self.folder, method, scorer.step, scorer.score_kind
    )[0]


DATA = 'data'  # the folder of a workdir with documents that were in memory
_ADVICE = 'xjax evaluate --split=dev calibrates those of the best checkpoint'


def load_config(path: str | os.PathLike) -> Config:
  """Reads a config.json; a DataError says what is wrong with it."""
  return read_part(path, Config, check_values)


def open_folder(folder: Workdir, step: int | None = None) -> tuple[Run, Scorer]:
  """Opens the model of a run; only files of the workdir are read.

  Args:
    folder: workdir of the run.
    step: step of the checkpoint to open; None for the best one. No other is
      opened in place of a damaged checkpoint.
  """
  folder.check_has_run()
  config = _with_found_data(load_config(folder.config), folder)
  try:
    folder.check(folder.config)
  except DataError as error:  # users may change settings of the evaluation
    logging.warning('%s', error)
  if step is not None and not config.model.has_steps:
    raise ConfigError(
      f'step={step}: only neural models have checkpoints, but the run in '
      f'{folder.path} is a {type(config.model).__name__}; leave out the step'
    )
  run = Run(config, folder, step=step)
  return run, config.model.open(run)


def _with_found_data(config: Config, folder: Workdir) -> Config:
  """Returns the config with the paths of data where they are now."""
  data, tokens = config.data, config.data.tokens
  if folders := getattr(tokens, 'dir', ''):
    tokens = dataclasses.replace(tokens, dir=_present(folders, folder))
  paths = ((x, getattr(data, x, '')) for x in ('dir', 'label_file'))
  present = {x: _present(path, folder) for x, path in paths if path}
  data = dataclasses.replace(data, tokens=tokens, **present)
  return dataclasses.replace(config, data=data)


def _present(path: str, folder: Workdir) -> str:
  """Returns the first place of a path where something is, or else the path."""
  found = path and next(filter(os.path.exists, places_of(path, folder)), path)
  return path if os.path.abspath(found) == os.path.abspath(path) else found


def places_of(path: str, folder: Workdir) -> list[str]:
  """Returns where a path in a run's config may be now, the best place first.

  A relative path starts in the folder where the run was started. If this folder
  has moved together with the workdir, the path from one to the other is still
  the same. A file may also be in the workdir, or below the current folder.
  """
  given, record = os.path.expanduser(path), None
  with contextlib.suppress(DataError):  # the record is not needed
    record = RunRecord.read(folder)
  places = [os.path.abspath(given)]
  if record is not None and record.workdir:
    made = os.path.join(record.folder, given)
    moved = folder.path / os.path.relpath(made, record.workdir)
    both = [made, str(moved)] if os.path.isabs(given) else [str(moved), made]
    places = [*both, str(folder.path / given), *places]
  return list(dict.fromkeys(map(os.path.normpath, places)))


def check_resumable(config: Config, folder: Workdir) -> list[ConfigDifference]:
  """Returns how a config differs from the saved one; writes nothing.

  All fields that are returned may change. A ConfigError shows the others.
  """
  if not folder.config.exists():
    if folder.checkpoints.exists():
      raise DataError(f'{folder.path}: has checkpoints but no config.json')
    return []
  differences = diff(load_config(folder.config), config)
  fixed = [str(d) for d in differences if not d.may_change]
  # Nothing has been written yet, so a refused run leaves the workdir as it was.
  if fixed:
    raise ConfigError(
      f'{folder.path} was started with another config:\n  '
      + '\n  '.join(fixed)
      + '\nuse a new workdir, or the same config as before'
    )
  return differences


def write_config(config: Config, folder: Workdir) -> None:
  """Saves the config of a new or resumed run, and logs changed fields."""
  differences = check_resumable(config, folder)
  # All processes compare with the old config before host 0 replaces it.
  barrier('xjax:compared')
  if is_host0():
    for difference in differences:
      logging.info('config changed: %s', difference)
    with folder.recording(folder.config):
      write_json(folder.config, to_json(config))
  barrier('xjax:opened')


def saved_calibration(
  folder: Workdir, method: Method, step: int, kind: ScoreKind | None
) -> tuple[Calibration | None, str]:
  """Reads the calibration of a checkpoint's scores, or says why there is none.

  A calibration of another checkpoint, or on documents that are not the run's
  dev split, does not count. The reason is '' if users need not hear it.
  """
  if method is Method.NONE:
    return None, ''
  path, dev = folder.calibration, folder.digests().get(DEV)
  if not path.exists():
    # A run without a dev split cannot be expected to have a calibration.
    return None, f'no {path}; {_ADVICE}' if dev is not None else ''
  calibration = Calibration.load(path)
  folder.check(
    path, 'Remove the file, and run xjax evaluate --split=dev to write it again'
  )
  # A dev split that users add later has no digest here: any is accepted.
  wanted = step, calibration.digest if dev is None else dev
  if (calibration.step, calibration.digest) != wanted:
    return None, (
      f'{path} was not fitted on the dev split of this run and the checkpoint '
      f'of step {step}; {_ADVICE}'
    )
  if kind not in (None, calibration.score_kind):
    raise DataError(
      f'{path}: calibrates scores of kind {calibration.score_kind.value}, but '
      f'the scores of this run are of kind {kind.value}'
    )
  return calibration, calibration.reason
