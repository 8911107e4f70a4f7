"""Reads and checks files of rows `label,label index:value index:value`."""

from array import array
from collections.abc import Iterator
import dataclasses
import io
import itertools
import os
import re
from typing import NoReturn

import numpy as np
from sklearn.datasets import load_svmlight_file

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.files.json_lines import numbered_lines, open_text

MOST = 2**31 - 1  # the largest index or count, because indices are int32
# Arrays of a width that a few bytes state could fill the memory. So a width is
# believed only up to _COLUMNS, or up to _PER_ENTRY columns for each entry.
_COLUMNS, _PER_ENTRY = 1 << 22, 64

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
  """Holds the content of a file of sparse rows.

  Attributes:
    header: the counts of the header, (N, L) or (N, D, L); () without a header.
      If the header is (N, L), an entry `index:value` is a label and its value.
      Otherwise, an entry is a feature and its value.
    labels: N rows of labels. A row has the labels that stand before the entries
      of a line, ascending.
    entries: N rows of the indices of the entries, in the order of the file.
    values: values of the entries; float64 for labels, float32 for features.
  """

  path: str | os.PathLike
  header: tuple[int, ...]
  labels: Ragged
  entries: Ragged
  values: np.ndarray

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
  features. A line that starts with a space has no labels. scikit-learn's
  svmlight reader parses the lines. This function adds checks that scikit-learn
  does not do.

  Raises:
    DataError: the file cannot be read, a line is not a row of this format, the
      header and the rows contradict each other, or a label or feature occurs
      twice in a line.
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
    feed = (_ScoreFeed if len(header) == 2 else _Feed)(path, lines, header)
    feed.features = features
    rows = feed.parse()
  if header and len(rows.labels) != header[0]:
    n = len(rows.labels)
    raise DataError(f'{path}: {n} rows, but the header says {header[0]}')
  return rows


class _Feed(io.RawIOBase):
  """Passes lines to scikit-learn's parser one by one.

  Lines are passed one by one so that errors have a line number. The parser
  drops rows without labels and features, so these rows are only counted here.

  Attributes:
    row: the pattern of a row.
    expected: the end of a message about a faulty token.
    piece_counts: the number of lines that the parser got for each row.
  """

  row, dtype = _ROW, np.float32
  expected = 'neither labels, as in `3,14`, nor `feature:value`'

  def __init__(
    self,
    path: str | os.PathLike,
    lines: Iterator[tuple[int, bytes]],
    header: tuple[int, ...],
  ):
    super().__init__()
    self.path, self.header, self.line = path, header, 1
    self.features = True
    self.piece_counts = array('q')
    self._pieces = self._cut(lines)

  def __next__(self) -> bytes:
    return next(self._pieces)

  def fail(self, message: str) -> NoReturn:
    """Raises a DataError about the line that was read last."""
    raise DataError(f'{self.path}:{self.line}: {message}')

  def _cut(self, lines: Iterator[tuple[int, bytes]]) -> Iterator[bytes]:
    for self.line, line in lines:
      if self.header and len(self.piece_counts) == self.header[0]:
        if line.strip():
          self.fail(f'more rows than the header says ({self.header[0]})')
        continue
      if not self.row.fullmatch(line):
        self.fail(self._row_fault(line))
      pieces = self.pieces(line)
      self.piece_counts.append(len(pieces))
      yield from pieces

  def _row_fault(self, line: bytes) -> str:
    for token in line.split():
      if not self.is_token(token):
        shown = token[:30].decode('utf-8', 'backslashreplace')
        return f'{shown!a} is {self.expected}'
    return 'labels must come first, without a space before or between them'

  def is_token(self, token: bytes) -> bool:
    return bool(_TOKEN.fullmatch(token))

  def pieces(self, line: bytes) -> list[bytes]:
    """Returns the lines that the parser gets for one line of the file."""
    if self.features:
      return [line] if line.strip() else []
    labels = line.split(maxsplit=1)[:1]
    return [token for token in labels if b':' not in token]

  def parse(self) -> SparseRows:
    try:
      matrix, labels = load_svmlight_file(
        self, dtype=self.dtype, multilabel=True, zero_based=True
      )
    except OverflowError:
      self.fail(f'an index is above {MOST}')
    except ValueError as error:
      unsorted = 'sorted and unique' in str(error)
      self.fail(
        'features must ascend, and none may occur twice'
        if unsorted
        else str(error)
      )
    piece_counts = np.asarray(self.piece_counts, np.int64)
    rows = SparseRows(
      self.path,
      self.header,
      labels=_labels(labels, piece_counts),
      entries=Ragged(
        _row_bounds(np.diff(matrix.indptr), piece_counts),
        matrix.indices.astype(np.int32),
      ),
      values=matrix.data,
    )
    return _check_rows(rows)


class _ScoreFeed(_Feed):
  """Passes rows `label:value label:value` to the parser.

  The parser requires ascending indices, but labels are often sorted by their
  values. So the parser gets each entry as a line of its own.
  """

  row, dtype = _ENTRIES, np.float64
  expected = 'not `label:value`'

  def is_token(self, token: bytes) -> bool:
    return b':' in token and super().is_token(token)

  def pieces(self, line: bytes) -> list[bytes]:
    return line.split()


def _row_bounds(lengths: np.ndarray, piece_counts: np.ndarray) -> np.ndarray:
  """Returns the indptr of a Ragged of N rows, int64 [N + 1].

  `lengths` are those of the lines that the parser got; a row has several.
  """
  before = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
  return before[
    np.concatenate([np.zeros(1, np.int64), np.cumsum(piece_counts)])
  ]


def _labels(
  labels: list[tuple[float, ...]], piece_counts: np.ndarray
) -> Ragged:
  """Returns each row's labels as float64, since the parser gives floats."""
  lengths = np.fromiter(map(len, labels), np.int64, len(labels))
  flat = itertools.chain.from_iterable(labels)
  values = np.fromiter(flat, np.float64, lengths.sum())
  return Ragged(_row_bounds(lengths, piece_counts), values)


def _check_rows(rows: SparseRows) -> SparseRows:
  """Checks labels and entries, and returns the rows with labels as int32."""
  labels, entries = rows.labels, rows.entries
  entry_kind = 'label' if len(rows.header) == 2 else 'feature'
  # In a header `N L`, both limits are L.
  most_entries, most_labels = rows.header[1:][:1] + rows.header[-1:] or (
    MOST,
    MOST,
  )
  for kind, part, most in (
    (entry_kind, entries, most_entries),
    ('label', labels, most_labels),
  ):
    out_of_range = f'{kind} {{}} is not in 0..{most - 1}'
    rows.check(part, part.values >= most, out_of_range)
    rows.check(part, repeated_entries(part), f'{kind} {{}} occurs twice')
  return dataclasses.replace(
    rows, labels=Ragged(labels.indptr, labels.values.astype(np.int32))
  )


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
