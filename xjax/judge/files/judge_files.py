"""Reads all files for judging the predictions of any system."""

from collections.abc import Mapping
import dataclasses
import os
import pathlib

from absl import logging
import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.data.files.file_set import read_mark
from xjax.data.formats.xc_files import in_pairs, read_inv_prop, read_pairs
from xjax.data.labels import known_left_out, read_left_out
from xjax.data.schema import HELD_OUT
from xjax.judge.files.any_format import (
  read_gold,
  read_predictions,
  read_training,
)
from xjax.judge.files.document_labels import (
  DocumentLabels,
  best_labels,
  cut_length,
  without_pairs,
)
from xjax.judge.files.matching import (
  KnownLabels,
  check_not_transposed,
  in_same_forms,
  known_labels_of,
  match_documents,
  name_columns,
  read_label_order,
  warn_of_unknown,
)
from xjax.judge.label_lists import list_length
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions

DEPTH = 50  # labels kept per document, unless metrics need more
_WITH_IDS = ('gold', 'train')  # the other files that may have label ids


@dataclasses.dataclass(frozen=True)
class JudgeFiles:
  """Holds the paths of the predictions and of the files for judging them.

  `predictions` is a sparse matrix saved by scipy, an XC-repository score file,
  a predictions.npz, JSON lines {"id", "labels": [{"id", "score"}]}, or a table,
  as predict writes it. Labels without scores are in order of rank. Other files
  are in a format of read_gold, unless they say otherwise. A predictions.npz may
  have its own gold and training counts.
  """

  predictions: str | os.PathLike
  gold: str | os.PathLike | None = None
  # Gold of training documents, or a predictions.npz with counts.
  train_labels: str | os.PathLike | None = None
  # Pairs (document, label) that must not be predicted.
  filter: str | os.PathLike | None = None
  # Inverse propensities, one per label.
  inv_prop: str | os.PathLike | None = None
  # Label ids in the order of columns (read_label_order): the ids of predictions
  # with columns, and, if an id is not a number, of the other files' columns. A
  # file that has label ids keeps them; they must be in `labels`.
  labels: str | os.PathLike | None = None
  # K, labels kept per document; None keeps all of a predictions.npz.
  depth: int | None = None
  # If None, JSON lines with scores from 0 to 1 have probabilities, a
  # predictions.npz says its kind, and other files have margins.
  score_kind: ScoreKind | None = None
  # Label ids, one per line, that are neither predicted nor judged; see
  # labels.known_left_out.
  leave_out: str = ''
  # Whether leave_out may name no label, as for a system without them.
  may_lack: bool = False


def read_judged(
  files: JudgeFiles, depth: int = DEPTH
) -> tuple[Predictions, np.ndarray | None]:
  """Reads predictions, and gold and training counts if `files` has them.

  - Documents are matched by id if both files have ids, otherwise by row, in the
    order of the predictions; labels as in known_labels_of.
  - A filter is applied before the best labels are selected. But it makes top-k
    lists (see cut_length) shorter; see without_pairs.
  - Equal scores are in the order of columns, or, in JSON lines, of the file.

  Returns:
    The predictions, whose n_train is 0 without training counts, and float64 [L]
    inverse propensities, or None.
  """
  check_tagged(files.predictions)
  contents = _Contents.read(files)
  scored, known_labels = contents.scored, contents.known_labels
  pairs = _filter_pairs(contents)
  left_out = _left_out(files, known_labels, contents.saved)
  if contents.saved is None:
    kind, depth = _score_kind(files, scored), files.depth or depth
    scored = scored if scored.scores is not None else scored.with_ranks()
    renamed = known_labels.rename_labels(scored)
    predictions = _select_lists(renamed, kind, pairs, depth, left_out)
  else:
    predictions = _extend_saved(files, contents.saved, known_labels, pairs)
  gold = contents.others.get('gold')
  if gold is not None:
    matched = match_documents(scored, gold)
    if matched is not gold and pairs is not None:
      raise DataError(
        f'{files.filter}: has row numbers, but the documents of '
        f'{files.predictions} are in another order than those of {files.gold}; '
        'put both files in the order of the filter'
      )
    predictions = dataclasses.replace(
      predictions,
      gold=known_labels.sorted_rows(matched),
      doc_ids=scored.doc_ids or gold.doc_ids or predictions.doc_ids,
    )
  if contents.n_train:
    predictions = _with_train_counts(predictions, contents)
  if len(left_out):
    predictions = _leave_out(files, predictions, left_out)
  if pairs is not None or contents.others.keys() & {'gold', 'train'}:
    # Recalls were computed for other gold labels or slices.
    predictions = dataclasses.replace(predictions, recalls={})
  return predictions, _inverse_propensities(contents)


def check_tagged(path: str | os.PathLike) -> None:
  """Raises a DataError unless X.jsonl or X.npz is of the set of X.judged.json.

  Files without an X.judged.json are not checked.
  """
  mark = pathlib.Path(path).with_suffix('.judged.json')
  if mark.is_file():
    read_mark(mark, f'predict again, or remove {mark.name}')


def read_train_gold(files: JudgeFiles) -> Ragged:
  """Reads the ascending label indices (of read_judged) of train_labels."""
  contents = _Contents.read(files)
  train = contents.others['train']
  if train.scores is not None:
    raise DataError(
      f'{train.path}: has training counts, but not the labels of each '
      'training document, which are needed here'
    )
  return contents.known_labels.sorted_rows(train)


@dataclasses.dataclass(frozen=True, eq=False)
class _Contents:
  scored: DocumentLabels
  saved: Predictions | None  # of a predictions.npz, else None
  # File -> rows. Inverse propensities are the scores of one row of all columns.
  others: Mapping[str, DocumentLabels]
  n_train: int  # number of training documents; 0 if it is not known
  known_labels: KnownLabels  # the labels of all files

  @classmethod
  def read(cls, files: JudgeFiles) -> '_Contents':
    scored, saved = read_predictions(files.predictions)
    others, n_train = _read_others(files)
    if 'gold' in others:
      check_not_transposed(scored, others['gold'])
    if files.labels is not None:
      order = read_label_order(files.labels)
      for rows in (scored, *others.values()):
        if rows.labels is not None:
          order.check(rows)
      named = order.labels, order.path
      scored = name_columns(scored, *named)
      # If all ids are column numbers, the columns of other files already match
      # these ids.
      if not order.numbered:
        others = {n: name_columns(rows, *named) for n, rows in others.items()}
    elif scored.labels is not None:
      same = in_same_forms((scored, *others.values()))
      others = dict(zip(others, same[1:]))
      warn_of_unknown(scored, [others[n] for n in _WITH_IDS if n in others])
    known_labels = known_labels_of(scored, tuple(others.values()))
    return cls(scored, saved, others, n_train, known_labels)


def _read_others(files: JudgeFiles) -> tuple[dict[str, DocumentLabels], int]:
  """Reads all files except the predictions; n_train is 0 if not known."""
  others, n_train = {}, 0
  if files.gold is not None:
    others['gold'] = read_gold(files.gold)
  if files.train_labels is not None:
    others['train'], n_train = read_training(files.train_labels)
  if files.filter is not None:
    others['filter'] = DocumentLabels(files.filter, Ragged.of([]))
  if files.inv_prop is not None:
    weights = read_inv_prop(files.inv_prop)
    n, path = len(weights), files.inv_prop
    rows = Ragged.of([range(n)])
    others['weights'] = DocumentLabels(path, rows, n_labels=n, scores=weights)
  return others, n_train


def _left_out(
  files: JudgeFiles, known: KnownLabels, saved: Predictions | None
) -> np.ndarray:
  """Returns the labels that the file or predictions leave out, ascending."""
  flag = '--leave_out'
  ids, labels = read_left_out(files.leave_out, flag), known.index
  if not files.may_lack or any(id_ in labels for id_ in ids):
    concepts = saved.hierarchy.ids if saved and saved.hierarchy else ()
    source = f'{flag}={files.leave_out}'
    known_left_out(ids, labels, concepts, source, str(files.predictions))
  rows = np.array([labels[id_] for id_ in ids if id_ in labels], np.int64)
  return np.union1d(rows, () if saved is None else saved.left_out).astype(int)


def _leave_out(
  files: JudgeFiles, predictions: Predictions, left_out: np.ndarray
) -> Predictions:
  try:
    return predictions.leaving_out(left_out)
  except DataError as error:
    path = files.leave_out or files.predictions
    raise DataError(f'{path}: {error}') from error


def _filter_pairs(contents: _Contents) -> np.ndarray | None:
  """Reads the filter's pairs (document row, label), int64 [pairs, 2]."""
  source = contents.others.get('filter')
  if source is None:
    return None
  pairs, lines = read_pairs(source.path)
  if not len(pairs):
    return None
  columns = contents.known_labels.column_labels(source)
  most = len(contents.scored), len(columns)
  outside = pairs >= most
  if outside.any():
    row, side = np.argwhere(outside)[0]
    raise DataError(
      f'{source.path}:{lines[row]}: {("document", "label")[side]} '
      f'{pairs[row, side]} is not in 0..{most[side] - 1}'
    )
  pairs[:, 1] = columns[pairs[:, 1]]
  return pairs[pairs[:, 1] >= 0]


def _select_lists(
  scored: DocumentLabels,
  kind: ScoreKind,
  pairs: np.ndarray | None,
  depth: int,
  left_out: np.ndarray,
) -> Predictions:
  """Makes predictions from scored labels, without pairs and left-out labels.

  Top-k lists still have left-out labels if no next label is known.
  """
  longest = cut_length(scored)
  if longest:
    lists = best_labels(scored, longest)
    if pairs is not None:
      lists = without_pairs(lists, pairs, scored.path)
    if len(left_out):
      kept = (lists.ids != PAD) & ~np.isin(lists.ids, left_out)
      short = lists.shortened(kept)
      lists = short if short.ids.shape[1] else lists
    lists = lists.first(depth)
  else:
    if pairs is not None:
      scored = scored.keep(~in_pairs(scored.rows, pairs))
    if len(left_out):
      scored = scored.keep(~np.isin(scored.rows.values, left_out))
    lists = best_labels(scored, list_length(depth, len(scored.labels)))
  if longest and not scored.ranked:
    logging.info(
      '%s: its rows are read as lists of the best %d labels; metrics that need '
      'longer lists have no value',
      scored.path,
      longest,
    )
  longest = int(scored.rows.lengths.max(initial=0))
  if longest > depth:
    logging.info(
      '%s: only the best %d labels of each document are kept, of up to %d; '
      'slices and metrics may need more; to keep all labels, set --depth=%d',
      scored.path,
      depth,
      longest,
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


def _score_kind(files: JudgeFiles, scored: DocumentLabels) -> ScoreKind:
  if scored.scores is None:
    logging.info('%s: no scores: labels are in order of rank', scored.path)
    return ScoreKind.MARGIN
  outside = (scored.scores < 0) | (scored.scores > 1)
  if files.score_kind is ScoreKind.PROBABILITY:
    scored.check(outside, 'the score of label {} is not from 0 to 1')
  if files.score_kind is not None:
    return files.score_kind
  if outside.any():
    kind = ScoreKind.MARGIN
    why = 'some are not from 0 to 1; for logits, set --score_kind=logit'
  elif scored.ranked:
    kind = ScoreKind.PROBABILITY
    why = 'all are from 0 to 1; for margins, set --score_kind=margin'
  else:
    kind = ScoreKind.MARGIN
    why = (
      'but all are from 0 to 1; if they are probabilities, set '
      '--score_kind=probability'
    )
  logging.info(
    '%s: its scores are read as %s (%s)', scored.path, kind.value, why
  )
  return kind


def _extend_saved(
  files: JudgeFiles,
  saved: Predictions,
  known_labels: KnownLabels,
  pairs: np.ndarray | None,
) -> Predictions:
  """Adds the labels of other files to saved predictions, and filters lists."""
  if files.score_kind not in (None, saved.score_kind):
    raise DataError(
      f'{files.predictions}: has scores of the kind {saved.score_kind.value}, '
      f'but --score_kind is {files.score_kind.value}'
    )
  lists = saved.lists
  if pairs is not None:
    path = files.predictions
    lists = {n: without_pairs(v, pairs, path) for n, v in lists.items()}
  lists = {n: v.first(files.depth) for n, v in lists.items()}
  further, hierarchy = len(known_labels.labels) - len(saved.labels), None
  if saved.hierarchy is not None:
    hierarchy = saved.hierarchy.for_labels(known_labels.labels)
  return dataclasses.replace(
    saved,
    labels=known_labels.labels,
    hierarchy=hierarchy,
    train_counts=np.append(saved.train_counts, np.zeros(further, np.int32)),
    lists=lists,
  )


def _with_train_counts(
  predictions: Predictions, contents: _Contents
) -> Predictions:
  """Returns predictions with a file's training counts, without old slices."""
  train, n_labels = contents.others['train'], len(predictions.labels)
  labels = contents.known_labels.indices(train)[train.rows.values]
  counts = np.bincount(labels, weights=train.scores, minlength=n_labels)
  lists = predictions.lists
  return dataclasses.replace(
    predictions,
    n_train=contents.n_train,
    train_counts=counts.astype(np.int32),
    lists={name: lists[name] for name in (ALL, HELD_OUT) if name in lists},
  )


def _inverse_propensities(contents: _Contents) -> np.ndarray | None:
  """Returns the inverse propensities of all labels, float64 [L], or None."""
  source, known_labels = contents.others.get('weights'), contents.known_labels
  if source is None:
    return None
  columns, n = known_labels.column_labels(source), len(known_labels.labels)
  if len(columns) != n:
    raise DataError(
      f'{source.path}: has {len(columns)} numbers, but there are {n} labels, '
      'so some labels have no number'
    )
  weights = np.zeros(n)
  weights[columns] = source.scores
  return weights
