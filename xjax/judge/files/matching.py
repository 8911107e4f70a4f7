"""Matches labels and documents of several files, by id or by position."""

from collections.abc import Sequence
import dataclasses
import functools
import os

from absl import logging
import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.formats.svmlight import check_width
from xjax.judge.files.label_order import column_numbers, name_columns
from xjax.judge.files.rows import LabelRows

MOST_LABELS = 100_000_000  # a larger number in a header is a mistake


@dataclasses.dataclass(frozen=True, eq=False)
class KnownLabels:
  """Holds all labels of several files, and the label id of each column."""

  labels: tuple[str, ...]  # in the order of known_labels_of
  columns: tuple[str, ...] | None  # None if not known; may have other ids
  path: str | os.PathLike  # defines the labels, for messages

  @functools.cached_property
  def index(self) -> dict[str, int]:
    return {id_: i for i, id_ in enumerate(self.labels)}

  def sorted_rows(self, source: LabelRows) -> Ragged:
    """Returns a file's rows as indices of known labels; each row is sorted."""
    values = self.indices(source)[source.rows.values]
    row = np.repeat(np.arange(len(source.rows)), source.rows.lengths)
    order = np.lexsort((values, row))
    return Ragged(source.rows.indptr, values[order].astype(np.int32))

  def rename_labels(self, source: LabelRows) -> LabelRows:
    """Returns a file's rows as indices of known labels, in the file's order."""
    values = self.indices(source)[source.rows.values].astype(np.int32)
    return dataclasses.replace(
      source, rows=Ragged(source.rows.indptr, values), labels=self.labels
    )

  def column_labels(self, source: LabelRows) -> np.ndarray:
    """Returns the label of each column of a file, int64; -1 if it has none."""
    if source.labels is None and self.columns is None:
      raise DataError(
        f'{source.path}: has column numbers, but the labels of {self.path} '
        'have no order; give the order with --label_order=FILE'
      )
    return self.indices(source)

  def indices(self, source: LabelRows) -> np.ndarray:
    """Returns the known label's index for each label or column of a file."""
    message = (
      f'label {{}} is unknown; {self.path} has column numbers, so label ids '
      f'must be numbers from 0 to {len(self.labels) - 1}, or give a '
      'file with the label id of each column: --label_order=FILE'
    )
    ids = source.labels
    if ids is None:
      ids = self._column_ids(source)
      message = (
        f'label {{}} does not occur in {self.path}; if it exists, add a header '
        '`N L` with the numbers of documents and labels'
      )
    indices = np.array([self.index.get(id_, -1) for id_ in ids], np.int64)
    source.check(indices[source.rows.values] < 0, message)
    return indices

  def _column_ids(self, source: LabelRows) -> Sequence[str]:
    if self.columns is not None:
      return name_columns(source, self.columns, self.path).labels
    width = int(source.rows.values.max(initial=-1)) + 1
    check_width(source.path, width, 'label', len(source.rows.values))
    return list(map(str, range(width)))


def known_labels_of(
  scored: LabelRows, others: Sequence[LabelRows]
) -> KnownLabels:
  """Returns all labels of predictions and of the files for judging them.

  If the predictions have columns without ids, the columns are the labels. Every
  other file must have the same number of columns, or ids that are column
  numbers.

  If all files have ids, labels are matched by id. If scored.n_labels is set,
  the ids of the predictions have an order: their labels come first, and labels
  that are only in other files follow, sorted. Otherwise all labels are sorted
  together.

  If the predictions have ids and another file has columns without ids, there
  are three cases:

  - The ids have no order. If a file has a header with the number of columns,
    the columns are the labels, and all ids must be column numbers. If there is
    no header, labels are matched by id, and the id of a column is its number.
  - The ids have an order, and all are decimal numbers: the numbers of columns.
    Columns that only a header states become further labels. Without a header,
    an entry in a column that the predictions lack is an error.
  - The ids have an order, and some are not numbers. The first id belongs to
    column 0, and so on. Every file with columns must have a header with the
    same number of columns.
  """
  without_ids = [other for other in others if other.labels is None]
  with_header = [other for other in without_ids if other.n_labels is not None]
  if scored.labels is None:
    return _known_columns(scored)
  if scored.n_labels is None and with_header:
    return _known_columns(with_header[0])
  _check_related(scored, others)
  further = {id_ for other in others for id_ in other.labels or ()}
  if scored.n_labels is None:
    for other in without_ids:
      further |= set(map(str, np.unique(other.rows.values).tolist()))
    labels = tuple(sorted(further | set(scored.labels)))
    return KnownLabels(labels, None, scored.path)
  path, columns = scored.path, None
  if without_ids:
    numbers, columns = column_numbers(scored.labels), scored.labels
    if np.any(numbers < 0):
      _check_headers(scored, without_ids)
    else:
      n = int(numbers.max(initial=-1)) + 1
      if with_header:
        path, n = with_header[0].path, with_header[0].n_labels
        _check_columns(scored, numbers, with_header[0])
        further |= set(map(str, range(n)))
      columns = tuple(map(str, range(n)))
  labels = scored.labels + tuple(sorted(further - set(scored.labels)))
  return KnownLabels(labels, columns, path)


def _known_columns(source: LabelRows) -> KnownLabels:
  _check_count(source)
  columns = tuple(map(str, range(source.n_labels)))
  return KnownLabels(columns, columns, source.path)


def _check_count(source: LabelRows) -> None:
  if source.n_labels > MOST_LABELS:
    raise DataError(
      f'{source.path}: has {source.n_labels} labels; at most {MOST_LABELS} are '
      'allowed'
    )
  check_width(source.path, source.n_labels, 'label', len(source.rows.values))


def _check_columns(
  scored: LabelRows, numbers: np.ndarray, source: LabelRows
) -> None:
  _check_count(source)
  if np.any(numbers >= source.n_labels):
    id_ = scored.labels[int(numbers.argmax())]
    raise DataError(
      f'{scored.path}: label {id_!a} is not a column of {source.path}, which '
      f'has {source.n_labels} columns; ids that are numbers must be columns'
    )


def _check_headers(scored: LabelRows, without_ids: Sequence[LabelRows]) -> None:
  for other in without_ids:
    if other.n_labels is None:
      raise DataError(
        f'{other.path}: has column numbers, but no header with the number of '
        'columns, so the columns cannot be matched with the label ids of '
        f'{scored.path}, such as {scored.labels[0]!a}; use label ids, or add a '
        'header `N L`, or give the label id of each column with '
        '--label_order=FILE'
      )
  logging.info(
    'labels are matched by order: column 0 of %s is %a of %s, and so on',
    without_ids[0].path,
    scored.labels[0],
    scored.path,
  )


def _check_related(scored: LabelRows, others: Sequence[LabelRows]) -> None:
  sources: dict[str, LabelRows] = {}
  for other in others:
    ids = other.labels
    if ids is None and scored.n_labels is not None:
      return  # the file is matched by column, not by id
    if ids is None:
      ids = map(str, np.unique(other.rows.values).tolist())
    sources |= dict.fromkeys(ids, other)
  if sources and scored.labels and sources.keys().isdisjoint(scored.labels):
    id_, other = next(iter(sources.items()))
    raise DataError(
      f'{other.path}: has no label of {scored.path}; {other.path} has {id_!a}, '
      f'and {scored.path} has {scored.labels[0]!a}; both files must use the '
      'same label ids'
    )


def warn_of_unknown(scored: LabelRows, others: Sequence[LabelRows]) -> None:
  """Logs a warning if predicted label ids are not in any other file."""
  if not others or any(other.labels is None for other in others):
    return
  known = {id_ for other in others for id_ in other.labels}
  is_new = np.array([id_ not in known for id_ in scored.labels], bool)
  n = int(is_new[scored.rows.values].sum())
  if n:
    logging.warning(
      '%s: %s of %s predictions are of labels that %s %s not have, such as %a; '
      'each of them counts as a label; give all label ids with --label_order, '
      'to find mistakes in ids',
      scored.path,
      f'{n:,}',
      f'{len(scored.rows.values):,}',
      ' and '.join(str(other.path) for other in others),
      'do' if len(others) > 1 else 'does',
      scored.labels[int(np.argmax(is_new))],
    )


def match_documents(scored: LabelRows, gold: LabelRows) -> LabelRows:
  """Returns the gold in the order of the predictions, by id or by position."""
  ids, gold_ids = scored.doc_ids, gold.doc_ids
  if ids is None or gold_ids is None:
    return _match_by_position(scored, gold)
  if tuple(ids) == tuple(gold_ids):
    return gold
  row_of = {id_: row for row, id_ in enumerate(gold_ids)}
  missing = [row for row, id_ in enumerate(ids) if id_ not in row_of]
  known = set(ids)
  further = [row for row, id_ in enumerate(gold_ids) if id_ not in known]
  for a, rows, b in ((gold, further, scored), (scored, missing, gold)):
    if rows:
      raise DataError(
        f'{a.place(rows[0])}: document {a.doc_ids[rows[0]]!a} is not in '
        f'{b.path} (documents only in {gold.path}: {len(further):,}, only in '
        f'{scored.path}: {len(missing):,}); both files must have the same '
        'documents'
      )
  return gold.take(np.array([row_of[id_] for id_ in ids], np.int64))


def _match_by_position(scored: LabelRows, gold: LabelRows) -> LabelRows:
  if len(scored) != len(gold):
    raise DataError(
      f'{gold.path}: has {len(gold)} documents, but {scored.path} has '
      f'{len(scored)}'
    )
  for a, b in ((scored, gold), (gold, scored)):
    if a.doc_ids is None and b.doc_ids is not None:
      logging.info(
        'documents are matched by position: %s has no document ids', a.path
      )
  return gold


def check_not_transposed(scored: LabelRows, gold: LabelRows) -> None:
  """Checks that the rows of predictions are not labels instead of documents."""
  n_docs, n_labels = len(scored), scored.n_labels
  if n_docs != n_labels and (n_docs, n_labels) == (gold.n_labels, len(gold)):
    raise DataError(
      f'{scored.path}: has {n_docs} rows and {n_labels} columns, but '
      f'{gold.path} has {len(gold)} documents and {gold.n_labels} labels; is '
      'the matrix transposed? A row belongs to a document'
    )
