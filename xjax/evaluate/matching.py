"""Brings labels and documents of several files together, by id or by place."""

from collections.abc import Sequence
import dataclasses
import functools
import os

import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.evaluate.label_rows import LabelRows

MOST_LABELS = 100_000_000  # more is a mistake in a header


@dataclasses.dataclass(frozen=True, eq=False)
class Universe:
  """All labels that any file knows.

  Attributes:
    labels: L label ids, those that are predicted from first.
    columns: int32, the label of each column; None: columns mean nothing here.
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
    """Rows of a file as labels of the universe, each row ascending.

    Raises:
      DataError: a label is not in the universe, or the file has another
        number of columns.
    """
    values = self._of(found)[found.rows.values]
    row = np.repeat(np.arange(len(found.rows)), found.rows.lengths)
    order = np.lexsort((values, row))
    return Ragged(found.rows.indptr, values[order].astype(np.int32))

  def renamed(self, found: LabelRows) -> LabelRows:
    """The same rows, in their order, with the universe's labels.

    Raises:
      DataError: as place.
    """
    values = self._of(found)[found.rows.values].astype(np.int32)
    return dataclasses.replace(
      found, rows=Ragged(found.rows.indptr, values), labels=self.labels
    )

  def by_column(self, path: str | os.PathLike) -> np.ndarray:
    """The label of each column, int32, for a file that knows no ids.

    Raises:
      DataError: columns mean nothing here.
    """
    if self.columns is None:
      raise DataError(
        f'{path}: says columns, but the labels of {self.path} are in no order'
      )
    return self.columns

  def _of(self, found: LabelRows) -> np.ndarray:
    """The label of each label, or of each column, of a file."""
    if found.labels is not None:
      return self._of_ids(found)
    if self.columns is None:
      used = np.unique(found.rows.values)
      of = np.zeros(used.max(initial=-1) + 1, np.int32)
      of[used] = [self.index[str(column)] for column in used.tolist()]
      return of
    n = len(self.columns)
    if found.n_labels not in (None, n):
      raise DataError(
        f'{found.path}: {found.n_labels} labels, but {self.path} has {n}'
      )
    found.check(found.rows.values >= n, f'label {{}} is not in 0..{n - 1}')
    return self.columns

  def _of_ids(self, found: LabelRows) -> np.ndarray:
    of = np.array([self.index.get(i, -1) for i in found.labels], np.int64)
    found.check(
      of[found.rows.values] < 0,
      f'label {{}} is unknown: {self.path} has columns, so labels must be '
      f'numbers, 0 to {len(self.labels) - 1}',
    )
    return of


def universe_of(scored: LabelRows, others: Sequence[LabelRows]) -> Universe:
  """The labels of predictions and of the files they are judged with.

  Where the predictions are a matrix its columns are the labels: other files
  have as many, or ids that are their numbers. Where they have ids, these are
  matched, and labels that only other files have come after them, sorted; such
  predictions meet a file of columns by order if theirs is known, by numbers
  if their ids are such.

  Args:
    scored: labels that are predicted from; n_labels beside ids says that they
      are in the order of their columns.
    others: the other files.

  Raises:
    DataError: too many labels, or ids have nothing to do with columns.
  """
  told = [o for o in others if o.labels is None and o.n_labels is not None]
  if scored.labels is None or (scored.n_labels is None and told):
    source = scored if scored.labels is None else told[0]
    n = source.n_labels
    if n > MOST_LABELS:
      raise DataError(
        f'{source.path}: {n} labels: more than {MOST_LABELS} is a mistake'
      )
    numbers = np.arange(n, dtype=np.int32)
    return Universe(tuple(map(str, range(n))), numbers, source.path)
  further = {id_ for other in others for id_ in other.labels or ()}
  if scored.n_labels is not None:
    labels = scored.labels + tuple(sorted(further - set(scored.labels)))
    return Universe(labels, _numbered(scored.labels), scored.path)
  for other in others:
    if other.labels is None:
      further |= set(map(str, np.unique(other.rows.values).tolist()))
  labels = tuple(sorted(further | set(scored.labels)))
  return Universe(labels, None, scored.path)


def _numbered(labels: tuple[str, ...]) -> np.ndarray:
  """The label of each column: by number if all ids are such, else by order."""
  numbers = {str(i) for i in range(len(labels))}
  if numbers != set(labels):
    return np.arange(len(labels), dtype=np.int32)
  columns = np.zeros(len(labels), np.int32)
  columns[[int(id_) for id_ in labels]] = np.arange(len(labels))
  return columns


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
