"""Sparse rows of text, `label,label index:value index:value`, checked."""

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

MOST = 2**31 - 1  # labels and features are counted in int32

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
  """The counts of a header, `N L` or `N D L`; empty where it is none."""
  return tuple(map(int, line.split())) if _HEADER.fullmatch(line) else ()


def is_row(line: bytes) -> bool:
  """Whether a line may be a row of labels and features."""
  return bool(_ROW.fullmatch(line))


@dataclasses.dataclass(frozen=True, eq=False)
class SparseRows:
  """What a file of sparse rows says.

  Attributes:
    path: the file.
    header: (N, L): an entry is a label and its value; (N, D, L): labels, then
      features; (): the same without a header.
    labels: N rows of the labels before the entries, ascending.
    entries: N rows of labels or features, in the order given.
    values: of the entries: float64 of labels, float32 of features.
  """

  path: str | os.PathLike
  header: tuple[int, ...]
  labels: Ragged
  entries: Ragged
  values: np.ndarray

  @property
  def lines(self) -> np.ndarray:
    """int64 [N], the line of each row."""
    first = 2 if self.header else 1
    return np.arange(first, first + len(self.labels), dtype=np.int64)

  def check(self, rows: Ragged, bad: np.ndarray, what: str) -> None:
    """Fails where any of bad, bool over the values of rows, is True.

    Raises:
      DataError: names the line; {} in what is the value.
    """
    if np.any(bad):
      at = int(np.argmax(bad))
      row = int(np.searchsorted(rows.indptr, at, 'right')) - 1
      told = what.format(f'{rows.values[at]:.0f}')
      raise DataError(f'{self.path}:{self.lines[row]}: {told}')


def read_sparse(path: str | os.PathLike, features: bool = True) -> SparseRows:
  """Reads a file of sparse rows, gzipped or not.

  A line is a document; one that is blank has neither labels nor features, one
  that starts with a space has no labels. scikit-learn's svmlight reader parses
  them; what it does not ask is asked here.

  Args:
    path: the file.
    features: whether to keep them; labels are kept always.

  Raises:
    DataError: the file cannot be read, a line is no such row, has a label or
      feature twice or beyond the header's counts, or there are more or fewer
      rows than it says; the message names the line.
  """
  with open_text(path) as file:
    lines = numbered_lines(file, path)
    number, first = next(lines, (0, b''))
    if not number:
      raise DataError(f'{path}: is empty')
    header = parse_header(first)
    if not header:
      lines = itertools.chain([(number, first)], lines)
    if max(header, default=0) > MOST:
      raise DataError(f'{path}:1: a count above {MOST}')
    feed = (_ScoreFeed if len(header) == 2 else _Feed)(path, lines, header)
    feed.features = features
    rows = feed.parse()
  if header and len(rows.labels) != header[0]:
    n = len(rows.labels)
    raise DataError(f'{path}: {n} rows, but its header says {header[0]}')
  return rows


class _Feed(io.RawIOBase):
  """Hands lines to the parser one by one, so that a fault has its line.

  A row of nothing is not handed over, since the parser would drop it.

  Attributes:
    features: whether to hand them over.
    handed: lines handed over for each row.
  """

  row, dtype = _ROW, np.float32
  wanted = 'neither labels, as in `3,14`, nor `feature:value`'

  def __init__(
    self,
    path: str | os.PathLike,
    lines: Iterator[tuple[int, bytes]],
    header: tuple[int, ...],
  ):
    super().__init__()
    self.path, self.header, self.line = path, header, 1
    self.features = True
    self.handed = array('q')
    self._pieces = self._cut(lines)

  def __next__(self) -> bytes:
    return next(self._pieces)

  def fail(self, what: str) -> NoReturn:
    """Raises the error of the line last read."""
    raise DataError(f'{self.path}:{self.line}: {what}')

  def _cut(self, lines: Iterator[tuple[int, bytes]]) -> Iterator[bytes]:
    for self.line, line in lines:
      if self.header and len(self.handed) == self.header[0]:
        if line.strip():
          self.fail(f'one row more than the {self.header[0]} of the header')
        continue
      if not self.row.fullmatch(line):
        self.fail(self._misfit(line))
      pieces = self.pieces(line)
      self.handed.append(len(pieces))
      yield from pieces

  def _misfit(self, line: bytes) -> str:
    for token in line.split():
      if not self.is_token(token):
        shown = token[:30].decode('utf-8', 'backslashreplace')
        return f'{shown!a} is {self.wanted}'
    return 'labels must come first, without a space before or between them'

  def is_token(self, token: bytes) -> bool:
    """Whether it may stand in a row."""
    return bool(_TOKEN.fullmatch(token))

  def pieces(self, line: bytes) -> list[bytes]:
    """The lines that the parser sees of one line."""
    if self.features:
      return [line] if line.strip() else []
    labels = line.split(maxsplit=1)[:1]
    return [token for token in labels if b':' not in token]

  def parse(self) -> SparseRows:
    """Lets the parser read to the end."""
    try:
      matrix, labels = load_svmlight_file(
        self, dtype=self.dtype, multilabel=True, zero_based=True
      )
    except OverflowError:
      self.fail(f'an index above {MOST}')
    except ValueError as error:
      twice = 'sorted and unique' in str(error)
      self.fail('features must ascend, none twice' if twice else str(error))
    handed = np.asarray(self.handed, np.int64)
    rows = SparseRows(
      self.path,
      self.header,
      labels=_labels(labels, handed),
      entries=Ragged(
        _ends(np.diff(matrix.indptr), handed), matrix.indices.astype(np.int32)
      ),
      values=matrix.data,
    )
    return _checked(rows)


class _ScoreFeed(_Feed):
  """The same of rows `label:value`, in any order.

  The parser wants ascending indices, and scores come best first: so it gets a
  row entry by entry.
  """

  row, dtype = _ENTRIES, np.float64
  wanted = 'not `label:value`'

  def is_token(self, token: bytes) -> bool:
    return b':' in token and super().is_token(token)

  def pieces(self, line: bytes) -> list[bytes]:
    return line.split()


def _ends(lengths: np.ndarray, handed: np.ndarray) -> np.ndarray:
  """int64 [N + 1], the bounds of N rows.

  Args:
    lengths: of the lines handed over.
    handed: int64 [N], how many of these each row is.
  """
  before = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
  return before[np.concatenate([np.zeros(1, np.int64), np.cumsum(handed)])]


def _labels(labels: list[tuple[float, ...]], handed: np.ndarray) -> Ragged:
  """The parser's labels, float64: it knows no integers."""
  lengths = np.fromiter(map(len, labels), np.int64, len(labels))
  flat = itertools.chain.from_iterable(labels)
  values = np.fromiter(flat, np.float64, lengths.sum())
  return Ragged(_ends(lengths, handed), values)


def _checked(rows: SparseRows) -> SparseRows:
  """The rows with labels as int32, once they are known to fit."""
  labels, entries = rows.labels, rows.entries
  what = 'label' if len(rows.header) == 2 else 'feature'
  # Both are the labels' count in a header of two.
  most_entries, most_labels = rows.header[1:][:1] + rows.header[-1:] or (
    MOST,
    MOST,
  )
  for kind, found, most in (
    (what, entries, most_entries),
    ('label', labels, most_labels),
  ):
    beyond = f'{kind} {{}} is not in 0..{most - 1}'
    rows.check(found, found.values >= most, beyond)
    rows.check(found, repeated_entries(found), f'{kind} {{}} stands twice')
  return dataclasses.replace(
    rows, labels=Ragged(labels.indptr, labels.values.astype(np.int32))
  )


def repeated_entries(rows: Ragged) -> np.ndarray:
  """Bool over the values of rows: the same value stands earlier in its row."""
  row = np.repeat(np.arange(len(rows), dtype=np.int32), rows.lengths)
  found = np.zeros(len(rows.values), bool)
  rises = rows.values[1:] > rows.values[:-1]
  if np.all(rises | (row[1:] != row[:-1])):
    return found
  order = np.lexsort((rows.values, row))
  values, row = rows.values[order], row[order]
  again = (values[1:] == values[:-1]) & (row[1:] == row[:-1])
  found[order[1:][again]] = True
  return found
