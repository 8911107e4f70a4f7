"""Predictions of any system, from files, ready to be judged."""

from collections.abc import Mapping
import dataclasses
import os

from absl import logging
import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import Ragged, ScoreKind
from xjax.data.formats.xc_files import in_pairs, read_inv_prop, read_pairs
from xjax.data.schema import HELD_OUT
from xjax.judge.files.gold import read_gold, read_training
from xjax.judge.files.label_order import read_label_order
from xjax.judge.files.matching import (
  KnownLabels,
  check_documents,
  known_labels_of,
)
from xjax.judge.files.rows import (
  LabelRows,
  best_labels,
  cut_length,
  without_pairs,
)
from xjax.judge.files.scores import read_predictions
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions

DEPTH = 50  # labels kept of a document, unless more are needed


@dataclasses.dataclass(frozen=True)
class JudgeFiles:
  """What is judged, and with what.

  Attributes:
    predictions: a sparse matrix saved by scipy, an XC-repository score file,
      a predictions.npz, or JSON lines {"id", "labels": [{"id", "score"}]}.
    gold: as read_gold; None: that of a predictions.npz, if it has any.
    train_labels: gold of the training set, as read_gold, or a predictions.npz
      with its counts; None: those of a predictions.npz that is judged, else
      there are no training counts.
    filter: pairs of a document and a label that must not be predicted.
    inv_prop: inverse propensities, one per label.
    labels: label ids in the order of columns, as read_label_order: they name
      the columns of a matrix of scores, and, unless they are numbers, those of
      every file that has no ids.
    depth: K, labels kept of a document, at most; None: as many as are needed,
      and all of a predictions.npz.
    score_kind: what the scores are, where the file does not say; None:
      probabilities in JSON lines if they are from 0 to 1, else margins.
  """

  predictions: str | os.PathLike
  gold: str | os.PathLike | None = None
  train_labels: str | os.PathLike | None = None
  filter: str | os.PathLike | None = None
  inv_prop: str | os.PathLike | None = None
  labels: str | os.PathLike | None = None
  depth: int | None = None
  score_kind: ScoreKind | None = None


def read_judged(
  files: JudgeFiles, depth: int = DEPTH
) -> tuple[Predictions, np.ndarray | None]:
  """Reads predictions, with gold and training counts where they are given.

  Formats are told by what is in the files. Labels and documents are matched by
  id where both sides have ids, else by column (as known_labels_of) and by row;
  a file of scores without document ids takes those of the gold. A filter is
  applied before the best labels are selected; lists that were cut before, of
  scores (as cut_length) too, become as short as they then are certain.

  Args:
    files: the files.
    depth: K of scores, where files does not say.

  Returns:
    The predictions: `all` has the best labels of each document by score
    descending, then column ascending (JSON lines: as listed), no more of them
    than lists were cut at, and what a row does not have is not predicted;
    without training labels n_train is 0. Inverse propensities float64 [L], or
    None.

  Raises:
    DataError: a file cannot be read, is of no known format, or does not fit
      the others; the message names the file and the line or row.
  """
  read = _Files.read(files)
  scored, known_labels = read.scored, read.known_labels
  pairs = _pairs(read)
  if read.saved is None:
    kind, depth = _kind(files, scored), files.depth or depth
    predictions = _of_scores(known_labels.renamed(scored), kind, pairs, depth)
  else:
    predictions = _of_saved(files, read.saved, known_labels, pairs)
  gold = read.beside.get('gold')
  if gold is not None:
    check_documents(scored, gold)
    predictions = dataclasses.replace(
      predictions,
      gold=known_labels.place(gold),
      doc_ids=scored.doc_ids or gold.doc_ids or predictions.doc_ids,
    )
  if read.n_train:
    predictions = _counted(predictions, read)
  return predictions, _weights(read)


def read_train_gold(files: JudgeFiles) -> Ragged:
  """Reads the labels of each training document.

  Returns:
    Label indices of the predictions that read_judged reads, each row
    ascending.

  Raises:
    DataError: as read_judged; train_labels has no more than their counts.
  """
  read = _Files.read(files)
  train = read.beside['train']
  if train.scores is not None:
    raise DataError(
      f'{train.path}: has training counts, but not the labels of each '
      'training document, which are needed here'
    )
  return read.known_labels.place(train)


@dataclasses.dataclass(frozen=True, eq=False)
class _Files:
  """What is in the files.

  Attributes:
    scored: the labels that are predicted.
    saved: a predictions.npz itself.
    beside: the other files by name. A filter has no rows; inverse propensities
      are one row of all columns, with these as scores.
    n_train: number of training documents; 0: not known.
    known_labels: all labels.
  """

  scored: LabelRows
  saved: Predictions | None
  beside: Mapping[str, LabelRows]
  n_train: int
  known_labels: KnownLabels

  @classmethod
  def read(cls, files: JudgeFiles) -> '_Files':
    """Reads them."""
    scored, saved = read_predictions(files.predictions)
    beside, n_train = _read_beside(files)
    if files.labels is not None:
      order = read_label_order(files.labels)
      scored = order.name(scored)
      # Ids that are numbers of columns are found by these.
      if not order.numbered:
        beside = {name: order.name(found) for name, found in beside.items()}
    known_labels = known_labels_of(scored, tuple(beside.values()))
    return cls(scored, saved, beside, n_train, known_labels)


def _read_beside(files: JudgeFiles) -> tuple[dict[str, LabelRows], int]:
  """The files beside the predictions, by name; and the training documents."""
  beside, n_train = {}, 0
  if files.gold is not None:
    beside['gold'] = read_gold(files.gold)
  if files.train_labels is not None:
    beside['train'], n_train = read_training(files.train_labels)
  if files.filter is not None:
    beside['filter'] = LabelRows(files.filter, Ragged.of([]))
  if files.inv_prop is not None:
    weights = read_inv_prop(files.inv_prop)
    n, path = len(weights), files.inv_prop
    rows = Ragged.of([range(n)])
    beside['weights'] = LabelRows(path, rows, n_labels=n, scores=weights)
  return beside, n_train


def _pairs(read: _Files) -> np.ndarray | None:
  """The filter's pairs, int64 [pairs, 2], as rows and labels."""
  found = read.beside.get('filter')
  if found is None:
    return None
  columns = read.known_labels.by_column(found)
  pairs = read_pairs(found.path, len(read.scored), len(columns))
  pairs[:, 1] = columns[pairs[:, 1]]
  return pairs[pairs[:, 1] >= 0]


def _of_scores(
  scored: LabelRows, kind: ScoreKind, pairs: np.ndarray | None, depth: int
) -> Predictions:
  """Predictions of scored labels of the known_labels."""
  longest = cut_length(scored)
  if longest:
    lists = best_labels(scored, longest)
    if pairs is not None:
      lists = without_pairs(lists, pairs, scored.path)
    lists = lists.first(depth)
  else:
    if pairs is not None:
      scored = scored.kept(~in_pairs(scored.rows, pairs))
    lists = best_labels(scored, depth)
  if longest and not scored.ranked:
    logging.info(
      '%s: rows are lists of the best %d: deeper metrics cannot be told',
      scored.path,
      longest,
    )
  n_labels = len(scored.labels)
  return Predictions(
    score_kind=kind,
    n_scored=n_labels,
    n_train=0,
    doc_ids=scored.doc_ids or tuple(map(str, range(len(scored)))),
    labels=scored.labels,
    train_counts=np.zeros(n_labels, np.int32),
    lists={ALL: lists},
  )


def _kind(files: JudgeFiles, scored: LabelRows) -> ScoreKind:
  outside = (scored.scores < 0) | (scored.scores > 1)
  if files.score_kind is ScoreKind.PROBABILITY:
    scored.check(outside, 'the score of label {} is no probability')
  if files.score_kind is not None:
    return files.score_kind
  likely = scored.ranked and not outside.any()
  kind = ScoreKind.PROBABILITY if likely else ScoreKind.MARGIN
  logging.info(
    '%s: the kind of its scores is taken to be %s; --score_kind says otherwise',
    scored.path,
    kind.value,
  )
  return kind


def _of_saved(
  files: JudgeFiles,
  saved: Predictions,
  known_labels: KnownLabels,
  pairs: np.ndarray | None,
) -> Predictions:
  """A predictions.npz with the labels of the other files after its own."""
  if files.score_kind not in (None, saved.score_kind):
    raise DataError(
      f'{files.predictions}: its scores are of the kind '
      f'{saved.score_kind.value}, not {files.score_kind.value}'
    )
  lists = saved.lists
  if pairs is not None:
    path = files.predictions
    lists = {n: without_pairs(v, pairs, path) for n, v in lists.items()}
  lists = {n: v.first(files.depth) for n, v in lists.items()}
  further = len(known_labels.labels) - len(saved.labels)
  return dataclasses.replace(
    saved,
    labels=known_labels.labels,
    train_counts=np.append(saved.train_counts, np.zeros(further, np.int32)),
    lists=lists,
  )


def _counted(predictions: Predictions, read: _Files) -> Predictions:
  """Predictions with the training counts of a file.

  Lists of slices by another count are of no use, and go.
  """
  train, n_labels = read.beside['train'], len(predictions.labels)
  labels = read.known_labels.of(train)[train.rows.values]
  counts = np.bincount(labels, weights=train.scores, minlength=n_labels)
  lists = predictions.lists
  return dataclasses.replace(
    predictions,
    n_train=read.n_train,
    train_counts=counts.astype(np.int32),
    lists={name: lists[name] for name in (ALL, HELD_OUT) if name in lists},
  )


def _weights(read: _Files) -> np.ndarray | None:
  found = read.beside.get('weights')
  if found is None:
    return None
  columns, n = read.known_labels.by_column(found), len(read.known_labels.labels)
  if len(columns) != n:
    raise DataError(
      f'{found.path}: {len(columns)} numbers, but there are {n} labels: some '
      'labels have no column'
    )
  weights = np.zeros(n)
  weights[columns] = found.scores
  return weights
