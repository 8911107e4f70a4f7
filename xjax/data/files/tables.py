"""Reads CSV, TSV, Parquet or JSON lines, told by contents; writes CSV."""

import codecs
from collections.abc import Iterable, Iterator, Sequence
import contextlib
import csv
import dataclasses
import enum
import io
import itertools
import os
import re
from typing import Any, BinaryIO

from xjax.core.atomic import atomic_write
from xjax.core.errors import DataError, optional
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import UTF16_MARKS, read_rows, reading

_PARQUET_MAGIC = b'PAR1'
_ZIP_MAGIC = b'PK\x03\x04'  # spreadsheets are zip archives
_HEAD = 1 << 18  # bytes that tell the kind and the delimiter of a file
_PIECE = 1 << 20  # bytes that are read at a time
_LONGEST_CELL = 1 << 27  # characters
_LONGEST_NAME = 100  # characters in the name of a column
_DELIMITERS = ',;\t|'
_NO_DELIMITER = '\x1f'  # for tables with a single column
_SAMPLED = 1000  # rows that tell the columns of JSON lines
_NOT_IN_CP1252 = re.compile(rb'[\x81\x8d\x8f\x90\x9d]')
_NOT_UTF8 = re.compile('[\udc80-\udcff]')  # bytes that surrogateescape escapes
# A spreadsheet program computes a cell that starts with one of these characters
# as a formula.
_FORMULA = ('=', '+', '-', '@', '\t', '\r')

# The first line (in Parquet: the number) of each row, and its cells.
_Rows = Iterator[tuple[int, dict[str, Any]]]


class TableFormat(enum.Enum):
  JSON_LINES = 'JSON lines'
  TABLE = 'a table (CSV or TSV)'
  PARQUET = 'Parquet'


@dataclasses.dataclass(frozen=True)
class TableReader:
  """Holds a table that is being read; its rows can be read once."""

  kind: TableFormat
  columns: tuple[str, ...]  # their names
  sample: list[dict[str, Any]]  # the first rows
  rows: _Rows  # all rows


def read_table(file: BinaryIO, name: str, faults: Faults) -> TableReader:
  """Begins to read a table from an open file; faulty rows are left out."""
  # The file stays open. A faulty header is a DataError, a missing pyarrow a
  # UserError.
  kind = table_format(file, name)
  columns = None
  if kind is TableFormat.PARQUET:
    columns, rows = _parquet(file, name)
  elif kind is TableFormat.TABLE:
    columns, rows = _csv(file, name, faults)
  else:
    rows = read_rows(file, faults, name)
  first = list(itertools.islice(rows, _SAMPLED))
  sample = [row for _, row in first]
  if columns is None:
    columns = dict.fromkeys(key for row in sample for key in row)
  return TableReader(kind, tuple(columns), sample, itertools.chain(first, rows))


def table_format(file: BinaryIO, name: str) -> TableFormat:
  """Tells the kind of an open file by its first bytes."""
  # A table with a single column can only be told by a name in .csv or .tsv.
  with reading(name):
    head = file.read(_HEAD)
    file.seek(0)
  if head.startswith(_ZIP_MAGIC):
    raise DataError(
      f'{name}: is a zip archive or a spreadsheet such as .xlsx; save the '
      'table as CSV'
    )
  if head.startswith(_PARQUET_MAGIC):
    return TableFormat.PARQUET
  encoding = 'utf-16' if head.startswith(UTF16_MARKS) else 'utf-8'
  start = head.decode(encoding, 'replace').lstrip('\ufeff \t\r\n')
  names = re.split(f'[{_DELIMITERS}]', start.partition('\n')[0])
  is_header = len(names) > 1 and all(len(n) <= _LONGEST_NAME for n in names)
  named = re.search(r'\.(csv|tsv)(\.gz)?$', name, re.I)
  if start and not start.startswith(('{', '[')) and (named or is_header):
    return TableFormat.TABLE
  return TableFormat.JSON_LINES


def _csv(
  file: BinaryIO, name: str, faults: Faults
) -> tuple[Sequence[str], _Rows]:
  csv.field_size_limit(_LONGEST_CELL)
  try:
    with reading(name):
      encoding = encoding_of(file)
      head = file.read(_HEAD)
      file.seek(0)
      decoder = codecs.getincrementaldecoder(encoding)('replace')
      delimiter = _delimiter(decoder.decode(head), len(head) < _HEAD)
      lines = _text_lines(file, encoding)
      reader = csv.reader(lines, delimiter=delimiter, strict=True)
      try:
        columns = _header(next(filter(None, reader), []))
      except csv.Error as error:
        raise Fault(_row_fault(error)) from error
  except Fault as fault:
    raise DataError(f'{name}:{fault.line}: {fault}') from fault
  return columns, _csv_rows(reader, columns, name, faults)


def _text_lines(file: BinaryIO, encoding: str) -> Iterator[str]:
  text = io.TextIOWrapper(file, encoding, newline='')
  try:
    yield from text
  finally:
    with contextlib.suppress(ValueError):  # the file has been closed already
      text.detach()


def _delimiter(text: str, whole: bool) -> str:
  """Returns the delimiter that divides the first rows most evenly."""
  best = (0.0, 0, _NO_DELIMITER)
  for delimiter in _DELIMITERS:
    lines = io.StringIO(text, newline='')
    rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
    if not whole and len(rows) > 2:
      rows.pop()
    width = len(rows[0]) if rows else 0
    if width > 1:
      share = sum(len(row) == width for row in rows) / len(rows)
      best = max(best, (share, width, delimiter), key=lambda b: b[:2])
  return best[2]


def _header(cells: Sequence[str]) -> Sequence[str]:
  names = [cell.strip().lstrip('\ufeff') for cell in cells]
  # Programs that number the rows often give the numbers no name.
  if len(names) > 1 and not names[0]:
    names[0] = 'column-1'
  for at, name in enumerate(names):
    is_text = len(name) > _LONGEST_NAME or '\n' in name
    is_number = re.fullmatch(r'[-+]?[\d.,]+', name)
    if not name or is_text or is_number or name in names[:at]:
      raise Fault(
        'the first row must be the header, with the names of the columns, but '
        f'its cell {at + 1} is {name[:40]!a}'
      )
  return names


def _row_fault(error: csv.Error) -> str:
  if 'unexpected end' in str(error):
    return 'a cell in this row begins with a quote that is never closed'
  return f'not a row of a table: {error}'


def _csv_rows(
  reader: Iterator[list[str]], columns: Sequence[str], name: str, faults: Faults
) -> _Rows:
  """Yields rows that are not blank, and leaves out rows of another width."""
  with reading(name):
    while True:
      line = reader.line_num + 1
      try:
        cells = next(reader)
      except StopIteration:
        return
      except csv.Error as error:
        # After an open quote, the number of lost rows is unknown.
        is_open = 'unexpected end' in str(error)
        faults.add(name, line, _row_fault(error), fatal=is_open)
        continue
      if len(cells) == len(columns):
        yield line, dict(zip(columns, cells, strict=True))
      elif cells:
        message = f'{len(cells)} cells, but {len(columns)} columns'
        faults.add(name, line, message)


def _parquet(file: BinaryIO, name: str) -> tuple[Sequence[str], _Rows]:
  pa = optional('pyarrow', f'{name}: reading Parquet', 'parquet')
  from pyarrow import parquet

  try:
    table = parquet.ParquetFile(file)
    columns = table.schema_arrow.names
  except (pa.ArrowException, OSError) as error:
    message = f'not a Parquet file that can be read: {error}'
    raise DataError(f'{name}:1: {message}') from error

  def rows() -> _Rows:
    try:
      batches = (b.to_pylist() for b in table.iter_batches(_SAMPLED))
      yield from enumerate(itertools.chain.from_iterable(batches), 1)
    except (pa.ArrowException, OSError, ValueError) as error:
      raise DataError(f'{name}: the file is damaged: {error}') from error

  return columns, rows()


def encoding_of(file: BinaryIO) -> str:
  """Returns the encoding of an open text file, and puts it back at its start.

  It is 'utf-16' after a byte order mark, 'utf-8-sig' if all bytes are UTF-8,
  else 'cp1252', or 'latin-1' if cp1252 lacks a byte. A Fault tells of a NUL, or
  of a byte that is not UTF-8 in a text that mostly is.
  """
  decoder = codecs.getincrementaldecoder('utf-8')('surrogateescape')
  line, bad_line = 1, 0
  valid = broken = lacking = 0
  pieces = iter(lambda: file.read(_PIECE), b'')  # a line may have any length
  for number, piece in enumerate(itertools.chain(pieces, [b''])):
    if not number and piece.startswith(UTF16_MARKS):
      file.seek(0)
      return 'utf-16'
    # The last piece, which is empty, ends a character that is cut.
    text = decoder.decode(piece, final=not piece)
    if '\0' in text:
      line += text.count('\n', 0, text.index('\0'))
      raise Fault('a NUL byte: the file is not text', line)
    bad = len(_NOT_UTF8.findall(text))
    if bad and not broken:
      bad_line = line + text.count('\n', 0, _NOT_UTF8.search(text).start())
    broken += bad
    valid += len(text) - len(text.encode('ascii', 'ignore')) - bad
    lacking += bool(_NOT_IN_CP1252.search(piece))
    line += text.count('\n')
  file.seek(0)
  if not broken:
    return 'utf-8-sig'
  # Text in another encoding is seldom valid UTF-8 by accident. Here, `bad` says
  # whether the last character is cut.
  if valid > 2 * broken or valid and bad == broken:
    message = 'a byte that is not UTF-8, although most of the text is UTF-8'
    raise Fault(message, bad_line)
  return 'latin-1' if lacking else 'cp1252'


def write_csv(
  path: str | os.PathLike, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
  """Writes a CSV file atomically; the cell of None is empty."""
  # An apostrophe keeps spreadsheets from computing a text as a formula.
  with atomic_write(path) as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(columns)
    writer.writerows([_safe(cell) for cell in row] for row in rows)


def _safe(cell: Any) -> Any:
  is_formula = isinstance(cell, str) and cell.startswith(_FORMULA)
  return f"'{cell}" if is_formula else cell
