"""Reads the file formats of the Extreme Classification Repository.

- A feature file has a header `N D L` and one row per document,
  `label,label feature:value feature:value`. A row that starts with a space has
  no labels. The header may be missing, as in LIBSVM multilabel files.
- A label file has a header `N L` and one row per document,
  `label:1.0 label:1.0`.
- A score file is like a label file, but has scores in place of 1.0.

The header has the numbers of documents (N), features (D) and labels (L). The
first feature and the first label have number 0. All files may be gzipped.
"""

from array import array
from collections.abc import Iterable, Iterator
import dataclasses
import itertools
import math
import os
import re

import numpy as np
from scipy import sparse

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
_FLOAT = re.compile(_NUMBER)
_PAIR = re.compile(rb'(\d{1,18})\s+(\d{1,18})')
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

  `kind` says what a column is, such as 'label'.
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
  path: str | os.PathLike
  # Documents, then features, then labels. Entries `index:value` are labels if
  # the header is (N, L), and features if it is (N, D, L) or absent.
  header: tuple[int, ...]
  labels: Ragged  # those before the entries of a line, ascending
  entries: Ragged  # indices, in the order of the file
  values: np.ndarray  # float64 for labels, float32 for features

  @property
  def lines(self) -> np.ndarray:
    """Returns the line number of each row, int64 [N]."""
    first = 2 if self.header else 1
    return np.arange(first, first + len(self.labels), dtype=np.int64)

  @property
  def n_labels(self) -> int:
    """Returns the number in the header, or else the largest label plus 1."""
    return self.header[-1] if self.header else _width(self.labels)

  @property
  def n_features(self) -> int:
    """Returns the number in the header, or else the largest feature plus 1."""
    return self.header[1] if self.header else _width(self.entries)

  def matrix(self) -> sparse.csr_array:
    """Returns the features as a float32 matrix [N, D]."""
    indptr = self.entries.indptr
    if indptr[-1] < 2**31:  # LIBLINEAR and similar libraries require int32
      indptr = indptr.astype(np.int32)
    parts = (self.values, self.entries.values, indptr)
    shape = len(self.entries), self.n_features
    return sparse.csr_array(parts, shape)

  def check(self, rows: Ragged, is_bad: np.ndarray, message: str) -> None:
    """Raises a DataError for the first bad value, with its line number.

    `is_bad` is a bool for each of rows.values. In `message`, {} is the value.
    """
    if np.any(is_bad):
      at = int(np.argmax(is_bad))
      row = int(np.searchsorted(rows.indptr, at, 'right')) - 1
      message = message.format(f'{rows.values[at]:.0f}')
      raise DataError(f'{self.path}:{self.lines[row]}: {message}')


def _width(rows: Ragged) -> int:
  """Returns the number of columns, which is the largest value plus 1."""
  return int(rows.values.max()) + 1 if len(rows.values) else 0


def read_sparse(path: str | os.PathLike, features: bool = True) -> SparseRows:
  """Reads a file of sparse rows, plain or gzipped.

  Each line is a document, also a blank one. A line that starts with a space has
  no labels. If `features` is False, features are checked only for their form,
  and are left out. Faults are a DataError.
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
    is_scores = len(header) == 2
    dtype = np.float64 if is_scores else np.float32
    label_ends, entry_ends = array('q', [0]), array('q', [0])
    labels, entries = [np.zeros(0, np.uint32)], [np.zeros(0, np.uint32)]
    values = [np.zeros(0, dtype)]
    for heads, tails in _blocks(path, lines, header):
      if not (features or is_scores):
        tails = [b''] * len(tails)
      for head, tail in zip(heads, tails):
        label_ends.append(label_ends[-1] + head.count(b',') + bool(head))
        entry_ends.append(entry_ends[-1] + tail.count(b':'))
      labels.append(_indices(_numbers(heads, b',')))
      numbers = _numbers(tails, b':').reshape(-1, 2)
      entries.append(_indices(numbers[:, 0]))
      with np.errstate(over='ignore'):  # too large a number becomes infinite
        values.append(numbers[:, 1].astype(dtype))
  n_rows = len(label_ends) - 1
  if header and n_rows != header[0]:
    raise DataError(f'{path}: {n_rows} rows, but the header says {header[0]}')
  return _check_rows(
    SparseRows(
      path,
      header,
      Ragged(np.asarray(label_ends, np.int64), np.concatenate(labels)),
      Ragged(np.asarray(entry_ends, np.int64), np.concatenate(entries)),
      np.concatenate(values),
    )
  )


def _blocks(
  path: str | os.PathLike,
  lines: Iterable[tuple[int, bytes]],
  header: tuple[int, ...],
) -> Iterator[tuple[list[bytes], list[bytes]]]:
  """Yields the labels and the entries of rows, as `3,14` and `2:1 5:.5`."""
  # NumPy parses many rows at once, and does not say which row is faulty. So the
  # form of each line is checked before.
  is_scores = len(header) == 2
  pattern = _ENTRIES if is_scores else _ROW
  heads: list[bytes] = []
  tails: list[bytes] = []
  size = 0
  for row, (number, line) in enumerate(lines):
    if header and row >= header[0]:
      if line.strip():
        raise DataError(
          f'{path}:{number}: more rows than the header says ({header[0]})'
        )
      continue
    if not pattern.fullmatch(line):
      raise DataError(f'{path}:{number}: {_row_fault(line, is_scores)}')
    head, *tail = line.split(maxsplit=1) or [b'']
    has_labels = b':' not in head
    heads.append(head if has_labels else b'')
    tails.append(b''.join(tail) if has_labels else line)
    size += len(line)
    if size > _AT_ONCE:
      yield heads, tails
      heads, tails, size = [], [], 0
  yield heads, tails


def _numbers(parts: Iterable[bytes], separator: bytes) -> np.ndarray:
  text = b' '.join(filter(None, parts)).replace(separator, b' ')
  return np.fromstring(text, sep=' ')


def _indices(numbers: np.ndarray) -> np.ndarray:
  # An index above MOST, which may be infinite, is a fault in _check_rows.
  return np.minimum(numbers, MOST + 1).astype(np.uint32)


def _row_fault(line: bytes, is_scores: bool) -> str:
  for token in line.split():
    if not _TOKEN.fullmatch(token) or is_scores and b':' not in token:
      shown = token[:30].decode('utf-8', 'backslashreplace')
      expected = 'neither labels, as in `3,14`, nor `feature:value`'
      return f'{shown!a} is {"not `label:value`" if is_scores else expected}'
  return 'labels must come first, without a space before or between them'


def _check_rows(rows: SparseRows) -> SparseRows:
  """Checks labels and entries, and returns them as int32, labels ascending."""
  labels, entries = rows.labels, rows.entries
  is_scores = len(rows.header) == 2
  for kind, part, width in (
    ('label' if is_scores else 'feature', entries, rows.n_features),
    ('label', labels, rows.n_labels),
  ):
    rows.check(part, part.values >= MOST, f'an index is above {MOST - 1}')
    rows.check(
      part, part.values >= width, f'{kind} {{}} is not in 0..{width - 1}'
    )
  if not is_scores:
    order = 'features must ascend, and none may occur twice'
    rows.check(entries, entries.descends(), order)
  for part in (entries, labels):
    rows.check(part, repeated_entries(part), 'label {} occurs twice')
  return dataclasses.replace(
    rows,
    labels=Ragged(labels.indptr, labels.values.astype(np.int32)).ascending(),
    entries=Ragged(entries.indptr, entries.values.astype(np.int32)),
  )


def repeated_entries(rows: Ragged) -> np.ndarray:
  """Returns for each of rows.values whether it occurs earlier in its row."""
  is_repeated = np.zeros(len(rows.values), bool)
  if not rows.descends().any():
    return is_repeated
  row = rows.owners
  order = np.lexsort((rows.values, row))
  values, row = rows.values[order], row[order]
  same = (values[1:] == values[:-1]) & (row[1:] == row[:-1])
  is_repeated[order[1:][same]] = True
  return is_repeated


NOT_GOLD = (
  'the value of gold label {} must be 0 or 1; scores are not gold labels'
)


def read_xc(path: str | os.PathLike, features: bool = True) -> SparseRows:
  """Reads a feature or label file; the labels of both are in `labels`.

  In a label file, a label with value 0 is left out. A value in it that is not 0
  or 1, or a feature that is not finite, is a DataError.
  """
  rows = read_sparse(path, features)
  if len(rows.header) != 2:
    faulty = ~np.isfinite(rows.values)
    rows.check(rows.entries, faulty, 'the value of feature {} is not finite')
    return rows
  rows.check(rows.entries, ~np.isin(rows.values, (0, 1)), NOT_GOLD)
  gold = rows.entries.keep(rows.values != 0).ascending()
  return dataclasses.replace(rows, labels=gold)


def read_pairs(path: str | os.PathLike) -> tuple[np.ndarray, np.ndarray]:
  """Reads the int64 rows `document label` of a reciprocal-pair filter.

  Numbers start at 0. In a pair, label and document are the same item, so the
  label is removed before the best labels of the document are selected. A file
  without pairs removes nothing. The second array has the line of each pair.
  """
  pairs: list[tuple[int, int]] = []
  lines: list[int] = []
  with open_text(path) as file:
    for number, line in numbered_lines(file, path):
      if not line.strip():
        continue
      if not (match := _PAIR.fullmatch(line.strip())):
        raise DataError(f'{path}:{number}: not a pair `document label`')
      pairs.append((int(match[1]), int(match[2])))
      lines.append(number)
  return np.array(pairs, np.int64).reshape(-1, 2), np.array(lines, np.int64)


def in_pairs(rows: Ragged, pairs: np.ndarray) -> np.ndarray:
  """Returns for each of rows.values whether it forms a pair with its row."""
  # Each pair is encoded as one integer.
  pair_codes = np.unique(pairs[:, 0] * MOST + pairs[:, 1])
  codes = rows.cells(MOST)
  at = np.searchsorted(pair_codes, codes)
  return np.append(pair_codes, -1)[at] == codes


def read_inv_prop(path: str | os.PathLike) -> np.ndarray:
  """Reads a positive number per line, in label order, as float64 [L]."""
  weights: list[float] = []
  with open_text(path) as file:
    for number, line in numbered_lines(file, path):
      if not (text := line.strip()):
        continue
      weight = float(text) if _FLOAT.fullmatch(text) else math.nan
      if not 0 < weight < math.inf:
        shown = text[:30].decode('utf-8', 'backslashreplace')
        raise DataError(f'{path}:{number}: {shown!a} is not a positive number')
      weights.append(weight)
  if not weights:
    raise DataError(f'{path}: no number in it')
  return np.array(weights, np.float64)
