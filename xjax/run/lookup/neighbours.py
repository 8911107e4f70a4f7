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

from xjax.config.run import Config
from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.core.errors import DataError
from xjax.core.progress import Progress
from xjax.core.types import PAD, Ragged
from xjax.data.batches.sparse import Features, SparseBatches
from xjax.data.files.faults import plural
from xjax.data.formats.draft import TRAIN
from xjax.data.quality import check_train_labels
from xjax.data.schema import Corpus, Document, Split
from xjax.run.contract import Fit, Fitted, check_one_process
from xjax.run.judging import Metrics
from xjax.run.load import calibrated
from xjax.run.predictor import Predictor
from xjax.run.sparse import SparseFit
from xjax.score.config import NeighboursModel
from xjax.score.exact_match import MatchedLabels
from xjax.score.neighbours import NearestDocuments, NeighbourVotes
from xjax.train.preemption import Preemption
from xjax.train.sparse_inputs import SparseInputs, TextInputs, fit_inputs
from xjax.train.workdir import Workdir

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
      'rows/indptr': self.rows.indptr.astype(np.int64),
      'rows/indices': self.rows.indices.astype(np.int32),
      'rows/values': self.rows.data.astype(np.float32),
      'gold/indptr': self.gold.indptr.astype(np.int64),
      'gold/values': self.gold.values.astype(np.int32),
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
    values = arrays.take('rows/values', np.float32, (None,))
    arrays.check('rows/values', ~np.isfinite(values), 'is not finite')
    rows = _lists(arrays, 'rows/indptr', 'rows/indices', n_features)
    gold = _lists(arrays, 'gold/indptr', 'gold/values', n_labels)
    arrays.finish()
    if len(values) != len(rows.values):
      arrays.fail('rows/values', f'should have {len(rows.values)} entries')
    if len(rows) != len(gold):
      arrays.fail('gold/indptr', f'should have {len(rows) + 1} entries')
    parts = values, rows.values, rows.indptr
    matrix = sparse.csr_array(parts, (len(rows), n_features))
    return cls(matrix, gold, n_labels)


def _lists(arrays: Arrays, indptr: str, values: str, end: int) -> Ragged:
  """Takes rows of ascending numbers from 0 to end - 1."""
  starts = arrays.take(indptr, np.int64, (None,))
  numbers = arrays.take(values, np.int32, (None,))
  arrays.check_offsets(indptr, starts, len(numbers))
  outside = (numbers < 0) | (numbers >= end)
  arrays.check(values, outside, f'is not in 0..{end - 1}')
  falls = np.diff(numbers, prepend=PAD) <= 0
  falls[starts[:-1][np.diff(starts) > 0]] = False  # the first one of each row
  arrays.check(values, falls, 'does not ascend')
  return Ragged(starts, numbers)


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
  inputs = SparseFit.saved_inputs(folder, config, n_features)
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
class NeighboursFit(Fit):
  """Keeps the training documents in the workdir of a run."""

  models = (NeighboursModel,)
  label_free = ('features/tfidf.npz',)
  load = staticmethod(load_neighbours)

  def check_start(self) -> None:
    """Checks the number of processes.

    Raises:
      ConfigError: there are several processes.
    """
    check_one_process(self.config)

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
      rows = self._inputs(corpus).split_rows(corpus.splits[TRAIN])
      n_labels = corpus.label_space.n_trained
      with self.workdir.recording(path):
        TrainedRows(rows, corpus.trained_gold, n_labels).save(path)
    model = _load_uncalibrated(self.workdir, self.config)
    model = dataclasses.replace(model, space=corpus.label_space)
    size = path.stat().st_size
    return Fitted(0, _STEP, model.score_kind, size, lambda: model)

  def _inputs(self, corpus: Corpus) -> SparseInputs:
    """Returns what computes or reads features; TF-IDF is saved."""
    path = self.workdir.tfidf
    if path.exists():
      return SparseFit.saved_inputs(self.workdir, self.config, 0)
    inputs = fit_inputs(corpus.splits[TRAIN], self.config)
    if isinstance(inputs, TextInputs):
      with self.workdir.recording(path):
        inputs.featurise.save(path)
    return inputs
