"""Matches labels and documents of several files, by id or by position."""

from collections.abc import Iterable, Sequence
import dataclasses
import functools
import itertools
import os
import re

from absl import logging
import numpy as np

from xjax.core.errors import DataError
from xjax.core.texts import plain_name
from xjax.core.types import Ragged
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import (
  check_rereadable,
  numbered_lines,
  open_text,
)
from xjax.data.formats.label_files import (
  is_table,
  read_descriptors,
  read_ids,
)
from xjax.data.formats.xc_files import check_width
from xjax.judge.files.document_labels import DocumentLabels

_NUMBER = re.compile('0|[1-9][0-9]{0,7}')


def column_numbers(labels: Sequence[str]) -> np.ndarray:
  """Converts ids to int64 column numbers; another id becomes -1."""
  numbers = (int(i) if _NUMBER.fullmatch(i) else -1 for i in labels)
  return np.fromiter(numbers, np.int64, len(labels))


@dataclasses.dataclass(frozen=True, eq=False)
class LabelOrder:
  """Holds the label id of each column."""

  path: str | os.PathLike  # for messages
  labels: tuple[str, ...]

  @property
  def numbered(self) -> bool:
    return bool(np.all(column_numbers(self.labels) >= 0))

  def check(self, source: DocumentLabels) -> None:
    """Checks that all label ids of a file are in this order.

    A mistyped id would count as one label more, and change all metrics.
    """
    known = set(self.labels)
    source.check_labels(
      np.array([id_ not in known for id_ in source.labels], bool),
      f'label {{}} is not in {self.path} (--label_order); correct the id, or '
      'add a line for the label (and a column to files with columns)',
    )


def name_columns(
  source: DocumentLabels, ids: Sequence[str], path: str | os.PathLike
) -> DocumentLabels:
  """Adds label ids to the rows of a file that has only column numbers."""
  if source.labels is not None:
    return source
  n = len(ids)
  if source.n_labels not in (None, n):
    raise DataError(
      f'{source.path}: has {source.n_labels} labels, but {path} has {n}'
    )
  message = f'label {{}} is not in 0..{n - 1}, the columns of {path}'
  source.check(source.rows.values >= n, message)
  return dataclasses.replace(source, labels=tuple(ids), n_labels=n)


def read_label_order(path: str | os.PathLike) -> LabelOrder:
  """Reads the label id of each column: a file of labels, or plain ids.

  Ids that are column numbers must ascend: otherwise, the column could be the id
  or the place of the line.
  """
  check_rereadable(path)
  with open_text(path) as file:
    _, first = next(numbered_lines(file, path), (0, b''))
  faults = Faults(on_error=None)
  if first.lstrip().startswith(b'{') or is_table(path):
    labels = tuple(read_descriptors(path, faults))
  else:
    lines = read_ids(path, faults)
    labels = tuple(lines)
    # A line that is left out would move the labels after it.
    rows = (row for row, line in enumerate(lines.values(), 1) if row != line)
    for row in itertools.islice(rows, not faults.count):
      faults.add(path, row, 'the id is empty')
  faults.raise_or_log()
  order = LabelOrder(path, labels)
  if order.numbered and np.any(np.diff(column_numbers(labels)) < 0):
    raise DataError(
      f'{path}: the ids are column numbers, but not in ascending order; use '
      'other ids, or sort the lines by id'
    )
  return order


MOST_LABELS = 100_000_000  # a larger number in a header is a mistake
_ORDER = '--label_order=FILE'


@dataclasses.dataclass(frozen=True, eq=False)
class KnownLabels:
  """Holds the ids of all labels of several files; see known_labels_of."""

  labels: tuple[str, ...]

  @functools.cached_property
  def index(self) -> dict[str, int]:
    return {id_: i for i, id_ in enumerate(self.labels)}

  def sorted_rows(self, source: DocumentLabels) -> Ragged:
    """Returns a file's rows as indices of known labels; each row is sorted."""
    values = self.indices(source)[source.rows.values]
    return Ragged(source.rows.indptr, values.astype(np.int32)).ascending()

  def rename_labels(self, source: DocumentLabels) -> DocumentLabels:
    """Returns a file's rows as indices of known labels, in the file's order."""
    values = self.indices(source)[source.rows.values].astype(np.int32)
    return dataclasses.replace(
      source, rows=Ragged(source.rows.indptr, values), labels=self.labels
    )

  @functools.cached_property
  def _numbers(self) -> np.ndarray:
    return column_numbers(self.labels)

  def _first_columns(self, n: int) -> np.ndarray:
    """Returns the label of each of n columns, int64; -1 if it has none."""
    numbers_L, columns = self._numbers, np.full(n, -1)
    numbered = np.flatnonzero((numbers_L >= 0) & (numbers_L < n))
    columns[numbers_L[numbered]] = numbered
    return columns

  def indices(self, source: DocumentLabels) -> np.ndarray:
    """Returns the index of each label or column of a file; -1 if unknown."""
    if source.labels is not None:
      return np.array([self.index.get(x, -1) for x in source.labels], np.int64)
    return self._first_columns(_width(source))

  def column_labels(self, source: DocumentLabels) -> np.ndarray:
    """Returns the label of each column of a file, int64; -1 if it has none."""
    if source.labels is not None or source.n_labels is not None:
      return self.indices(source)
    width = int(self._numbers.max(initial=-1)) + 1
    if not width:
      raise DataError(
        f'{source.path}: has column numbers, but no label id is a number; '
        f'give the label id of each column: {_ORDER}'
      )
    # An id such as 99999999 must not cost more memory than the ids justify.
    check_width(source.path, width, 'label', len(self.labels))
    return self._first_columns(width)


def known_labels_of(
  scored: DocumentLabels, others: Sequence[DocumentLabels]
) -> KnownLabels:
  """Returns all labels of predictions and of the files for judging them.

  Labels are matched by id. The id of a column without an id is its number. If a
  file has such columns and says how many, they are all labels, and the other
  files must not have other ids. If none says how many, the largest id of
  predictions with an order is their last column.

  The labels of predictions with an order (scored.n_labels is set) come first;
  else all columns come first, if their number is known. Labels that are only in
  other files follow, sorted.
  """
  every = scored, *others
  counted = (x for x in every if x.labels is None and x.n_labels is not None)
  columns = next(counted, None)
  ordered = scored.labels if scored.n_labels is not None else None
  if columns is None:
    _check_related(scored, others)
    last = int(column_numbers(ordered or ()).max(initial=-1))
    for other in others:
      if other.labels is None and last >= 0:
        other.check(
          other.rows.values > last,
          f'label {{}} is not in 0..{last}, the columns of {scored.path}',
        )
    ids = {id_ for source in every for id_ in _used_ids(source)}
  else:
    ids = tuple(map(str, range(_width(columns))))
    for source in every:
      _check_columns(source, ids, columns.path)
    if ordered is None:
      return KnownLabels(ids)
  first = ordered or ()
  return KnownLabels(first + tuple(sorted(set(ids).difference(first))))


def _width(source: DocumentLabels) -> int:
  """Returns the number of columns of a file without label ids."""
  n = source.n_labels
  if n is None:
    n = int(source.rows.values.max(initial=-1)) + 1
  if n > MOST_LABELS:
    raise DataError(
      f'{source.path}: has {n} labels; at most {MOST_LABELS} are allowed'
    )
  check_width(source.path, n, 'label', len(source.rows.values))
  return n


def _used_ids(source: DocumentLabels) -> Iterable[str]:
  if source.labels is not None:
    return source.labels
  if source.n_labels is not None:
    return map(str, range(source.n_labels))
  return map(str, np.unique(source.rows.values).tolist())


def _check_columns(
  source: DocumentLabels, columns: Sequence[str], path: str | os.PathLike
) -> None:
  """Checks that a file has no other labels than these columns of `path`."""
  if source.labels is None:
    name_columns(source, columns, path)
  else:
    numbers = column_numbers(source.labels)
    source.check_labels(
      (numbers < 0) | (numbers >= len(columns)),
      f'label {{}} is unknown; {path} has column numbers, so label ids must be '
      f'numbers from 0 to {len(columns) - 1}, or give a file with the label id '
      f'of each column: {_ORDER}',
    )


def _check_related(
  scored: DocumentLabels, others: Sequence[DocumentLabels]
) -> None:
  sources: dict[str, DocumentLabels] = {}
  for other in others:
    sources |= dict.fromkeys(_used_ids(other), other)
  if sources and scored.labels and sources.keys().isdisjoint(scored.labels):
    id_, other = next(iter(sources.items()))
    raise DataError(
      f'{other.path}: has no label of {scored.path}; {other.path} has {id_!a}, '
      f'and {scored.path} has {scored.labels[0]!a}; both files must use the '
      f'same label ids, or give the label id of each column: {_ORDER}'
    )


def in_same_forms(sources: Sequence[DocumentLabels]) -> list[DocumentLabels]:
  """Returns files with each name of a label as in the first file that has it.

  A name in NFD, for example, is the same in NFC, if no file has both.
  """
  forms: dict[str, str] = {}  # also of each name as it is
  matched = []
  for source in sources:
    if source.labels is not None:
      known = (
        forms.get(x) or forms.get(plain_name(x), x) for x in source.labels
      )
      labels = tuple(known)
      if len({*labels}) == len(labels):
        source = dataclasses.replace(source, labels=labels)
      for name in source.labels:
        forms.setdefault(plain_name(name), name)
        forms[name] = name
    matched.append(source)
  return matched


def warn_of_unknown(
  scored: DocumentLabels, others: Sequence[DocumentLabels]
) -> None:
  """Logs a warning if predicted label ids are not in any other file."""
  if not others or any(
    other.labels is None and other.n_labels is not None for other in others
  ):
    return  # all columns are labels, and known_labels_of refuses others
  known = {id_ for other in others for id_ in _used_ids(other)}
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


def match_documents(
  scored: DocumentLabels, gold: DocumentLabels
) -> DocumentLabels:
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


def _match_by_position(
  scored: DocumentLabels, gold: DocumentLabels
) -> DocumentLabels:
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


def check_not_transposed(scored: DocumentLabels, gold: DocumentLabels) -> None:
  """Checks that the rows of predictions are not labels instead of documents."""
  n_docs, n_labels = len(scored), scored.n_labels
  if n_docs != n_labels and (n_docs, n_labels) == (gold.n_labels, len(gold)):
    raise DataError(
      f'{scored.path}: has {n_docs} rows and {n_labels} columns, but '
      f'{gold.path} has {len(gold)} documents and {gold.n_labels} labels; is '
      'the matrix transposed? A row belongs to a document'
    )
