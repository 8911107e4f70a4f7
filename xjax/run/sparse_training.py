"""What trains linear models and label trees: data in, weights out."""

from collections.abc import Callable
import dataclasses
import pathlib

import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize

from xjax.config.run import Config
from xjax.config.sparse import Blocks, Liblinear, OnDevices
from xjax.core.errors import ConfigError
from xjax.core.mesh import make_mesh
from xjax.core.types import Ragged
from xjax.data.files.faults import Faults
from xjax.data.formats.taxonomy import read_taxonomy
from xjax.data.schema import LabelSpace, Split
from xjax.data.text.words import split_terms
from xjax.score.linear.batched import fit_batched
from xjax.score.linear.block_weights import BlockWeights
from xjax.score.linear.dual import Solver
from xjax.score.linear.liblinear import fit_liblinear
from xjax.score.linear.part_files import PartFiles
from xjax.score.trees.build import complete_tree
from xjax.score.trees.config import (
  ClusterTree,
  LabelFeatures,
  TaxonomyTree,
  TreeConfig,
)
from xjax.score.trees.growing import grow_tree
from xjax.score.trees.label_features import pifa, strongest
from xjax.score.trees.label_tree import LabelTree
from xjax.score.trees.taxonomy import taxonomy_tree
from xjax.score.trees.training import fit_tree
from xjax.train.sparse_inputs import SparseInputs, TextInputs


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingData:
  """What classifiers learn from.

  Attributes:
    split: of training.
    rows: float32 [N, D], its features.
    gold: N rows of trained labels.
    space: the labels.
    inputs: made the features.
  """

  split: Split
  rows: sparse.csr_array
  gold: Ragged
  space: LabelSpace
  inputs: SparseInputs


def train_linear(
  config: Config,
  data: TrainingData,
  parts: PartFiles,
  between: Callable[[], None],
) -> tuple[LabelTree, BlockWeights]:
  """One classifier per label, below one root.

  Args:
    config: with LinearTrain.
    data: to learn from.
    parts: where finished batches of labels are kept, and taken from.
    between: called now and then; may raise.
  """
  n_labels, train = data.space.n_trained, config.train
  flat = complete_tree(n_labels, max(2, n_labels))
  common = {'threshold': train.threshold, 'parts': parts, 'between': between}
  problem = {'loss': train.loss, 'c': train.c, **common}
  match train.solver:
    case Blocks(eps, max_epochs, workers):
      solver = Solver(train.loss, train.c, eps, max_epochs)
      return flat, _fit_tree(data, flat, solver, config.seed, workers, **common)
    case Liblinear():
      options = dataclasses.asdict(train.solver) | problem
      made = fit_liblinear(data.rows, data.gold, n_labels, **options)
    case OnDevices():
      options = dataclasses.asdict(train.solver) | problem
      options['mesh'] = make_mesh(config.mesh)
      made = fit_batched(data.rows, data.gold, n_labels, **options)
    case solver:
      raise TypeError(f'nothing trains by {solver!r}')
  return flat, BlockWeights.of([made], flat.columns, made.weights.nnz)


def train_tree(
  config: Config,
  data: TrainingData,
  number: int,
  parts: PartFiles,
  between: Callable[[], None],
) -> tuple[LabelTree, BlockWeights]:
  """A label tree and its classifiers.

  Args:
    config: with TreeModel and TreeTrain.
    data: to learn from.
    number: of the tree in its ensemble; decides its seed.
    parts: where finished parts are kept, and taken from.
    between: called after each part; may raise.
  """
  train, shape = config.train, config.model.tree
  seed = config.seed * 1000 + number
  tree = grow_tree(
    shape,
    data.space,
    data.gold,
    lambda: _clustered_by(shape, data),
    _parents(shape, data.space),
    seed,
    train.workers,
  )
  solver = Solver(train.loss, train.c, train.eps, train.max_epochs)
  return tree, _fit_tree(
    data, tree, solver, seed, train.workers, train.threshold, parts, between
  )


def _fit_tree(
  data: TrainingData,
  tree: LabelTree,
  solver: Solver,
  seed: int,
  workers: int,
  threshold: float,
  parts: PartFiles,
  between: Callable[[], None],
) -> BlockWeights:
  """The classifiers of a tree; parts are told by all that decides them."""
  return fit_tree(
    data.rows,
    data.gold,
    tree,
    solver,
    seed=seed,
    threshold=threshold,
    workers=workers,
    parts=parts.of(data.rows, data.gold, tree, solver, seed, threshold),
    between=between,
  )


def _clustered_by(shape: ClusterTree, data: TrainingData) -> sparse.csr_array:
  features = _label_features(shape.features, shape.max_features, data)
  return normalize(features, copy=False) if shape.spherical else features


def _label_features(
  kind: LabelFeatures, n: int, data: TrainingData
) -> sparse.csr_array:
  n_labels = data.space.n_trained
  match kind:
    case LabelFeatures.PIFA:
      return pifa(data.rows, data.gold, n_labels, n=n)
    case LabelFeatures.PIFA_BY_LENGTH:
      words = [len(split_terms(x.text())) for x in data.split.documents]
      return pifa(data.rows, data.gold, n_labels, np.array(words), n)
    case LabelFeatures.NAMES:
      names = [' '.join((x.name, *x.alt)) for x in data.space.labels]
      assert isinstance(data.inputs, TextInputs)  # config_check sees to it
      features = data.inputs.featurise(names[:n_labels])
      return strongest(features, n) if n else features


def check_tree(shape: TreeConfig, space: LabelSpace) -> None:
  """Refuses a taxonomy in which labels make no tree; of other kinds they do.

  Raises:
    ConfigError: no label has a parent.
    DataError: a fault in its file, or a label that is its own ancestor.
  """
  if isinstance(shape, TaxonomyTree):
    parents, ids = _parents(shape, space), space.ids[: space.n_trained]
    taxonomy_tree(ids, parents, Ragged.of([]))


def _parents(shape: TreeConfig, space: LabelSpace) -> dict:
  """Id -> parents; of labels that are not trained too, between others."""
  if not isinstance(shape, TaxonomyTree):
    return {}
  labels = space.labels
  if shape.file:
    faults = Faults(on_error=None)
    found = read_taxonomy(pathlib.Path(shape.file).expanduser(), faults)
    faults.settle()
    labels = found.labels.values()
  parents = {label.id: label.parents for label in labels}
  if not any(parents.values()):
    raise ConfigError(
      'config.model.tree=TaxonomyTree(): no label has a parent; name a taxonomy'
      ' in config.model.tree.file'
    )
  return parents
