"""What files of predictions lack and another system has: ids, gold, counts."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged
from xjax.judge.files.label_order import column_numbers
from xjax.judge.predictions import Lists, Predictions
from xjax.report.runs import JudgedRun


def lend(runs: Sequence[JudgedRun]) -> list[JudgedRun]:
  """Gives files what they lack, from the first system that has it.

  That is the first workdir, else the first file with ids and gold. Documents
  and labels without ids of their own are those of its rows and columns; labels
  come into its order; gold and training counts are taken where there are none.

  Raises:
    DataError: no gold in any, or rows or columns that are not as many.
  """
  lenders = [run for run in runs if run.predictions.gold is not None]
  if not lenders:
    raise DataError(
      f'{runs[0].path}: has no gold labels, so there is nothing to report; '
      '--gold=FILE gives them'
    )
  lender = min(lenders, key=_rank)
  return [
    run if run.config is not None or run is lender else _lent(run, lender)
    for run in runs
  ]


def _rank(run: JudgedRun) -> tuple[bool, bool]:
  """Workdirs first, then what has ids of its own."""
  found = run.predictions
  return run.config is None, are_numbers(found.doc_ids)


def are_numbers(ids: Sequence[str]) -> bool:
  """Whether ids are no more than places: 0, 1, 2, ..."""
  return all(id_ == str(i) for i, id_ in enumerate(ids))


def _lent(run: JudgedRun, lender: JudgedRun) -> JudgedRun:
  found, theirs = run.predictions, lender.predictions
  who = f'{run.path}', f'{lender.path}'
  found = _with_documents(found, theirs, who)
  found = _with_labels(found, theirs, who)
  if found.gold is None:
    found = _with_gold(found, theirs, who)
  n_known = len(theirs.labels)
  if not found.n_train and tuple(found.labels[:n_known]) == tuple(
    theirs.labels
  ):
    further = np.zeros(len(found.labels) - n_known, np.int32)
    found = dataclasses.replace(
      found,
      n_train=theirs.n_train,
      train_counts=np.append(theirs.train_counts, further),
      held_out=theirs.held_out,
    )
  weights_L = run.weights_L
  if weights_L is not None:
    weights_L = _by_label(weights_L, run, found.labels)
  return dataclasses.replace(
    run,
    predictions=found,
    weights_L=weights_L,
    remark=_remark(run, lender, found),
  )


def _remark(run: JudgedRun, lender: JudgedRun, found: Predictions) -> str:
  """What was taken for the same without an id to say so."""
  before = run.predictions
  rows = set(before.doc_ids) != set(found.doc_ids)
  columns = not set(before.labels) <= set(found.labels)
  what = ' and '.join(['rows'] * rows + ['columns'] * columns)
  if not what:
    return ''
  return (
    f'{run.name} has no ids: its {what} are taken for those of {lender.name}.'
  )


def _by_label(
  weights_L: np.ndarray, run: JudgedRun, labels: Sequence[str]
) -> np.ndarray:
  """The weights of a run's labels in the order of the same labels."""
  if len(labels) != len(weights_L):
    raise DataError(
      f'--inv_prop: {len(weights_L)} weights, but {len(labels)} labels with '
      f'those that {run.path} is compared on'
    )
  known = dict(zip(run.predictions.labels, weights_L.tolist(), strict=True))
  if known.keys() != set(labels):
    return weights_L  # names of the same columns
  return np.array([known[id_] for id_ in labels])


def _with_documents(
  found: Predictions, theirs: Predictions, who: tuple[str, str]
) -> Predictions:
  """With their ids, row by row, where one of the two has none of its own."""
  ours, ids = tuple(found.doc_ids), tuple(theirs.doc_ids)
  if ours == ids or not (are_numbers(ours) or are_numbers(ids)):
    return found
  if set(ours) == set(ids):
    return found
  if len(ours) != len(ids):
    raise DataError(
      f'{who[0]}: {len(ours)} documents, but {who[1]} has {len(ids)}: without '
      'ids on both sides they are compared row by row'
    )
  return dataclasses.replace(found, doc_ids=ids)


def _with_labels(
  found: Predictions, theirs: Predictions, who: tuple[str, str]
) -> Predictions:
  """With their labels in their order: by id, else column by column."""
  ours, ids = tuple(found.labels), tuple(theirs.labels)
  if ours == ids:
    return found
  numbers = are_numbers(ours) and bool(np.all(column_numbers(ids) >= 0))
  if set(ours) <= set(ids) or numbers:
    return _placed(found, _joined(ids, ours))
  if not (are_numbers(ours) or are_numbers(ids)):
    return found  # another label space
  if len(ours) not in (len(ids), theirs.n_scored):
    raise DataError(
      f'{who[0]}: {len(ours)} labels, but {who[1]} has {len(ids)}: without ids '
      'on both sides they are compared column by column'
    )
  further = np.zeros(len(ids) - len(ours), np.int32)
  counts = np.append(found.train_counts, further)
  return dataclasses.replace(found, labels=ids, train_counts=counts)


def _joined(labels: Sequence[str], further: Sequence[str]) -> tuple[str, ...]:
  """All of both, those of the second that the first has not at the end."""
  return tuple(dict.fromkeys((*labels, *further)))


def _placed(found: Predictions, labels: tuple[str, ...]) -> Predictions:
  """The same among other labels, which have all of its own."""
  place_of = {id_: i for i, id_ in enumerate(labels)}
  places = np.array([place_of[id_] for id_ in found.labels], np.int32)
  counts = np.zeros(len(labels), np.int32)
  counts[places] = found.train_counts
  scored = places[: found.n_scored]
  every = found.n_scored == len(found.labels)
  gold = found.gold
  return dataclasses.replace(
    found,
    n_scored=len(labels) if every else int(scored.max(initial=-1)) + 1,
    labels=labels,
    train_counts=counts,
    lists={
      name: Lists(
        np.where(each.ids == PAD, PAD, places[each.ids]).astype(np.int32),
        each.scores,
      )
      for name, each in found.lists.items()
    },
    gold=None if gold is None else _sorted(gold, places),
    held_out=places[found.held_out],
  )


def _sorted(gold: Ragged, places: np.ndarray) -> Ragged:
  """Each row ascending, once labels have other places."""
  return Ragged.of([np.sort(places[gold[row]]) for row in range(len(gold))])


def _with_gold(
  found: Predictions, theirs: Predictions, who: tuple[str, str]
) -> Predictions:
  """With their gold, document by document, and the labels it takes."""
  row_of = {id_: row for row, id_ in enumerate(theirs.doc_ids)}
  lacking = next((id_ for id_ in found.doc_ids if id_ not in row_of), None)
  if lacking is not None:
    raise DataError(
      f'{who[0]}: has no gold labels, and {who[1]} none for {lacking!r}; '
      '--gold=FILE gives them'
    )
  found = _placed(found, _joined(theirs.labels, found.labels))
  rows = [theirs.gold[row_of[id_]] for id_ in found.doc_ids]
  return dataclasses.replace(found, gold=Ragged.of(rows))
