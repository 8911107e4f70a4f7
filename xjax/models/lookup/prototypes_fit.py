"""Defines runs that compare documents with prototypes of labels.

A prototype is the sum of two vectors, those of the label's name and of its
training documents. Nothing is trained. The workdir keeps one prototype per
label.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import pathlib

import numpy as np
from scipy import sparse

from xjax.core.arrays import Arrays, matrix_arrays
from xjax.core.atomic import write_npz
from xjax.core.errors import DataError
from xjax.core.progress import Progress
from xjax.core.types import Ragged, ScoreKind
from xjax.data.formats.draft import TRAIN
from xjax.data.label_trees.complete import complete_tree
from xjax.data.new_labels import add_new_labels
from xjax.data.quality import check_train_labels
from xjax.data.schema import Corpus, Label, LabelSpace
from xjax.data.text.words import has_letters
from xjax.models.config import Config
from xjax.models.fit_contract import Fitted
from xjax.models.linear.block_weights import BlockWeights
from xjax.models.linear.classifiers import Classifiers
from xjax.models.load import calibrated
from xjax.models.lookup.exact_match import check_letters
from xjax.models.lookup.untrained import UntrainedFit
from xjax.models.model_configs import PrototypesModel
from xjax.models.predictor import Predictor, check_describes
from xjax.models.sparse_inputs import (
  SparseInputs,
  TextInputs,
  kept_inputs,
  saved_inputs,
)
from xjax.models.trees.tree_scorer import TreeScorer
from xjax.models.trees.tree_search import Link, TreeSearch
from xjax.models.workdir import Workdir
from xjax.run.judging import Metrics
from xjax.train.preemption import Preemption

_STEP = 0  # the only step, because nothing is trained
_NAMES = 512  # number of names whose features are computed at a time
_ASSIGNED_ABOVE = 0.5  # a cosine


@dataclasses.dataclass(frozen=True, eq=False)
class PrototypePredictor(Predictor):
  """Predicts labels whose prototypes are similar to a document.

  Attributes:
    prototypes: float32 [L, D], the prototypes of the L labels.
  """

  prototypes: sparse.csr_array = dataclasses.field(kw_only=True)

  def with_labels(self, labels: Sequence[Label]) -> 'PrototypePredictor':
    """Returns a predictor with more labels, as Predictor.with_labels does.

    The prototypes of the new labels are the features of their names.
    """
    check_describes(self.config)
    space = add_new_labels(self.space, labels)
    rows = _scaled(_name_rows(self.inputs, [label.name for label in labels]))
    prototypes = sparse.vstack([self.prototypes, rows], format='csr')
    parts = self.config, space, self.inputs, prototypes, self.workdir
    predictor = _predictor(*parts)
    return dataclasses.replace(predictor, calibration=self.calibration)


def _predictor(
  config: Config,
  space: LabelSpace,
  inputs: SparseInputs,
  prototypes: sparse.csr_array,
  folder: Workdir,
) -> PrototypePredictor:
  """Returns the model of a run, with these prototypes."""
  # Cosines are the scores of linear classifiers whose weights are prototypes.
  n_labels = prototypes.shape[0]
  flat = complete_tree(n_labels, max(2, n_labels))
  # Labels without a prototype rank last. No cosine is below -1.
  bias = np.where(np.diff(prototypes.indptr) > 0, 0, -2).astype(np.float32)
  columns = sparse.csc_array(prototypes.T)
  columns.sort_indices()
  parts = [Classifiers(columns, bias)]
  weights = BlockWeights.of(parts, flat.columns, columns.nnz)
  scorer = TreeScorer(
    [TreeSearch(flat, weights, Link.NONE)],
    ScoreKind.MARGIN,
    beam=1,
    exact=True,
    workers=max(1, config.data.workers),
  )
  scorer.assigned_above = _ASSIGNED_ABOVE
  parts = config, space, inputs, scorer, _STEP, folder
  return PrototypePredictor(*parts, prototypes=prototypes)


def _prototypes(
  inputs: SparseInputs, corpus: Corpus, model: PrototypesModel
) -> sparse.csr_array:
  """Returns the prototypes of all labels that a run can score.

  These are the trained labels. If names are parts of prototypes, they are also
  the held-out labels and the labels without training documents.
  """
  space, parts = corpus.label_space, []
  n_labels = space.n_inside if model.names else space.n_trained
  if model.names:
    names = [label.name for label in space.labels[:n_labels]]
    parts.append(_name_rows(inputs, names))
  if model.centroids:
    rows = inputs.split_rows(corpus.splits[TRAIN])
    parts.append(_centroids(rows, corpus.trained_gold, n_labels))
  whole = parts[0] if len(parts) == 1 else parts[0] + parts[1]
  return _scaled(whole)


def _name_rows(inputs: SparseInputs, names: Sequence[str]) -> sparse.csr_array:
  """Returns the features of names; names without a letter have none."""
  assert isinstance(inputs, TextInputs)
  named = np.array([has_letters(name) for name in names], bool)
  starts = range(0, len(names), _NAMES)
  parts = [sparse.csr_array((0, inputs.n_features), dtype=np.float32)]
  with Progress('features of label names', len(names)) as shown:
    for start in starts:
      parts.append(inputs.featurise(names[start : start + _NAMES]))
      shown.update(parts[-1].shape[0])
  rows = sparse.vstack(parts, format='csr')
  return sparse.csr_array(sparse.diags_array(named.astype(np.float32)) @ rows)


def _centroids(
  rows: sparse.csr_array, gold: Ragged, n_labels: int
) -> sparse.csr_array:
  """Returns the sum of the features of each label's documents, of length 1."""
  ones = np.ones(len(gold.values), np.float32)
  parts = ones, gold.values, gold.indptr
  labels = sparse.csr_array(parts, (rows.shape[0], n_labels))
  return _scaled(sparse.csr_array(labels.T @ _scaled(rows)))


def _scaled(rows: sparse.csr_array) -> sparse.csr_array:
  """Returns rows of length 1 with ascending columns; rows of zeros stay."""
  norms = np.sqrt(rows.multiply(rows).sum(axis=1))
  scales = 1 / np.where(norms > 0, norms, 1)
  scaled = sparse.csr_array(sparse.diags_array(scales) @ rows)
  scaled.eliminate_zeros()
  scaled.sort_indices()
  return scaled.astype(np.float32)


def load_prototypes(folder: Workdir, config: Config) -> PrototypePredictor:
  """Loads the model of a run; only files of the workdir are read.

  Raises:
    DataError: a file of the workdir is missing or damaged.
  """
  return calibrated(_load_uncalibrated(folder, config))


def _load_uncalibrated(folder: Workdir, config: Config) -> PrototypePredictor:
  path, space = _file(folder), folder.label_space()
  arrays = Arrays.read(path)
  n_features = arrays.count('features')
  prototypes = arrays.matrix('prototypes', n_features)
  arrays.finish()
  folder.check(path)
  inputs = saved_inputs(config, folder, n_features)
  n_labels = space.n_inside if config.model.names else space.n_trained
  if prototypes.shape != (n_labels, inputs.n_features):
    raise DataError(
      f'{path}: has {prototypes.shape[0]} labels and {n_features} features, '
      f'but the run has {n_labels} and {inputs.n_features}; is this a file of '
      'another run?'
    )
  return _predictor(config, space, inputs, prototypes, folder)


def _file(folder: Workdir) -> pathlib.Path:
  """Returns the path of the prototypes."""
  return folder.model / 'prototypes.npz'


@dataclasses.dataclass(frozen=True)
class PrototypesFit(UntrainedFit):
  """Computes the prototypes of labels in the workdir of a run."""

  models = (PrototypesModel,)
  load = staticmethod(load_prototypes)

  def check_corpus(self, corpus: Corpus, prior: Mapping[str, Metrics]) -> None:
    """Checks that labels have names or training documents.

    Raises:
      DataError: the parts of prototypes that the config asks for are missing.
    """
    del prior
    if self.config.model.names:
      space = corpus.label_space
      check_letters([label.name] for label in space.labels[: space.n_inside])
    if self.config.model.centroids:
      check_train_labels(corpus)

  def fit(self, corpus: Corpus, preemption: Preemption) -> Fitted:
    """Computes and saves the prototypes of labels."""
    del preemption  # a signal stops the run at once
    path, model = _file(self.workdir), self.config.model
    if not path.exists():
      split = corpus.splits[TRAIN]
      inputs = kept_inputs(split, self.config, self.workdir)
      prototypes = _prototypes(inputs, corpus, model)
      arrays = {
        'features': np.int64(inputs.n_features),
        **matrix_arrays('prototypes', prototypes),
      }
      with self.workdir.recording(path):
        write_npz(path, arrays)
    predictor = _load_uncalibrated(self.workdir, self.config)
    predictor = dataclasses.replace(predictor, space=corpus.label_space)
    size = path.stat().st_size
    return Fitted(0, _STEP, predictor.score_kind, size, lambda: predictor)
