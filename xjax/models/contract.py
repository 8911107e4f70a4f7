"""Defines the two contracts of models, and the run that holds them together.

A kind of model is one class, `Model`: its fields are its settings in a config,
and its methods check, fit and open a trained model, which is a `Scorer`. A
`Run` is the folder, the config and the signal to stop that they work with.
"""

import abc
from collections.abc import Callable, Hashable, Iterator, Mapping
import dataclasses
import os
import pathlib
import typing
from typing import Any, ClassVar, NamedTuple, TypeVar

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
from xjax.core.console import loading_libraries
from xjax.core.distributed import barrier, is_host0, process_count
from xjax.core.errors import ConfigError, DataError
from xjax.core.mesh_config import MeshConfig
from xjax.core.types import ScoreKind
from xjax.data.config import TokensConfig
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.schema import Corpus, LabelSpace
from xjax.judge.calibration import Calibration, Method
from xjax.models.config_check import check_values
from xjax.models.config_json import ConfigDifference, diff, read_part, to_json
from xjax.models.eval_config import EvalConfig
from xjax.models.scorer import Scorer
from xjax.train.train_config import NoTrain, TrainConfig
from xjax.train.workdir import Workdir

if typing.TYPE_CHECKING:
  from xjax.train.preemption import Preemption

offer_kinds(data, losses, networks, train, models)

T = TypeVar('T')
# What model cards say of labels without training documents.
SCORES_NAMES = (
  'The model scores labels by their names, so it also scores labels without '
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


class TrainedStage(NamedTuple):
  """Describes a stage, a model that is trained before a run's own model.

  Attributes:
    path: where the run's config has the stage's settings; '' if the stage has
      those of the run.
    clusters: the largest number of clusters that the stage ranks; None if it
      ranks what the run's model ranks.
  """

  config: 'Config'  # of the stage's own run
  name: str
  path: str = ''
  clusters: int | None = None


@dataclasses.dataclass
class Model(ConfigPart, abstract=True):
  """Holds the settings of one kind of model, which ranks labels of documents.

  Attributes:
    reads: the classes of data.tokens that the model can use.
    trained_by: the class of config.train, with the settings of the training.
    chooses: whether the settings stand for a model that is chosen by the corpus
      when a run starts.
    has_steps: whether training takes optimizer steps and keeps checkpoints.
    several_processes: whether several processes can train one model together.
    label_independent_files: paths in the run's folder of files that do not
      depend on labels. A stage for another part of the same documents may start
      with copies of them.
  """

  reads: ClassVar[tuple[type[TokensConfig], ...]] = ()
  trained_by: ClassVar[type[TrainConfig]] = NoTrain
  chooses: ClassVar[bool] = False
  has_steps: ClassVar[bool] = False
  several_processes: ClassVar[bool] = False
  label_independent_files: ClassVar[tuple[str, ...]] = ()

  def check(self, corpus: Corpus, run: 'Run') -> None:
    """Checks that the model can be fitted to a corpus; writes nothing.

    The corpus has a split train, and the run is new or resumed.

    Raises:
      ConfigError, DataError: the model cannot be fitted; the message names the
        field, the document or the label.
    """
    del corpus
    check_one_process(run.config)

  @abc.abstractmethod
  def fit(self, corpus: Corpus, run: 'Run') -> None:
    """Fits the model, or continues an earlier fit from the files of the run.

    It leaves files in the folder of the run, and nothing else.

    Raises:
      Preempted: SIGTERM or Ctrl-C came; another call continues the fit.
    """

  @abc.abstractmethod
  def open(self, run: 'Run') -> 'Scorer':
    """Returns the trained model; only files of the run's folder are read.

    Raises:
      DataError: a file is missing or damaged.
    """

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

    If a resumed run has other values, its lists are judged again. By default,
    these are the fields that may change.
    """
    fields = dataclasses.fields(self)
    return {
      x.name: to_json(getattr(self, x.name))
      for x in fields
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
    del run
    return ()

  def trained_stages(self, config: 'Config') -> tuple[TrainedStage, ...]:
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


def _neural_train() -> TrainConfig:
  return kind_named('NeuralTrain', TrainConfig)()


@dataclasses.dataclass
class Config(ConfigPart):
  """Holds all settings of one run."""

  seed: int = field(0, 'Seed of all random numbers.', SEED)
  data: DataConfig = field(SyntheticData, 'The corpus, and how it is read.')
  model: Model = field(default_model, 'The model, which scores labels.')
  train: TrainConfig = field(_neural_train, 'How the model is trained.')
  eval: EvalConfig = field(EvalConfig, 'How the model is judged.')
  mesh: MeshConfig = field(
    MeshConfig, 'The devices on which the model is trained.', may_change=True
  )


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """Holds what a model is fitted and opened with: a folder, a config, a signal.

  Attributes:
    preemption: notices SIGTERM and Ctrl-C; its context has been entered. None
      if the run is only opened.
    given: what the run that this stage belongs to has computed for it.
    made: what `check` and `fit` have made and later calls need not make again.
  """

  config: Config
  folder: Workdir
  preemption: 'Preemption | None' = None
  profile: tuple[int, int] | None = None  # first and last step of jax.profiler
  step: int | None = None  # of the checkpoint that is opened; None for the best
  given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  made: dict[Hashable, Any] = dataclasses.field(default_factory=dict)

  def once(
    self,
    path: pathlib.Path,
    build: Callable[[], Callable[[pathlib.Path], None]],
    read: Callable[[pathlib.Path], T],
  ) -> T:
    """Reads an artefact of the run, which is built and written if absent.

    With several processes, all of them build, and host 0 writes.

    Args:
      path: a file in the folder of the run.
      build: computes the artefact, and returns a function that writes it to a
        path, at once or not at all.
      read: reads the file. A changed or damaged file raises a DataError.
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
    # The reader of a damaged file knows best what is wrong. The digest then
    # finds files that can be read but have changed.
    artefact = read(path)
    self.folder.check(path)
    return artefact

  def label_space(self) -> LabelSpace:
    """Returns the labels of a run that was begun; they are read once."""
    if _LABELS not in self.made:
      self.made[_LABELS] = self.folder.label_space()
    return self.made[_LABELS]

  def begin(self, corpus: Corpus) -> None:
    """Writes the labels and the config of a new or resumed run.

    It raises a ConfigError or DataError if the run has another config or
    corpus.
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
    """Returns the run of a stage, with the config of that run.

    `given` is what this run has computed for the stage.
    """
    return Run(
      config, self.folder.stage(name), self.preemption, given=given or {}
    )

  def fitted(self, corpus: Corpus) -> Scorer:
    """Checks, fits and opens the model of the run.

    Raises:
      UserError: the model cannot be fitted; the message says why.
      Preempted: SIGTERM or Ctrl-C came; another call continues.
    """
    model = self.config.model
    # The lock is held until the model is open, so that no other process resumes
    # the run in between.
    with self.folder.locked():
      check_resumable(self.config, self.folder)
      model.check(corpus, self)
      self.begin(corpus)
      model.fit(corpus, self)
      return model.open(self)

  def stage(self, stage: 'Run', corpus: Corpus) -> Scorer:
    """Checks, fits and opens the model of a stage, which `sub` has returned.

    What an earlier start of the run has finished is not done again. If it has
    changed since, a DataError is raised; see `fitted` for other errors.
    """
    self.folder.check(stage.folder.digest_list)
    # A resumed stage may have other settings, such as another data folder. So
    # its digest is recorded again.
    with self.folder.recording(stage.folder.digest_list):
      logging.info('stage %s', stage.folder.path)
      return stage.fitted(corpus)

  def open_stage(self, name: str) -> Scorer:
    """Opens the model of a complete stage, if its files have not changed."""
    folder = self.folder.stage(name)
    self.folder.check(folder.digest_list)
    return open_folder(folder)[1]

  def calibration(self, scorer: Scorer) -> Calibration | None:
    """Returns the calibration of the scores of this run's scorer, if any."""
    method = self.config.eval.calibration
    return saved_calibration(
      self.folder, method, scorer.step, scorer.score_kind
    )[0]


DATA = 'data'  # the folder of a workdir with documents that were in memory
_ADVICE = 'xjax evaluate --split=dev calibrates those of the best checkpoint'


@loading_libraries()  # modules of the kinds that the file names
def load_config(path: str | os.PathLike) -> Config:
  """Reads a config.json.

  Raises:
    DataError: the file is absent, damaged, or from another version of xjax; or
      a field is not within its bounds.
  """
  return read_part(path, Config, check_values)


def open_folder(folder: Workdir, step: int | None = None) -> tuple[Run, Scorer]:
  """Opens the model of a run; only files of the workdir are read.

  Args:
    folder: workdir of the run.
    step: step of the checkpoint to open; None for the best one. No other is
      opened in place of a damaged checkpoint.

  Raises:
    ConfigError: `step` is set, but the model has no optimizer steps.
    DataError: there is no run, or a file is missing or damaged.
  """
  folder.check_has_run()
  config = _with_moved_data(load_config(folder.config), folder)
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


def _with_moved_data(config: Config, folder: Workdir) -> Config:
  """Corrects data.dir if documents in the workdir have moved with it."""
  before, now = config.data.dir, folder.path / DATA
  # Documents that were in memory are saved in the workdir, under an absolute
  # path that is wrong once the workdir has moved.
  is_own = os.path.basename(before) == DATA and now.is_dir()
  if not is_own or os.path.exists(before):
    return config
  data = dataclasses.replace(config.data, dir=str(now))
  return dataclasses.replace(config, data=data)


def check_resumable(config: Config, folder: Workdir) -> list[ConfigDifference]:
  """Returns how a config differs from the saved one; writes nothing.

  A resumed run is allowed to change all the fields that are returned.

  Raises:
    ConfigError: the run was started with another config; the message shows the
      fields that differ and must not change.
    DataError: config.json is damaged, or missing although there are
      checkpoints.
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

  Raises:
    DataError: calibration.json or corpus.json is damaged.
  """
  if method is Method.NONE:
    return None, ''
  path, dev = folder.calibration, folder.digests().get(DEV)
  if not path.exists():
    return None, f'no {path}; {_ADVICE}' if dev is not None else ''
  calibration = Calibration.load(path)
  folder.check(
    path,
    'Remove the file, and run xjax evaluate --split=dev to write it again',
  )
  # Users can add a dev split to the data folder after the run was started. The
  # run has no digest of such a split, so any digest is accepted.
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
