"""Reads and checks files of rows `label,label index:value index:value`."""

from array import array
from collections.abc import Iterable, Iterator
import dataclasses
import itertools
import os
import re

import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.files.json_lines import numbered_lines, open_text

MOST = 2**31 - 1  # the largest index or count, because indices are int32
# Arrays of a width that a few bytes state could fill the memory. So a width is
# believed only up to _COLUMNS, or up to _PER_ENTRY columns for each entry.
_COLUMNS, _PER_ENTRY = 1 << 22, 64
_AT_ONCE = 1 << 24  # bytes that are parsed together

_NUMBER = (
  rb'[-+]?(?:(?:\d++\.?+\d*+|\.\d++)(?:[eE][-+]?\d++)?+'
  rb'|(?i:nan|inf(?:inity)?+))'
)
_ENTRY = rb'\d++:' + _NUMBER
_LABELS = rb'\d++(?:,\d++)*+(?!:)'
_ENTRIES = re.compile(rb'[ \t]*+(?:%s(?:[ \t]++|$))*+' % _ENTRY)
_ROW = re.compile(
  rb'(?:%s|%s)?(?:[ \t]++%s)*+[ \t]*+' % (_LABELS, _ENTRY, _ENTRY)
)
_TOKEN = re.compile(rb'%s|%s' % (_LABELS, _ENTRY))
_HEADER = re.compile(rb'\d{1,18}[ \t]+\d{1,18}(?:[ \t]+\d{1,18})?[ \t]*')


def parse_header(line: bytes) -> tuple[int, ...]:
  """Returns the counts of a header `N L` or `N D L`, or () for other lines."""
  return tuple(map(int, line.split())) if _HEADER.fullmatch(line) else ()


def is_row(line: bytes) -> bool:
  """Returns whether a line has the form of a row of labels and features."""
  return bool(_ROW.fullmatch(line))


def check_width(
  path: str | os.PathLike, columns: int, kind: str, entries: int
) -> None:
  """Raises a DataError if a matrix has too few entries for its many columns.

  Call this function before arrays with a value per column are made. `kind` says
  what a column is, such as 'label'.
  """
  most = max(_COLUMNS, _PER_ENTRY * entries)
  if columns > most:
    raise DataError(
      f'{path}: has {columns} {kind}s, but only {entries} entries; at most '
      f'{most} {kind}s are believed then. Correct the header, or number the '
      f'{kind}s without gaps'
    )


@dataclasses.dataclass(frozen=True, eq=False)
class SparseRows:
  """Holds the content of a file of sparse rows."""

  path: str | os.PathLike
  # Of a header (N, L), entries `index:value` are labels; of (N, D, L) or (),
  # they are features.
  header: tuple[int, ...]
  labels: Ragged  # those before the entries of a line, ascending
  entries: Ragged  # indices, in the order of the file
  values: np.ndarray  # float64 for labels, float32 for features

  @property
  def lines(self) -> np.ndarray:
    """Returns the line number of each row, int64 [N]."""
    first = 2 if self.header else 1
    return np.arange(first, first + len(self.labels), dtype=np.int64)

  def check(self, rows: Ragged, is_bad: np.ndarray, message: str) -> None:
    """Raises a DataError for the first bad value, with its line number.

    `is_bad` is a bool for each of rows.values. In `message`, {} is the value.
    """
    if np.any(is_bad):
      at = int(np.argmax(is_bad))
      row = int(np.searchsorted(rows.indptr, at, 'right')) - 1
      message = message.format(f'{rows.values[at]:.0f}')
      raise DataError(f'{self.path}:{self.lines[row]}: {message}')


def read_sparse(path: str | os.PathLike, features: bool = True) -> SparseRows:
  """Reads a file of sparse rows, plain or gzipped.

  Each line is a document. A blank line is a document without labels and
  features. A line that starts with a space has no labels. If `features` is
  False, features are checked only for their form, and are left out. Faults
  are a DataError, also features that do not ascend and a label that occurs
  twice.
  """
  with open_text(path) as file:
    lines = numbered_lines(file, path)
    number, first = next(lines, (0, b''))
    if not number:
      raise DataError(f'{path}: the file is empty')
    header = parse_header(first)
    if not header:
      lines = itertools.chain([(number, first)], lines)
    if max(header, default=0) > MOST:
      raise DataError(f'{path}:1: a count is above {MOST}')
    scores = len(header) == 2
    labels = _Numbers(width=1)
    entries = _Numbers(2, np.float64 if scores else np.float32)
    for head, tail in _parts(path, lines, header):
      labels.add(head.replace(b',', b' '), head.count(b',') + bool(head))
      if features or scores:
        entries.add(tail.replace(b':', b' '), tail.count(b':'))
      else:
        entries.add(b'', 0)
  rows = SparseRows(
    path, header, labels.rows(), entries.rows(), entries.values()
  )
  if header and len(rows.labels) != header[0]:
    n = len(rows.labels)
    raise DataError(f'{path}: {n} rows, but the header says {header[0]}')
  return _check_rows(rows)


def _parts(
  path: str | os.PathLike,
  lines: Iterable[tuple[int, bytes]],
  header: tuple[int, ...],
) -> Iterator[tuple[bytes, bytes]]:
  """Yields the labels and the entries of each row, as `3,14` and `2:1 5:.5`."""
  scores = len(header) == 2
  pattern = _ENTRIES if scores else _ROW
  count = 0
  for number, line in lines:
    if header and count == header[0]:
      if line.strip():
        raise DataError(
          f'{path}:{number}: more rows than the header says ({header[0]})'
        )
      continue
    if not pattern.fullmatch(line):
      raise DataError(f'{path}:{number}: {_row_fault(line, scores)}')
    count += 1
    head, *tail = line.split(maxsplit=1) or [b'']
    yield (b'', line) if b':' in head else (head, b''.join(tail))


def _row_fault(line: bytes, scores: bool) -> str:
  for token in line.split():
    if not _TOKEN.fullmatch(token) or scores and b':' not in token:
      shown = token[:30].decode('utf-8', 'backslashreplace')
      expected = 'neither labels, as in `3,14`, nor `feature:value`'
      return f'{shown!a} is {"not `label:value`" if scores else expected}'
  return 'labels must come first, without a space before or between them'


class _Numbers:
  """Collects rows of numbers: an index each, or with `width` 2 and its value.

  NumPy parses many rows at once, and does not say which row is faulty. So the
  form of each line is checked before.
  """

  def __init__(self, width: int, dtype: type = np.float64):
    self._width, self._dtype = width, dtype
    self._ends = array('q', [0])
    self._waiting: list[bytes] = []
    self._size = 0
    self._indices: list[np.ndarray] = []
    self._values: list[np.ndarray] = []

  def add(self, numbers: bytes, count: int) -> None:
    """Adds a row of `count` indices; its numbers have spaces between them."""
    self._ends.append(self._ends[-1] + count)
    if count:
      self._waiting.append(numbers)
      self._size += len(numbers)
    if self._size > _AT_ONCE:
      self._parse()

  def _parse(self) -> None:
    numbers = np.fromstring(b' '.join(self._waiting), sep=' ')
    numbers = numbers.reshape(-1, self._width)
    # An index above MOST, which may be infinite, is a fault in _check_rows.
    indices = np.minimum(numbers[:, 0], MOST + 1).astype(np.uint32)
    self._indices.append(indices)
    with np.errstate(over='ignore'):  # too large a number becomes infinite
      self._values.append(numbers[:, 1:].ravel().astype(self._dtype))
    self._waiting, self._size = [], 0

  def rows(self) -> Ragged:
    """Returns the indices; no row can be added afterwards."""
    self._parse()
    ends = np.asarray(self._ends, np.int64)
    return Ragged(ends, np.concatenate(self._indices))

  def values(self) -> np.ndarray:
    """Returns the values of the indices; `rows` must be called before."""
    return np.concatenate(self._values)


def _check_rows(rows: SparseRows) -> SparseRows:
  """Checks labels and entries, and returns them as int32, labels ascending."""
  labels, entries = rows.labels, rows.entries
  scores = len(rows.header) == 2
  # In a header `N L`, both limits are L.
  most_entries, most_labels = rows.header[1:][:1] + rows.header[-1:] or (
    MOST,
    MOST,
  )
  for kind, part, most in (
    ('label' if scores else 'feature', entries, most_entries),
    ('label', labels, most_labels),
  ):
    rows.check(part, part.values > MOST, f'an index is above {MOST}')
    rows.check(
      part, part.values >= most, f'{kind} {{}} is not in 0..{most - 1}'
    )
  if not scores:
    order = 'features must ascend, and none may occur twice'
    rows.check(entries, _descends(entries), order)
  for part in (entries, labels):
    rows.check(part, repeated_entries(part), 'label {} occurs twice')
  return dataclasses.replace(
    rows,
    labels=ascending(Ragged(labels.indptr, labels.values.astype(np.int32))),
    entries=Ragged(entries.indptr, entries.values.astype(np.int32)),
  )


def _descends(rows: Ragged) -> np.ndarray:
  """Returns for each of rows.values whether the one before is no smaller."""
  descends = np.zeros(len(rows.values), bool)
  descends[1:] = rows.values[1:] <= rows.values[:-1]
  first = rows.indptr[:-1][rows.lengths > 0]
  descends[first] = False
  return descends


def ascending(rows: Ragged) -> Ragged:
  """Returns the rows with ascending values."""
  if not _descends(rows).any():
    return rows
  row = np.repeat(np.arange(len(rows)), rows.lengths)
  return Ragged(rows.indptr, rows.values[np.lexsort((rows.values, row))])


def repeated_entries(rows: Ragged) -> np.ndarray:
  """Returns for each of rows.values whether it occurs earlier in its row."""
  row = np.repeat(np.arange(len(rows), dtype=np.int32), rows.lengths)
  is_repeated = np.zeros(len(rows.values), bool)
  rises = rows.values[1:] > rows.values[:-1]
  if np.all(rises | (row[1:] != row[:-1])):
    return is_repeated
  order = np.lexsort((rows.values, row))
  values, row = rows.values[order], row[order]
  same = (values[1:] == values[:-1]) & (row[1:] == row[:-1])
  is_repeated[order[1:][same]] = True
  return is_repeated
