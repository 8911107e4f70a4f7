"""Completes predictions with ids, gold and counts of another system."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged
from xjax.judge.files.label_order import column_numbers
from xjax.judge.label_lists import LabelLists
from xjax.judge.predictions import Predictions
from xjax.report.runs import JudgedRun


def complete_by_reference(runs: Sequence[JudgedRun]) -> list[JudgedRun]:
  """Completes prediction files with data of one system, the reference.

  The reference is the first workdir with gold. If there is no such workdir, it
  is the first file with ids and gold, or else the first file with gold.

  - Documents and labels without ids get the ids of the reference's rows and
    columns.
  - Labels are put in the order of the reference's labels.
  - A file without gold, training counts or parents of labels gets the
    reference's.

  The order of the systems stays, and workdirs are unchanged. A DataError says
  that no system has gold, that the reference has none for a document, or that
  the numbers of rows or columns differ.
  """
  with_gold = [run for run in runs if run.predictions.gold is not None]
  if not with_gold:
    raise DataError(
      f'{runs[0].path}: no gold labels, so there is nothing to report; choose '
      'a file with gold labels by --gold=FILE'
    )
  reference = min(
    with_gold,
    key=lambda run: (run.config is None, are_numbers(run.predictions.doc_ids)),
  )
  return [
    run
    if run.config is not None or run is reference
    else _complete(run, reference)
    for run in runs
  ]


def are_numbers(ids: Sequence[str]) -> bool:
  """Returns whether the ids are only the row numbers 0, 1, 2, ..."""
  return all(id_ == str(i) for i, id_ in enumerate(ids))


def _complete(run: JudgedRun, reference: JudgedRun) -> JudgedRun:
  ours, theirs = run.predictions, reference.predictions
  matched: dict[str, list[str]] = {}  # rows, columns -> systems without ids

  def match(
    what: str, noun: str, ids: Sequence[str], others: Sequence[str]
  ) -> None:
    sides = (run.name, ids), (reference.name, others)
    matched[what] = [name for name, side in sides if are_numbers(side)]
    sizes = len(others), theirs.n_scored if what == 'columns' else len(others)
    if len(ids) not in sizes:
      raise DataError(
        f'{run.path}: {len(ids)} {noun}, but {reference.path} has '
        f'{len(others)}: {_have_no_ids(matched[what])}, so {noun} are compared '
        f'{what[:-1]} by {what[:-1]}, and the numbers of {noun} must be equal'
      )

  if set(ours.doc_ids) != set(theirs.doc_ids) and (
    are_numbers(ours.doc_ids) or are_numbers(theirs.doc_ids)
  ):
    match('rows', 'documents', ours.doc_ids, theirs.doc_ids)
    ours = dataclasses.replace(ours, doc_ids=tuple(theirs.doc_ids))
  if _has_columns_of(theirs.labels, ours.labels):
    ours = _place_labels(ours, theirs.labels)
  elif are_numbers(ours.labels) or are_numbers(theirs.labels):
    match('columns', 'labels', ours.labels, theirs.labels)
    ours = dataclasses.replace(
      ours,
      labels=tuple(theirs.labels),
      train_counts=_extended(ours.train_counts, len(theirs.labels)),
      hierarchy=None,
    )
  # Otherwise, the two systems have different label spaces.
  if ours.gold is None:
    ours = _with_gold(ours, run, reference)
  n_known = len(theirs.labels)
  if not ours.n_train and tuple(ours.labels[:n_known]) == tuple(theirs.labels):
    ours = dataclasses.replace(
      ours,
      n_train=theirs.n_train,
      train_counts=_extended(theirs.train_counts, len(ours.labels)),
      held_out=theirs.held_out,
    )
  shared = set(ours.labels) & set(theirs.labels)
  if ours.hierarchy is None and theirs.hierarchy is not None and shared:
    hierarchy = theirs.hierarchy.for_labels(ours.labels)
    ours = dataclasses.replace(ours, hierarchy=hierarchy)
  remark = ''
  if matched:
    names = [*dict.fromkeys(name for who in matched.values() for name in who)]
    remark = (
      f'{_have_no_ids(names)}, so the {" and ".join(matched)} were matched by '
      'position.'
    )
  return dataclasses.replace(
    run,
    predictions=ours,
    weights_L=_weights_of(run, ours.labels),
    remark=remark,
  )


def _have_no_ids(names: Sequence[str]) -> str:
  return f'{" and ".join(names)} {"have" if len(names) > 1 else "has"} no ids'


def _has_columns_of(theirs: Sequence[str], ours: Sequence[str]) -> bool:
  """Returns whether our labels are found among theirs, by id or by column."""
  if set(ours) <= set(theirs):
    return True
  return are_numbers(ours) and bool(np.all(column_numbers(theirs) >= 0))


def _extended(counts: np.ndarray, n_labels: int) -> np.ndarray:
  return np.append(counts, np.zeros(n_labels - len(counts), np.int32))


def _weights_of(run: JudgedRun, labels: Sequence[str]) -> np.ndarray | None:
  if run.weights_L is None:
    return None
  if len(labels) != len(run.weights_L):
    raise DataError(
      f'--inv_prop: {len(run.weights_L)} weights, but {run.path} is compared '
      f'on {len(labels)} labels; give one weight per label'
    )
  weight_of = dict(zip(run.predictions.labels, run.weights_L.tolist()))
  if weight_of.keys() != set(labels):
    return run.weights_L  # the labels have other ids, but the same columns
  return np.array([weight_of[id_] for id_ in labels])


def _place_labels(
  predictions: Predictions, first: Sequence[str]
) -> Predictions:
  """Puts the labels `first` before the other labels of the predictions."""
  labels = tuple(dict.fromkeys((*first, *predictions.labels)))
  if labels == tuple(predictions.labels):
    return predictions
  place_of = {id_: i for i, id_ in enumerate(labels)}
  places = np.array([place_of[id_] for id_ in predictions.labels], np.int32)
  counts = np.zeros(len(labels), np.int32)
  counts[places] = predictions.train_counts
  scored = places[: predictions.n_scored]
  all_scored = predictions.n_scored == len(predictions.labels)
  gold, hierarchy = predictions.gold, predictions.hierarchy
  if gold is not None:
    rows = (np.sort(places[gold[row]]) for row in range(len(gold)))
    gold = Ragged.of(list(rows))
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
    gold=gold,
    held_out=places[predictions.held_out],
    hierarchy=None if hierarchy is None else hierarchy.for_labels(labels),
  )


def _with_gold(
  predictions: Predictions, run: JudgedRun, reference: JudgedRun
) -> Predictions:
  theirs = reference.predictions
  row_of = {id_: row for row, id_ in enumerate(theirs.doc_ids)}
  missing = [id_ for id_ in predictions.doc_ids if id_ not in row_of]
  if missing:
    raise DataError(
      f'{run.path}: no gold labels, and {reference.path} has no gold labels '
      f'for document {missing[0]!r}; choose a file with gold labels by '
      '--gold=FILE'
    )
  rows = [theirs.gold[row_of[id_]] for id_ in predictions.doc_ids]
  placed = _place_labels(predictions, theirs.labels)
  return dataclasses.replace(placed, gold=Ragged.of(rows))
