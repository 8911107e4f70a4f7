"""Predictions of any system, from files, ready to be judged."""

import dataclasses
import os

import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import Ragged, ScoreKind
from xjax.data.schema import HELD_OUT
from xjax.data.xc_sidecars import among, read_inv_prop, read_pairs
from xjax.evaluate.gold_files import read_gold
from xjax.evaluate.label_rows import LabelRows
from xjax.evaluate.matching import Universe, check_documents, universe_of
from xjax.evaluate.prediction_files import read_predictions
from xjax.evaluate.predictions import Predictions
from xjax.evaluate.selection import best_labels, without_pairs
from xjax.metrics.slices import ALL

DEPTH = 50  # labels kept of a document, unless more are needed


@dataclasses.dataclass(frozen=True)
class JudgeFiles:
  """What is judged, and with what.

  Attributes:
    predictions: a sparse matrix saved by scipy, an XC-repository score file,
      a predictions.npz, or JSON lines {"id", "labels": [{"id", "score"}]}.
    gold: as read_gold; None: that of a predictions.npz, if it has any.
    train_labels: gold of the training set, as read_gold; None: that of a
      predictions.npz, else there are no training counts.
    filter: pairs of a document and a label that must not be predicted.
    inv_prop: inverse propensities, one per label.
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
  depth: int | None = None
  score_kind: ScoreKind | None = None


def read_judged(
  files: JudgeFiles, depth: int = DEPTH
) -> tuple[Predictions, np.ndarray | None]:
  """Reads predictions, with gold and training counts where they are given.

  Formats are told by what is in the files. Labels and documents are matched by
  id where both sides have ids, else by column and by row. A filter is applied
  before the best labels are selected; lists that were cut before become as
  short as they then are certain.

  Args:
    files: the files.
    depth: K of scores, where files does not say.

  Returns:
    The predictions: `all` has the best labels of each document by score
    descending, then column ascending (JSON lines: as listed), and what a row
    does not have is not predicted; without training labels n_train is 0.
    Inverse propensities float64 [L], or None.

  Raises:
    DataError: a file cannot be read, is of no known format, or does not fit
      the others; the message names the file and the line or row.
  """
  scored, saved = read_predictions(files.predictions)
  others = {
    name: read_gold(path)
    for name, path in (('gold', files.gold), ('train', files.train_labels))
    if path is not None
  }
  universe = universe_of(scored, tuple(others.values()))
  pairs = _pairs(files, scored, universe)
  if saved is None:
    depth = files.depth or depth
    predictions = _of_scores(files, scored, universe, pairs, depth)
  else:
    predictions = _of_saved(files, saved, universe, pairs)
  if 'gold' in others:
    check_documents(scored, others['gold'])
    gold = universe.place(others['gold'])
    predictions = dataclasses.replace(predictions, gold=gold)
  if 'train' in others:
    predictions = _counted(predictions, universe.place(others['train']))
  return predictions, _weights(files, universe)


def _pairs(
  files: JudgeFiles, scored: LabelRows, universe: Universe
) -> np.ndarray | None:
  """The filter's pairs, int64 [pairs, 2], as rows and labels."""
  if files.filter is None:
    return None
  columns = universe.by_column(files.filter)
  pairs = read_pairs(files.filter, len(scored), len(columns))
  pairs[:, 1] = columns[pairs[:, 1]]
  return pairs


def _of_scores(
  files: JudgeFiles,
  scored: LabelRows,
  universe: Universe,
  pairs: np.ndarray | None,
  depth: int,
) -> Predictions:
  kind = _kind(files, scored)
  scored = universe.renamed(scored)
  if scored.ranked:
    # Lists that end where they were cut: of what is deeper nothing is known.
    longest = int(scored.rows.lengths.max())
    lists = best_labels(scored, max(longest, 1))
    if pairs is not None:
      lists = without_pairs(lists, pairs, scored.path)
    lists = lists.first(depth)
  else:
    if pairs is not None:
      scored = scored.kept(~among(scored.rows, pairs))
    lists = best_labels(scored, depth)
  n_labels = len(universe.labels)
  return Predictions(
    score_kind=kind,
    n_scored=n_labels,
    n_train=0,
    doc_ids=scored.doc_ids or tuple(map(str, range(len(scored)))),
    labels=universe.labels,
    train_counts=np.zeros(n_labels, np.int32),
    lists={ALL: lists},
  )


def _kind(files: JudgeFiles, scored: LabelRows) -> ScoreKind:
  outside = (scored.scores < 0) | (scored.scores > 1)
  if files.score_kind is ScoreKind.PROBABILITY:
    scored.check(outside, 'the score of label {} is no probability')
  if files.score_kind is not None:
    return files.score_kind
  if scored.ranked and not outside.any():
    return ScoreKind.PROBABILITY
  return ScoreKind.MARGIN


def _of_saved(
  files: JudgeFiles,
  saved: Predictions,
  universe: Universe,
  pairs: np.ndarray | None,
) -> Predictions:
  """A predictions.npz with the labels of the other files after its own."""
  if files.score_kind not in (None, saved.score_kind):
    raise DataError(
      f'{files.predictions}: its scores are of the kind '
      f'{saved.score_kind.value}, not {files.score_kind.value}'
    )
  lists = {n: v.first(files.depth) for n, v in saved.lists.items()}
  if pairs is not None:
    path = files.predictions
    lists = {n: without_pairs(v, pairs, path) for n, v in lists.items()}
  further = len(universe.labels) - len(saved.labels)
  return dataclasses.replace(
    saved,
    labels=universe.labels,
    train_counts=np.append(saved.train_counts, np.zeros(further, np.int32)),
    lists=lists,
  )


def _counted(predictions: Predictions, train: Ragged) -> Predictions:
  """Predictions with the training counts of a file.

  Lists of slices by another count are of no use, and go.
  """
  counts = np.bincount(train.values, minlength=len(predictions.labels))
  lists = predictions.lists
  return dataclasses.replace(
    predictions,
    n_train=len(train),
    train_counts=counts.astype(np.int32),
    lists={name: lists[name] for name in (ALL, HELD_OUT) if name in lists},
  )


def _weights(files: JudgeFiles, universe: Universe) -> np.ndarray | None:
  if files.inv_prop is None:
    return None
  columns = universe.by_column(files.inv_prop)
  given = read_inv_prop(files.inv_prop, len(universe.labels))
  if len(columns) != len(given):
    raise DataError(
      f'{files.inv_prop}: some of {len(given)} labels have no column in '
      f'{files.predictions}'
    )
  weights = np.zeros(len(given))
  weights[columns] = given
  return weights
