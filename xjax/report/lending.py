"""Completes predictions with ids, gold and counts of another system."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged
from xjax.data.hierarchy import Hierarchy
from xjax.judge.files.label_order import column_numbers
from xjax.judge.label_lists import LabelLists
from xjax.judge.predictions import Predictions
from xjax.report.runs import JudgedRun


def lend(runs: Sequence[JudgedRun]) -> list[JudgedRun]:
  """Completes prediction files with data of one system, the lender.

  The lender is the first workdir with gold. If there is no such workdir, the
  lender is the first file with ids and gold, or else the first file with gold.

  - Documents and labels without ids get the ids of the lender's rows and
    columns.
  - Labels are put in the order of the lender's labels.
  - A file without gold, training counts or parents of labels gets the lender's.

  The order of the systems stays, and workdirs are unchanged.

  Raises:
    DataError: no system has gold; the lender has no gold for a document; or the
      numbers of rows or columns differ.
  """
  lenders = [run for run in runs if run.predictions.gold is not None]
  if not lenders:
    raise DataError(
      f'{runs[0].path}: no gold labels, so there is nothing to report; choose '
      'a file with gold labels by --gold=FILE'
    )
  lender = min(lenders, key=_rank)
  return [
    run if run.config is not None or run is lender else _complete(run, lender)
    for run in runs
  ]


def _rank(run: JudgedRun) -> tuple[bool, bool]:
  """Returns a sort key that puts workdirs first, and files with ids next."""
  return run.config is None, are_numbers(run.predictions.doc_ids)


def are_numbers(ids: Sequence[str]) -> bool:
  """Returns whether the ids are only the row numbers 0, 1, 2, ..."""
  return all(id_ == str(i) for i, id_ in enumerate(ids))


def _complete(run: JudgedRun, lender: JudgedRun) -> JudgedRun:
  ours, theirs = run.predictions, lender.predictions
  who = f'{run.path}', f'{lender.path}'
  ours = _take_doc_ids(ours, theirs, who)
  ours = _take_labels(ours, theirs, who)
  if ours.gold is None:
    ours = _take_gold(ours, theirs, who)
  n_known = len(theirs.labels)
  if not ours.n_train and tuple(ours.labels[:n_known]) == tuple(theirs.labels):
    no_counts = np.zeros(len(ours.labels) - n_known, np.int32)
    ours = dataclasses.replace(
      ours,
      n_train=theirs.n_train,
      train_counts=np.append(theirs.train_counts, no_counts),
      held_out=theirs.held_out,
    )
  if ours.hierarchy is None and set(ours.labels) & set(theirs.labels):
    lent = _for_labels(theirs.hierarchy, ours.labels)
    ours = dataclasses.replace(ours, hierarchy=lent)
  weights_L = run.weights_L
  if weights_L is not None:
    weights_L = _by_label(weights_L, run, ours.labels)
  return dataclasses.replace(
    run,
    predictions=ours,
    weights_L=weights_L,
    remark=_remark(run, lender, ours),
  )


def _remark(run: JudgedRun, lender: JudgedRun, completed: Predictions) -> str:
  """Returns a remark on rows or columns that were matched without ids."""
  before = run.predictions
  rows = set(before.doc_ids) != set(completed.doc_ids)
  columns = not set(before.labels) <= set(completed.labels)
  matched = ' and '.join(['rows'] * rows + ['columns'] * columns)
  if not matched:
    return ''
  systems = (run.name, before), (lender.name, lender.predictions)
  who = _without_ids(
    *((name, *[p.doc_ids] * rows, *[p.labels] * columns) for name, p in systems)
  )
  return f'{who}, so the {matched} were matched by position.'


def _without_ids(*systems: tuple) -> str:
  """Names the systems, each (name, *sequences of ids), without real ids."""
  names = [name for name, *ids in systems if any(map(are_numbers, ids))]
  return f'{" and ".join(names)} {"have" if len(names) > 1 else "has"} no ids'


def _by_label(
  weights_L: np.ndarray, run: JudgedRun, labels: Sequence[str]
) -> np.ndarray:
  if len(labels) != len(weights_L):
    raise DataError(
      f'--inv_prop: {len(weights_L)} weights, but {run.path} is compared on '
      f'{len(labels)} labels; give one weight per label'
    )
  weight_of = dict(zip(run.predictions.labels, weights_L.tolist(), strict=True))
  if weight_of.keys() != set(labels):
    return weights_L  # the labels have other ids, but the same columns
  return np.array([weight_of[id_] for id_ in labels])


def _take_doc_ids(
  ours: Predictions, theirs: Predictions, who: tuple[str, str]
) -> Predictions:
  """Takes the lender's ids row by row if the run or the lender has no ids."""
  our_ids, their_ids = tuple(ours.doc_ids), tuple(theirs.doc_ids)
  if our_ids == their_ids or not (
    are_numbers(our_ids) or are_numbers(their_ids)
  ):
    return ours
  if set(our_ids) == set(their_ids):
    return ours
  if len(our_ids) != len(their_ids):
    raise DataError(
      f'{who[0]}: {len(our_ids)} documents, but {who[1]} has {len(their_ids)}: '
      f'{_without_ids((who[0], our_ids), (who[1], their_ids))}, so documents '
      'are compared row by row, and the numbers of documents must be equal'
    )
  return dataclasses.replace(ours, doc_ids=their_ids)


def _take_labels(
  ours: Predictions, theirs: Predictions, who: tuple[str, str]
) -> Predictions:
  """Gives a run the lender's label ids and order, by id or else by column."""
  our_ids, their_ids = tuple(ours.labels), tuple(theirs.labels)
  if our_ids == their_ids:
    return ours
  are_columns = are_numbers(our_ids) and bool(
    np.all(column_numbers(their_ids) >= 0)
  )
  if set(our_ids) <= set(their_ids) or are_columns:
    return _place_labels(ours, _join_labels(their_ids, our_ids))
  if not (are_numbers(our_ids) or are_numbers(their_ids)):
    return ours  # the two systems have different label spaces
  if len(our_ids) not in (len(their_ids), theirs.n_scored):
    raise DataError(
      f'{who[0]}: {len(our_ids)} labels, but {who[1]} has {len(their_ids)}: '
      f'{_without_ids((who[0], our_ids), (who[1], their_ids))}, so labels are '
      'compared column by column, and the numbers of labels must be equal'
    )
  no_counts = np.zeros(len(their_ids) - len(our_ids), np.int32)
  counts = np.append(ours.train_counts, no_counts)
  return dataclasses.replace(
    ours, labels=their_ids, train_counts=counts, hierarchy=None
  )


def _join_labels(
  first: Sequence[str], second: Sequence[str]
) -> tuple[str, ...]:
  return tuple(dict.fromkeys((*first, *second)))


def _place_labels(
  predictions: Predictions, labels: tuple[str, ...]
) -> Predictions:
  """Moves predictions to a new label list, which must have all old labels."""
  place_of = {id_: i for i, id_ in enumerate(labels)}
  places = np.array([place_of[id_] for id_ in predictions.labels], np.int32)
  counts = np.zeros(len(labels), np.int32)
  counts[places] = predictions.train_counts
  scored = places[: predictions.n_scored]
  all_scored = predictions.n_scored == len(predictions.labels)
  gold = predictions.gold
  return dataclasses.replace(
    predictions,
    n_scored=len(labels) if all_scored else int(scored.max(initial=-1)) + 1,
    labels=labels,
    train_counts=counts,
    lists={
      name: LabelLists(
        np.where(lists.ids == PAD, PAD, places[lists.ids]).astype(np.int32),
        lists.scores,
      )
      for name, lists in predictions.lists.items()
    },
    gold=None if gold is None else _sort_rows(gold, places),
    held_out=places[predictions.held_out],
    hierarchy=_for_labels(predictions.hierarchy, labels),
  )


def _for_labels(
  hierarchy: Hierarchy | None, labels: Sequence[str]
) -> Hierarchy | None:
  return None if hierarchy is None else hierarchy.for_labels(labels)


def _sort_rows(gold: Ragged, places: np.ndarray) -> Ragged:
  """Replaces gold labels by their new indices, and sorts each row again."""
  return Ragged.of([np.sort(places[gold[row]]) for row in range(len(gold))])


def _take_gold(
  predictions: Predictions, theirs: Predictions, who: tuple[str, str]
) -> Predictions:
  """Adds the lender's gold labels for the documents of a run, matched by id.

  The label list also gets the labels that only the lender has.
  """
  row_of = {id_: row for row, id_ in enumerate(theirs.doc_ids)}
  missing_id = next(
    (id_ for id_ in predictions.doc_ids if id_ not in row_of), None
  )
  if missing_id is not None:
    raise DataError(
      f'{who[0]}: no gold labels, and {who[1]} has no gold labels for document '
      f'{missing_id!r}; choose a file with gold labels by --gold=FILE'
    )
  predictions = _place_labels(
    predictions, _join_labels(theirs.labels, predictions.labels)
  )
  rows = [theirs.gold[row_of[id_]] for id_ in predictions.doc_ids]
  return dataclasses.replace(predictions, gold=Ragged.of(rows))
