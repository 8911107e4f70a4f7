"""Defines what all models of linear classifiers over sparse features share."""

import abc
import dataclasses
import os
import pathlib
import shutil
from typing import ClassVar

from absl import logging

from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.core.config_part import AT_LEAST_1, POSITIVE, field
from xjax.core.progress import Progress
from xjax.core.types import ScoreKind
from xjax.data.documents import Documents
from xjax.data.files.faults import plural
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.label_trees.label_tree import LabelTree, TreeInputs
from xjax.data.schema import Corpus
from xjax.models.contract import Config, Run
from xjax.models.features import (
  FeaturesModel,
  Featuriser,
  check_sizes,
  fit_featuriser,
  open_featuriser,
)
from xjax.models.linear.block_weights import BlockWeights
from xjax.models.linear.classifiers import PartFiles
from xjax.models.linear.dual import Loss, Solver
from xjax.models.scorer import Scorer, cannot_add
from xjax.models.trees.training import Matcher, fit_tree
from xjax.models.trees.tree_scorer import TreeScorer
from xjax.models.trees.tree_search import Link, TreeSearch
from xjax.train.train_config import TrainConfig
from xjax.train.workdir import Workdir

_TREE, _WEIGHTS = 'tree', 'weights'  # prefixes of names in a file


@dataclasses.dataclass
class SparseTrain(TrainConfig, abstract=True):
  """Configures the training of linear classifiers by LIBLINEAR's methods."""

  positive_weight = 1.0

  loss: Loss = field(Loss.SQUARED_HINGE, 'The loss of one document.')
  c: float = field(
    1.0,
    'Factor of the sum of all document losses (C in LIBLINEAR). The '
    'regulariser has the factor 1.',
    POSITIVE,
  )
  eps: float = field(
    0.1,
    'Training ends when the optimality conditions are violated by at most this '
    'number, as in LIBLINEAR.',
    POSITIVE,
  )
  max_epochs: int = field(
    100, 'Largest number of passes over the documents.', AT_LEAST_1
  )
  workers: int = field(2, 'Number of threads.', AT_LEAST_1, may_change=True)

  @property
  def solver(self) -> Solver:
    stop, weight = (self.eps, self.max_epochs), self.positive_weight
    return Solver(self.loss, self.c, *stop, weight, self.threshold)


@dataclasses.dataclass
class SparseModel(FeaturesModel, abstract=True):
  """Scores labels by linear classifiers over sparse features of documents."""

  beam = 1  # nodes that are opened for a document at each depth, if not exact
  exact = True  # whether every node that may have a best label is opened
  chained: ClassVar[bool] = True  # whether nodes above a label add to its score
  above: ClassVar[bool] = True  # whether nodes above the deepest are trained
  n_trees = 1

  @abc.abstractmethod
  def build_tree(
    self, data: TreeInputs, run: Run
  ) -> tuple[LabelTree, Matcher | None]:
    """Builds the tree of a model file, and what its labels also learn from."""

  def fit_featuriser(self, corpus: Corpus, run: Run) -> Featuriser:
    return fit_featuriser(corpus.splits[TRAIN], run)

  def open_featuriser(self, run: Run, n_features: int) -> Featuriser:
    return open_featuriser(run, n_features)

  def fit(self, corpus: Corpus, run: Run) -> None:
    featuriser = self.fit_featuriser(corpus, run)
    files = self.files(run.folder)
    # A finished run needs no features.
    if not all(path.exists() for path in files):
      data = _tree_data(corpus, featuriser)
      # Only trained parts are worth saving. So while features are computed, a
      # signal stops the run at once.
      with run.preemption.deferred():
        run.preemption.check()
        for number, path in enumerate(files):
          if not path.exists():
            self._train_and_save(path, number, data, run)
    # Parts are removed last, when all model files are there.
    for path in files:
      shutil.rmtree(_parts_of(path), ignore_errors=True)

  def open(self, run: Run) -> Scorer:
    searches, space = self._searches(run), run.label_space()
    # Runs over given features learn their number from the model file.
    n_features = searches[0].weights.n_features
    featuriser = self.open_featuriser(run, n_features)
    wanted = {'label': space.n_trained, 'feature': featuriser.n_features}
    for path, search in zip(self.files(run.folder), searches, strict=True):
      own = search.tree.n_labels, search.weights.n_features
      check_sizes(path, dict(zip(wanted, own)), wanted)
    scorer = self.scorer(searches, featuriser, run)
    scorer.fixed_labels = cannot_add(type(self).__name__)
    return scorer

  def scorer(
    self, searches: list[TreeSearch], featuriser: Featuriser, run: Run
  ) -> Scorer:
    """Returns the scorer of a run, from the searches of its model files."""
    return TreeScorer(
      searches,
      self.score_kind(run.config),
      featuriser,
      beam=self.beam,
      exact=self.exact,
      workers=max(1, run.config.data.workers),
      block=run.config.eval.batch_size,
    )

  def size(self, run: Run) -> int:
    return sum(path.stat().st_size for path in self.files(run.folder))

  def files(self, folder: Workdir) -> list[pathlib.Path]:
    """Returns the files of all trees; a linear model is one flat tree."""
    names = ['labels']
    if self.chained:
      names = [f'tree_{number}' for number in range(self.n_trees)]
    return [folder.model / f'{name}.npz' for name in names]

  def link(self, config: Config) -> Link:
    if not self.chained:
      return Link.NONE
    logistic = config.train.loss is Loss.LOGISTIC
    return Link.SIGMOID if logistic else Link.L3_HINGE

  def score_kind(self, config: Config) -> ScoreKind:
    logistic = config.train.loss is Loss.LOGISTIC
    return ScoreKind.LOGIT if logistic else ScoreKind.MARGIN

  def _train_and_save(
    self, path: pathlib.Path, number: int, data: TreeInputs, run: Run
  ) -> None:
    parts = PartFiles(_parts_of(path))
    tree, weights = self.train_file(number, data, parts, run)
    with Progress(f'writing {path.name}'), run.folder.recording(path):
      save_tree(path, tree, weights)
    count = plural(len(weights.values), 'weight')
    logging.info('%s: %s; %s', path.name, tree, count)

  def train_file(
    self, number: int, data: TreeInputs, parts: PartFiles, run: Run
  ) -> tuple[LabelTree, BlockWeights]:
    """Trains a tree and its weights; finished parts are read."""
    config = run.config
    # Trees of one run, and of runs with other seeds, have different seeds.
    seed = config.seed * 1000 + number if self.chained else config.seed
    data = dataclasses.replace(data, seed=seed, workers=config.train.workers)
    tree, matcher = self.build_tree(data, run)
    check = run.preemption.check
    weights = fit_tree(
      data, tree, config.train.solver, parts, check, matcher, self.above
    )
    return tree, weights

  def _searches(self, run: Run) -> list[TreeSearch]:
    link, searches = self.link(run.config), []
    with Progress('reading the model'):
      for path in self.files(run.folder):
        searches.append(TreeSearch(*run.read(path, load_tree), link))
    return searches


def _tree_data(corpus: Corpus, featuriser: Featuriser) -> TreeInputs:
  split, space = corpus.splits[TRAIN], corpus.label_space
  documents = Documents.of(split.documents)
  rows = featuriser.in_chunks(documents, f'features of {split.name}')
  # Only featurisers of texts have a function that computes features of texts.
  texts = getattr(featuriser, 'featurise', None)
  return TreeInputs(space, corpus.trained_gold, rows, texts)


def _parts_of(path: pathlib.Path) -> pathlib.Path:
  return path.with_suffix('.parts')


def save_tree(
  path: str | os.PathLike, tree: LabelTree, weights: BlockWeights
) -> None:
  """Writes a tree and its classifiers to a compressed .npz file."""
  parts = {_TREE: tree.arrays(), _WEIGHTS: weights.arrays()}
  arrays = {
    f'{part}/{name}': array
    for part, arrays in parts.items()
    for name, array in arrays.items()
  }
  write_npz(path, arrays, packed=True)


def load_tree(path: str | os.PathLike) -> tuple[LabelTree, BlockWeights]:
  """Reads a tree and its classifiers from a file that save_tree wrote."""
  arrays = Arrays.read(path)
  tree = LabelTree.take(arrays, _TREE)
  weights = BlockWeights.take(arrays, _WEIGHTS, tree.columns)
  arrays.finish()
  return tree, weights
