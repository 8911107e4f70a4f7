"""Defines runs of nearest documents, whose labels vote for labels (kNN).

Nothing is trained. The workdir keeps the features and the labels of the
training documents.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import pathlib
from typing import NamedTuple

import numpy as np
from scipy import sparse

from xjax.core.arrays import Arrays, matrix_arrays, rows_arrays
from xjax.core.atomic import write_npz
from xjax.core.errors import DataError
from xjax.core.progress import Progress
from xjax.core.types import Ragged
from xjax.data.files.faults import plural
from xjax.data.formats.draft import TRAIN
from xjax.data.quality import check_train_labels
from xjax.data.schema import Corpus, Document, Split
from xjax.data.sparse_documents import Features, SparseBatches
from xjax.models.config import Config
from xjax.models.fit_contract import Fitted
from xjax.models.load import calibrated
from xjax.models.lookup.exact_match import MatchedLabels
from xjax.models.lookup.neighbours import NearestDocuments, NeighbourVotes
from xjax.models.lookup.untrained import UntrainedFit
from xjax.models.model_configs import NeighboursModel
from xjax.models.predictor import Predictor
from xjax.models.sparse_inputs import (
  SparseInputs,
  kept_inputs,
  saved_inputs,
)
from xjax.models.workdir import Workdir
from xjax.run.judging import Metrics
from xjax.train.preemption import Preemption

_STEP = 0  # the only step, because nothing is trained
_ASSIGNED_ABOVE = 0.5  # more than half of the votes


class TrainedRows(NamedTuple):
  """Holds the training documents that vote.

  Attributes:
    rows: float32 [N, D], their features.
    gold: N rows of trained labels.
    n_labels: number L of trained labels.
  """

  rows: sparse.csr_array
  gold: Ragged
  n_labels: int

  def save(self, path: pathlib.Path) -> None:
    """Writes the .npz file that `load` reads."""
    arrays = {
      'features': np.int64(self.rows.shape[1]),
      'labels': np.int64(self.n_labels),
      **matrix_arrays('rows', self.rows),
      **rows_arrays('gold', self.gold),
    }
    write_npz(path, arrays)

  @classmethod
  def load(cls, path: pathlib.Path) -> 'TrainedRows':
    """Reads a file that `save` wrote.

    Raises:
      DataError: the file is missing or damaged.
    """
    arrays = Arrays.read(path)
    n_features, n_labels = arrays.count('features'), arrays.count('labels')
    rows = arrays.matrix('rows', n_features)
    gold = arrays.rows('gold', n_labels)
    arrays.finish()
    if rows.shape[0] != len(gold):
      arrays.fail('gold/indptr', f'should have {rows.shape[0] + 1} entries')
    return cls(rows, gold, n_labels)


@dataclasses.dataclass(frozen=True, eq=False)
class VoteInputs(SparseInputs):
  """Makes batches of the votes for labels of documents.

  If the split train of the run itself is judged, no document votes for its own
  labels.

  Attributes:
    inputs: computes or reads the features of documents.
    votes: turns features into votes.
    train_digest: digest of the split whose documents vote.
  """

  inputs: SparseInputs
  votes: NeighbourVotes
  train_digest: str | None

  @property
  def reads_rows(self) -> bool:
    """Returns whether documents must already have sparse features."""
    return self.inputs.reads_rows

  @property
  def n_features(self) -> int:
    """Returns the number of features of a document."""
    return self.inputs.n_features

  def features(self, documents: Sequence[str | Document]) -> Features:
    """Returns a function that computes the votes of some of the documents."""
    features = self.inputs.features(documents)
    return lambda rows: self.votes(features(rows))

  def split_batches(self, split: Split) -> SparseBatches:
    """Returns batches for judging a split; each document occurs once."""
    if (split.name, split.digest) != (TRAIN, self.train_digest):
      return super().split_batches(split)
    features = self.inputs.features(split.documents)
    return self._once(lambda rows: self.votes(features(rows), rows), split.gold)


def load_neighbours(folder: Workdir, config: Config) -> Predictor:
  """Loads the model of a run; only files of the workdir are read.

  Raises:
    DataError: a file of the workdir is missing or damaged.
  """
  return calibrated(_load_uncalibrated(folder, config))


def _load_uncalibrated(folder: Workdir, config: Config) -> Predictor:
  """Loads the model without its calibration."""
  path, space = _file(folder), folder.label_space()
  with Progress('reading the training documents'):
    trained = TrainedRows.load(path)
    folder.check(path)
  n_features = trained.rows.shape[1]
  inputs = saved_inputs(config, folder, n_features)
  sizes = len(trained.gold), n_features, trained.n_labels
  expected = space.n_train, inputs.n_features, space.n_trained
  if sizes != expected:
    raise DataError(
      f'{path}: has {_sizes_text(sizes)}, but the run has '
      f'{_sizes_text(expected)}; is this a file of another run?'
    )
  model, threads = config.model, max(1, config.data.workers)
  votes = NeighbourVotes(
    NearestDocuments(trained.rows, threads=threads),
    trained.gold,
    trained.n_labels,
    neighbours=model.neighbours,
    power=model.power,
  )
  inputs = VoteInputs(config, inputs, votes, folder.digests().get(TRAIN))
  scorer = MatchedLabels(trained.n_labels, _ASSIGNED_ABOVE)
  return Predictor(config, space, inputs, scorer, _STEP, folder)


def _sizes_text(sizes: tuple[int, int, int]) -> str:
  nouns = 'document', 'feature', 'label'
  documents, features, labels = map(plural, sizes, nouns)
  return f'{documents}, {features} and {labels}'


def _file(folder: Workdir) -> pathlib.Path:
  """Returns the path of the features and labels of the training documents."""
  return folder.model / 'neighbours.npz'


@dataclasses.dataclass(frozen=True)
class NeighboursFit(UntrainedFit):
  """Keeps the training documents in the workdir of a run."""

  models = (NeighboursModel,)
  load = staticmethod(load_neighbours)

  def check_corpus(self, corpus: Corpus, prior: Mapping[str, Metrics]) -> None:
    """Checks that at least one label has training documents.

    Raises:
      DataError: no label has training documents.
    """
    del prior
    check_train_labels(corpus)

  def fit(self, corpus: Corpus, preemption: Preemption) -> Fitted:
    """Computes and saves the features of the training documents."""
    del preemption  # a signal stops the run at once; features are not kept
    path = _file(self.workdir)
    if not path.exists():
      split = corpus.splits[TRAIN]
      rows = kept_inputs(split, self.config, self.workdir).split_rows(split)
      n_labels = corpus.label_space.n_trained
      with self.workdir.recording(path):
        TrainedRows(rows, corpus.trained_gold, n_labels).save(path)
    model = _load_uncalibrated(self.workdir, self.config)
    model = dataclasses.replace(model, space=corpus.label_space)
    size = path.stat().st_size
    return Fitted(0, _STEP, model.score_kind, size, lambda: model)
