"""Fits and loads linear models and label trees over sparse features."""

import abc
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import pathlib
import shutil
import time
import typing

from absl import logging

from xjax.core.distributed import barrier, is_host0, process_count
from xjax.core.errors import ConfigError, DataError
from xjax.core.progress import Progress
from xjax.core.types import ScoreKind, Scorer
from xjax.data.files.faults import plural
from xjax.data.formats.draft import TRAIN
from xjax.data.label_trees.complete import complete_tree
from xjax.data.label_trees.label_tree import LabelTree, load_tree, save_tree
from xjax.data.label_trees.tree_config import TreeData
from xjax.data.quality import check_train_labels
from xjax.data.schema import Corpus, LabelSpace
from xjax.models.config import Config
from xjax.models.fit_contract import Fit, Fitted
from xjax.models.linear.block_weights import BlockWeights
from xjax.models.linear.part_files import PartFiles
from xjax.models.linear.problem import Loss, OneVsAllProblem
from xjax.models.load import JUDGED, calibrated
from xjax.models.model_configs import LinearModel, TreeModel
from xjax.models.predictor import Predictor
from xjax.models.sparse_inputs import (
  SparseInputs,
  TextInputs,
  check_features,
  kept_inputs,
  saved_inputs,
)
from xjax.models.trees.training import fit_tree
from xjax.models.trees.tree_matcher import TreeMatcher
from xjax.models.trees.tree_scorer import TreeScorer
from xjax.models.trees.tree_search import Link, TreeSearch
from xjax.models.workdir import Workdir

if typing.TYPE_CHECKING:
  from xjax.judge.judge import Metrics
  from xjax.models.staged.vectors import NewVectors
  from xjax.train.preemption import Preemption

_STEP = 0  # the only step of models without optimizer steps
# Features of texts, which do not depend on labels.
FEATURE_FILES = 'features/tfidf.npz', 'features/text_vectors.npz'


@dataclasses.dataclass(frozen=True)
class SparseFit(Fit):
  """Fits linear classifiers over sparse features in the workdir of a run."""

  label_free = FEATURE_FILES

  @classmethod
  def load(cls, folder: Workdir, config: Config) -> Predictor:
    """Loads the model of a run; only files of the workdir are read.

    Raises:
      DataError: a file of the workdir is missing or damaged.
    """
    return calibrated(cls._load_uncalibrated(folder, config))

  @classmethod
  def _load_uncalibrated(cls, folder: Workdir, config: Config) -> Predictor:
    """Loads the model without its calibration."""
    searches, space = _searches(folder, config), folder.label_space()
    n_features = searches[0].weights.n_features
    inputs = cls.saved_inputs(folder, config, n_features)
    _check_sizes(_files(folder, config), searches, inputs, space)
    scorer = cls.scorer(config, searches, inputs)
    return Predictor(config, space, inputs, scorer, _STEP, folder)

  @classmethod
  def saved_inputs(
    cls, folder: Workdir, config: Config, n_features: int
  ) -> SparseInputs:
    """Returns the inputs of a run, from the files of its workdir.

    Args:
      folder: workdir of the run.
      config: config of the run.
      n_features: number of features, if documents already have features.

    Raises:
      DataError: a file is missing or damaged.
    """
    return saved_inputs(config, folder, n_features)

  @classmethod
  def scorer(
    cls, config: Config, searches: list[TreeSearch], inputs: SparseInputs
  ) -> Scorer:
    """Returns the scorer of a run.

    Args:
      config: config of the run.
      searches: the searches of its model files.
      inputs: the inputs of the run.
    """
    del inputs
    model, kind = config.model, score_kind(config)
    return TreeScorer(
      searches,
      kind,
      beam=model.beam,
      exact=model.exact,
      workers=max(1, config.data.workers),
    )

  @abc.abstractmethod
  def train_file(
    self,
    number: int,
    data: TreeData,
    parts: PartFiles,
    between: Callable[[], None],
  ) -> tuple[LabelTree, BlockWeights]:
    """Trains the contents of one model file: a tree and its weights.

    Args:
      number: int, number of the file.
      data: training data.
      parts: files of finished parts; these parts are read, not trained again.
      between: function that is called after each part. An exception that it
        raises stops the training.
    """

  def check_start(self) -> None:
    """Checks the number of processes.

    Raises:
      ConfigError: there are several processes, but the model can only be
        trained by one process.
    """
    if process_count() > 1 and not self.config.train.processes:
      raise ConfigError(
        f'this {type(self.config.model).__name__} can only be trained by one '
        'process: start the run on one host, or use LinearModel with '
        'config.train.solver=OnDevices(...), which can use several hosts'
      )
    check_features(self.config, self.workdir)

  def check_corpus(
    self, corpus: Corpus, prior: 'Mapping[str, Metrics]'
  ) -> None:
    """Checks that at least one label has training documents.

    Raises:
      ConfigError, DataError: no label has training documents.
    """
    del prior
    check_train_labels(corpus)

  def fit(self, corpus: Corpus, preemption: 'Preemption') -> Fitted:
    """Trains the parts of the model that are not trained yet."""
    inputs = self.inputs(corpus, preemption)
    if not all(path.exists() for path in _files(self.workdir, self.config)):
      start = time.monotonic()
      data = _tree_data(corpus, inputs)
      seconds = time.monotonic() - start
      # Only trained parts are worth saving. So while features are computed, a
      # signal stops the run at once.
      with preemption.deferred():
        self._train(data, seconds, preemption.check)
    for path in _files(self.workdir, self.config):
      shutil.rmtree(_parts_of(path), ignore_errors=True)
    self.record_search()
    kind = score_kind(self.config)
    files = _files(self.workdir, self.config)
    size = sum(path.stat().st_size for path in files)
    return Fitted(0, _STEP, kind, size, lambda: self._model(corpus))

  def record_search(self) -> None:
    """Records the search settings of the model in the workdir.

    If the search settings have changed, the model will be judged again. For
    models without search settings, the method does nothing.
    """

  def _model(self, corpus: Corpus) -> Predictor:
    # The calibration is made afterwards, when dev is judged.
    predictor = self._load_uncalibrated(self.workdir, self.config)
    return dataclasses.replace(predictor, space=corpus.label_space)

  def inputs(self, corpus: Corpus, preemption: 'Preemption') -> SparseInputs:
    """Returns the inputs of a new or resumed run, which are saved.

    Args:
      corpus: corpus of the run.
      preemption: notices SIGTERM and Ctrl-C; its context has been entered.
    """
    del preemption
    return kept_inputs(corpus.splits[TRAIN], self.config, self.workdir)

  def _train(
    self, data: TreeData, feature_seconds: float, between: Callable[[], None]
  ) -> None:
    between()
    start = time.monotonic()
    for number, path in enumerate(_files(self.workdir, self.config)):
      if not path.exists():
        self._train_file(path, number, data, between)
    logging.info(
      'time since this start of the run: %.1f s for features, %.1f s for '
      'training',
      feature_seconds,
      time.monotonic() - start,
    )

  def _train_file(
    self,
    path: pathlib.Path,
    number: int,
    data: TreeData,
    between: Callable[[], None],
  ) -> None:
    parts = PartFiles(_parts_of(path))
    tree, weights = self.train_file(number, data, parts, between)
    barrier('xjax:trained')  # wait until no process reads the file or its parts
    if is_host0():
      with (
        Progress(f'writing {path.name}'),
        self.workdir.recording(path),
      ):
        save_tree(path, tree, weights)
    barrier('xjax:saved')
    count = plural(len(weights.values), 'weight')
    logging.info('%s: %s; %s', path.name, self.describe(tree), count)

  @staticmethod
  @abc.abstractmethod
  def describe(tree: LabelTree) -> str:
    """Describes the classifiers of a model file, for the log."""


def _tree_data(corpus: Corpus, inputs: SparseInputs) -> TreeData:
  """Computes the features of the split train."""
  split, space = corpus.splits[TRAIN], corpus.label_space
  texts = inputs.featurise if isinstance(inputs, TextInputs) else None
  rows = inputs.split_rows(split)
  return TreeData(space, corpus.trained_gold, rows, split.documents, texts)


@dataclasses.dataclass(frozen=True)
class LinearFit(SparseFit):
  """Fits a linear model in the workdir of a run."""

  models = (LinearModel,)

  def train_file(
    self,
    number: int,
    data: TreeData,
    parts: PartFiles,
    between: Callable[[], None],
  ) -> tuple[LabelTree, BlockWeights]:
    return train_linear(self.config, data, parts, between)

  @staticmethod
  def describe(tree: LabelTree) -> str:
    return plural(tree.n_labels, 'classifier')


@dataclasses.dataclass(frozen=True)
class TreeFit(SparseFit):
  """Fits a label tree, or an ensemble of trees, in the workdir of a run."""

  models = (TreeModel,)

  # A run without vectors needs no JAX. So the modules of vectors are imported
  # only if they are needed.

  @classmethod
  def saved_inputs(
    cls, folder: Workdir, config: Config, n_features: int
  ) -> SparseInputs:
    """Returns the inputs of a run, with vectors if the config has them."""
    inputs = super().saved_inputs(folder, config, n_features)
    if not config.model.vectors.joins:
      return inputs
    from xjax.models.staged.vectors import saved_vectors

    return saved_vectors(config, folder).joined_to(inputs)

  @functools.cached_property
  def _vectors(self) -> 'NewVectors | None':
    """The vectors that are joined to sparse features, if there are some."""
    if not self.config.model.vectors.joins:
      return None
    from xjax.models.staged.vectors import NewVectors

    return NewVectors(self.config, self.workdir)

  def inputs(self, corpus: Corpus, preemption: 'Preemption') -> SparseInputs:
    """Returns the inputs; the stage of the encoder is trained if absent."""
    inputs = super().inputs(corpus, preemption)
    if self._vectors is None:
      return inputs
    return self._vectors.fitted(corpus, preemption).joined_to(inputs)

  def check_start(self) -> None:
    """Checks the number of processes, and the run whose vectors are used.

    Raises:
      ConfigError: there are several processes, or the run whose vectors are
        used is missing or not finished.
    """
    super().check_start()
    if self._vectors is not None:
      self._vectors.check_start()

  def check_corpus(
    self, corpus: Corpus, prior: 'Mapping[str, Metrics]'
  ) -> None:
    """Checks that the tree can be built, and the encoder can be trained.

    Raises:
      ConfigError, DataError: no label has training documents, the kind of tree
        cannot be built for these labels, or the stage of the encoder cannot be
        trained.
    """
    super().check_corpus(corpus, prior)
    self.config.model.tree.check_labels(corpus.label_space)
    if self._vectors is not None:
      self._vectors.check_corpus(corpus)

  def record_search(self) -> None:
    """Writes search.json. If it has changed, the model will be judged again."""
    model = self.config.model
    beam = None if model.exact else model.beam
    search = {'beam': beam, 'exact': model.exact}
    if model.n_trees > 1:
      # Earlier versions of xjax did not write this field, and may have given
      # two scores to one label of an ensemble. Without the field in the file,
      # the model is judged again.
      search['trees'] = model.n_trees
    self.workdir.record_search(search, JUDGED)

  def train_file(
    self,
    number: int,
    data: TreeData,
    parts: PartFiles,
    between: Callable[[], None],
  ) -> tuple[LabelTree, BlockWeights]:
    return train_tree(self.config, data, number, parts, between)

  @staticmethod
  def describe(tree: LabelTree) -> str:
    return str(tree)


def train_linear(
  config: Config,
  data: TreeData,
  parts: PartFiles,
  between: Callable[[], None],
) -> tuple[LabelTree, BlockWeights]:
  """Trains one classifier per label.

  Args:
    config: config with LinearTrain.
    data: training data.
    parts: files of finished batches of labels; these batches are read, not
      trained again.
    between: function that is called from time to time. An exception that it
      raises stops the training.

  Returns:
    A tree with all labels directly below its root, and the labels' weights.
  """
  n_labels, train = data.space.n_trained, config.train
  problem = OneVsAllProblem(
    data.rows,
    data.gold,
    n_labels,
    loss=train.loss,
    c=train.c,
    threshold=train.threshold,
    seed=config.seed,
    mesh=config.mesh,
    parts=parts,
    between=between,
  )
  flat = complete_tree(n_labels, max(2, n_labels))
  return flat, train.solver.fit(problem)


def train_tree(
  config: Config,
  data: TreeData,
  number: int,
  parts: PartFiles,
  between: Callable[[], None],
) -> tuple[LabelTree, BlockWeights]:
  """Builds a label tree and trains its classifiers.

  Args:
    config: config with TreeModel and TreeTrain.
    data: training data.
    number: int, number of the tree in its ensemble; the seed depends on it.
    parts: files of finished parts; these parts are read, not trained again.
    between: function that is called after each part. An exception that it
      raises stops the training.

  Returns:
    The tree and the weights of its classifiers.
  """
  train, seed = config.train, config.seed * 1000 + number
  data = dataclasses.replace(data, seed=seed, workers=train.workers)
  with Progress('building the label tree'):
    tree = config.model.tree.build(data)
  return tree, fit_tree(
    data.rows,
    data.gold,
    tree,
    train.solver,
    seed=seed,
    threshold=train.threshold,
    workers=train.workers,
    parts=parts,
    between=between,
    matcher=TreeMatcher(train.matched, _link(config))
    if train.matched
    else None,
  )


def _files(folder: Workdir, config: Config) -> list[pathlib.Path]:
  """Returns the files of all trees; a linear model is one flat tree."""
  model = config.model
  names = [f'tree_{number}' for number in range(model.n_trees)]
  names = names if model.chained else ['labels']
  return [folder.model / f'{name}.npz' for name in names]


def _parts_of(path: pathlib.Path) -> pathlib.Path:
  """Returns the folder with the finished parts of a file."""
  return path.with_suffix('.parts')


def _searches(folder: Workdir, config: Config) -> list[TreeSearch]:
  link, searches = _link(config), []
  with Progress('reading the model'):
    for path in _files(folder, config):
      searches.append(TreeSearch(*load_tree(path), link))
      folder.check(path)
  return searches


def _check_sizes(
  files: Sequence[pathlib.Path],
  searches: Sequence[TreeSearch],
  inputs: SparseInputs,
  space: LabelSpace,
) -> None:
  """Checks that files have as many labels and features as the run."""
  run_sizes = space.n_trained, inputs.n_features
  for path, search in zip(files, searches, strict=True):
    sizes = search.tree.n_labels, search.weights.n_features
    if sizes != run_sizes:
      raise DataError(
        f'{path}: has {_sizes_text(sizes)}, but the run has '
        f'{_sizes_text(run_sizes)}; is this a file of another run?'
      )


def _sizes_text(sizes: tuple[int, int]) -> str:
  n_labels, n_features = sizes
  return f'{plural(n_labels, "label")} and {plural(n_features, "feature")}'


def _link(config: Config) -> Link:
  if not config.model.chained:
    return Link.NONE
  logistic = config.train.loss is Loss.LOGISTIC
  return Link.SIGMOID if logistic else Link.L3_HINGE


def score_kind(config: Config) -> ScoreKind:
  """Returns the kind of the scores of linear classifiers."""
  logistic = config.train.loss is Loss.LOGISTIC
  return ScoreKind.LOGIT if logistic else ScoreKind.MARGIN
