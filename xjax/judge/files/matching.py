"""Brings labels and documents of several files together, by id or by place."""

from collections.abc import Sequence
import dataclasses
import functools
import os

from absl import logging
import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.judge.files.label_order import column_numbers
from xjax.judge.files.rows import LabelRows

MOST_LABELS = 100_000_000  # more is a mistake in a header


@dataclasses.dataclass(frozen=True, eq=False)
class KnownLabels:
  """All labels that any file knows.

  Attributes:
    labels: L label ids, those that are predicted from first.
    columns: integers, the label of each column, -1 for none; None: columns
      mean nothing here.
    path: the file that says so, for messages.
  """

  labels: tuple[str, ...]
  columns: np.ndarray | None
  path: str | os.PathLike

  @functools.cached_property
  def index(self) -> dict[str, int]:
    """Label id -> label."""
    return {id_: i for i, id_ in enumerate(self.labels)}

  def place(self, found: LabelRows) -> Ragged:
    """Rows of a file as known labels, each row ascending.

    Raises:
      DataError: a label is not known, or the file has another
        number of columns.
    """
    values = self.of(found)[found.rows.values]
    row = np.repeat(np.arange(len(found.rows)), found.rows.lengths)
    order = np.lexsort((values, row))
    return Ragged(found.rows.indptr, values[order].astype(np.int32))

  def renamed(self, found: LabelRows) -> LabelRows:
    """The same rows, in their order, with the known labels.

    Raises:
      DataError: as place.
    """
    values = self.of(found)[found.rows.values].astype(np.int32)
    return dataclasses.replace(
      found, rows=Ragged(found.rows.indptr, values), labels=self.labels
    )

  def by_column(self, found: LabelRows) -> np.ndarray:
    """The label of each column of a file, int64; -1: none that is known.

    Raises:
      DataError: columns mean nothing here, or there are others.
    """
    if found.labels is None and self.columns is None:
      raise DataError(
        f'{found.path}: says columns, but the labels of {self.path} are in no '
        'order'
      )
    return self.of(found)

  def of(self, found: LabelRows) -> np.ndarray:
    """The label of each label, or of each column, of a file, int64.

    Raises:
      DataError: as place.
    """
    if found.labels is not None:
      return self._of_ids(found)
    if self.columns is None:
      used = np.unique(found.rows.values)
      of = np.zeros(used.max(initial=-1) + 1, np.int64)
      of[used] = [self.index[str(column)] for column in used.tolist()]
      return of
    n = len(self.columns)
    if found.n_labels not in (None, n):
      raise DataError(
        f'{found.path}: {found.n_labels} labels, but {self.path} has {n}'
      )
    found.check(found.rows.values >= n, f'label {{}} is not in 0..{n - 1}')
    found.check(
      self.columns[found.rows.values] < 0,
      f'label {{}} is none of {self.path}; a header `N L` would say how many '
      'there are',
    )
    return self.columns

  def _of_ids(self, found: LabelRows) -> np.ndarray:
    of = np.array([self.index.get(i, -1) for i in found.labels], np.int64)
    found.check(
      of[found.rows.values] < 0,
      f'label {{}} is unknown: {self.path} has columns, so labels must be '
      f'numbers, 0 to {len(self.labels) - 1}, or a file of labels must name '
      'the columns',
    )
    return of


def known_labels_of(
  scored: LabelRows, others: Sequence[LabelRows]
) -> KnownLabels:
  """The labels of predictions and of the files they are judged with.

  Where the predictions are a matrix its columns are the labels: other files
  have as many, or ids that are their numbers. Where they have ids, these are
  matched, and labels that only other files have come after them, sorted.

  Files of columns meet ids so: if all ids are decimal numbers, those are the
  columns; columns that the predictions lack are labels that come after them
  if a header says how many there are, and are refused if not. Other ids are
  the columns in their order, if they have one and each file of columns has a
  header of as many.

  Args:
    scored: labels that are predicted from; n_labels beside ids says that they
      are in the order of their columns.
    others: the other files.

  Raises:
    DataError: too many labels, ids have nothing to do with columns, or none
      of those predicted is in any other file.
  """
  blind = [o for o in others if o.labels is None]
  told = [o for o in blind if o.n_labels is not None]
  if scored.labels is None:
    return _of_columns(scored)
  if scored.n_labels is None and told:
    return _of_columns(told[0])
  _check_related(scored, others)
  further = {id_ for other in others for id_ in other.labels or ()}
  if scored.n_labels is None:
    for other in blind:
      further |= set(map(str, np.unique(other.rows.values).tolist()))
    labels = tuple(sorted(further | set(scored.labels)))
    return KnownLabels(labels, None, scored.path)
  if not blind:
    return KnownLabels(_with(scored, further), None, scored.path)
  numbers = column_numbers(scored.labels)
  if np.any(numbers < 0):
    _check_by_order(scored, blind)
    columns = np.arange(len(numbers))
    return KnownLabels(_with(scored, further), columns, scored.path)
  n = int(numbers.max(initial=-1)) + 1
  if told:
    n = _width(scored, numbers, told[0])
    further |= set(map(str, range(n)))
  labels = _with(scored, further)
  path = told[0].path if told else scored.path
  return KnownLabels(labels, _numbered(labels, n), path)


def _of_columns(source: LabelRows) -> KnownLabels:
  n = source.n_labels
  _check_count(source)
  return KnownLabels(tuple(map(str, range(n))), np.arange(n), source.path)


def _check_count(source: LabelRows) -> None:
  if source.n_labels > MOST_LABELS:
    raise DataError(
      f'{source.path}: {source.n_labels} labels: more than {MOST_LABELS} is a '
      'mistake'
    )


def _with(scored: LabelRows, further: set[str]) -> tuple[str, ...]:
  """Labels that are predicted from, then others, sorted."""
  return scored.labels + tuple(sorted(further - set(scored.labels)))


def _width(scored: LabelRows, numbers: np.ndarray, told: LabelRows) -> int:
  """The number of columns that a header says, where ids are their numbers."""
  _check_count(told)
  if np.any(numbers >= told.n_labels):
    id_ = scored.labels[int(numbers.argmax())]
    raise DataError(
      f'{scored.path}: label {id_!a} is no column of {told.path}, which has '
      f'{told.n_labels}: ids that are numbers must be its columns'
    )
  return told.n_labels


def _numbered(labels: Sequence[str], n: int) -> np.ndarray:
  """int64 [n], the label whose id is the number; -1: there is none."""
  numbers = column_numbers(labels)
  used = np.flatnonzero((numbers >= 0) & (numbers < n))
  columns = np.full(n, -1)
  columns[numbers[used]] = used
  return columns


def _check_by_order(scored: LabelRows, blind: Sequence[LabelRows]) -> None:
  """Refuses files of columns that do not say that they have these labels."""
  for other in blind:
    if other.n_labels is None:
      raise DataError(
        f'{other.path}: says columns, but not how many, and the labels of '
        f'{scored.path} have names, as {scored.labels[0]!a}: give labels by '
        'id, or with a header `N L`, or a file of labels that names the columns'
      )
  logging.info(
    'labels are matched by order: column 0 of %s is %a of %s, and so on',
    blind[0].path,
    scored.labels[0],
    scored.path,
  )


def _check_related(scored: LabelRows, others: Sequence[LabelRows]) -> None:
  """Refuses ids none of which is in any other file."""
  known: dict[str, LabelRows] = {}
  for other in others:
    ids = other.labels
    if ids is None and scored.n_labels is not None:
      return  # it has their columns
    if ids is None:
      ids = map(str, np.unique(other.rows.values).tolist())
    known |= dict.fromkeys(ids, other)
  if known and scored.labels and known.keys().isdisjoint(scored.labels):
    id_, other = next(iter(known.items()))
    raise DataError(
      f'{other.path}: has none of the labels of {scored.path}: label {id_!a} '
      f'here, {scored.labels[0]!a} there: both must name labels alike'
    )


def check_documents(scored: LabelRows, other: LabelRows) -> None:
  """Checks that two files are of the same documents in the same order.

  By id where both have ids; else there must be as many.

  Raises:
    DataError: names the first row that differs.
  """
  if scored.doc_ids is not None and other.doc_ids is not None:
    pairs = zip(scored.doc_ids, other.doc_ids)
    row = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if row is not None:
      same = set(scored.doc_ids) == set(other.doc_ids)
      raise DataError(
        f'{other.place(row)}: document {other.doc_ids[row]!a}, but '
        f'{scored.place(row)} is of {scored.doc_ids[row]!a}: '
        + ('the same documents in another order' if same else 'others')
        + '; both files must have the same documents in the same order'
      )
  if len(scored) != len(other):
    raise DataError(
      f'{other.path}: {len(other)} documents, but {scored.path} has '
      f'{len(scored)}'
    )
