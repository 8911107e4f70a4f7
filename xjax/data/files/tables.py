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
import tempfile
from typing import Any, BinaryIO
import zlib

from xjax.core.atomic import atomic_write
from xjax.core.errors import DataError, UserError
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import (
  UTF16_MARKS,
  look_ahead,
  looks_like_table,
  read_rows,
)

PARQUET_MAGIC = b'PAR1'
_ZIP_MAGIC = b'PK\x03\x04'  # spreadsheets are zip archives
_HEAD = 1 << 18  # bytes that tell the kind and the delimiter of a file
_PIECE = 1 << 20  # bytes that are read at a time
# A pipe may be endless, such as /dev/zero, and must not fill the disk.
_LONGEST_PIPE = 1 << 30  # bytes
_LONGEST_CELL = 1 << 27  # characters
_LONGEST_NAME = 100  # characters in the name of a column
_DELIMITERS = ',;\t|'
_NO_DELIMITER = '\x1f'  # for tables with a single column
# A table with a single column can only be told by the name of its file.
_ONE_COLUMN = 'or name the file .csv if it is a table'
_SAMPLED = 1000  # rows that tell the columns of JSON lines
_NOT_IN_CP1252 = re.compile(rb'[\x81\x8d\x8f\x90\x9d]')
# A spreadsheet program computes a cell that starts with one of these characters
# as a formula.
_FORMULA = ('=', '+', '-', '@', '\t', '\r')


class FileKind(enum.Enum):
  JSON_LINES = 'JSON lines'
  TABLE = 'a table (CSV or TSV)'
  PARQUET = 'Parquet'


@dataclasses.dataclass(frozen=True)
class Table:
  """Holds a table that is being read; its rows can be read once."""

  kind: FileKind
  columns: tuple[str, ...]  # their names
  # The first line (in Parquet: the number) of each row, and its cells.
  rows: Iterator[tuple[int, dict[str, Any]]]


def read_table(file: BinaryIO, name: str, faults: Faults) -> Table:
  """Begins to read a table from an open file; faulty rows are left out."""
  # The file is `rewindable`, and stays open. A faulty header is a DataError, a
  # missing pyarrow a UserError.
  kind, file = kind_of(file, name)
  try:
    match kind:
      case FileKind.PARQUET:
        return _parquet(file, name, faults)
      case FileKind.TABLE:
        return _csv(file, name, faults)
  except Fault as fault:
    raise DataError(f'{name}:{fault.line}: {fault}') from fault
  rows = read_rows(file, faults, name, advice=_ONE_COLUMN)
  sample = list(itertools.islice(rows, _SAMPLED))
  columns = dict.fromkeys(key for _, row in sample for key in row)
  return Table(kind, tuple(columns), itertools.chain(sample, rows))


@contextlib.contextmanager
def rewindable(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
  """Yields a file that can be read twice: a pipe is copied to a file."""
  if file.seekable():
    yield file
    return
  with contextlib.ExitStack() as stack:
    try:
      copy = stack.enter_context(tempfile.TemporaryFile())
      copy.writelines(_pieces(file, name))
      copy.seek(0)
    except OSError as error:
      raise UserError(
        f'temporary data cannot be written ({error.strerror}); give another '
        'folder in the variable TMPDIR'
      ) from error
    yield copy


def _pieces(pipe: BinaryIO, name: str) -> Iterator[bytes]:
  size = 0
  try:
    with _damage():
      while piece := pipe.read(_PIECE):
        size += len(piece)
        if size > _LONGEST_PIPE:
          raise DataError(
            f'{name}: more than {_LONGEST_PIPE >> 20} MiB of a table came from '
            'a pipe, which is too much to keep; save the table as a file first'
          )
        yield piece
  except Fault as fault:
    raise DataError(f'{name}: {fault}') from fault


def kind_of(file: BinaryIO, name: str) -> tuple[FileKind, BinaryIO]:
  """Tells the kind of an open file or pipe by its first bytes."""
  # A table with a single column can only be told by a name in .csv or .tsv. The
  # returned file has the same bytes.
  try:
    with _damage():
      head, file = look_ahead(file, _HEAD)
  except Fault as fault:
    raise DataError(f'{name}: {fault}') from fault
  if head.startswith(_ZIP_MAGIC):
    raise DataError(
      f'{name}: is a zip archive or a spreadsheet such as .xlsx; save the '
      'table as CSV'
    )
  return _kind(head, name), file


def _kind(head: bytes, name: str) -> FileKind:
  if head.startswith(PARQUET_MAGIC):
    return FileKind.PARQUET
  start = _decoded(head).lstrip('\ufeff \t\r\n')
  is_json = start.startswith(('{', '['))
  named = re.search(r'\.(csv|tsv)(\.gz)?$', name, re.I)
  first = start.partition('\n')[0]
  if start and not is_json and (named or looks_like_table(first)):
    return FileKind.TABLE
  return FileKind.JSON_LINES


def _decoded(head: bytes) -> str:
  """Decodes the first bytes of a file; characters may be wrong."""
  if head.startswith(UTF16_MARKS):
    return codecs.getincrementaldecoder('utf-16')('replace').decode(head)
  return head.decode('utf-8', 'replace')


@contextlib.contextmanager
def _damage() -> Iterator[None]:
  try:
    yield
  except EOFError as error:
    raise Fault('the gzip file is cut short: get it again') from error
  except (OSError, zlib.error) as error:
    raise Fault(f'the file is damaged: {error}') from error


def _csv(file: BinaryIO, name: str, faults: Faults) -> Table:
  csv.field_size_limit(_LONGEST_CELL)
  with _damage():
    encoding = encoding_of(file)
    head = file.read(_HEAD)
  file.seek(0)
  whole = len(head) < _HEAD
  decoder = codecs.getincrementaldecoder(encoding)('replace')
  delimiter = _delimiter(decoder.decode(head), whole)
  lines = _text_lines(file, encoding)
  reader = csv.reader(lines, delimiter=delimiter, strict=True)
  # A faulty first row cannot be left out: the next row is no header.
  strict = Faults(on_error=None)
  _, header = next(_csv_rows(reader, name, strict), (1, []))
  strict.settle()
  columns = _header(header)
  rows = _csv_rows(reader, name, faults)
  return Table(
    FileKind.TABLE, columns, _with_names(rows, columns, name, faults)
  )


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


def _header(cells: Sequence[str]) -> tuple[str, ...]:
  names = tuple(cell.strip().lstrip('\ufeff') for cell in cells)
  # Programs that number the rows often give the numbers no name.
  if len(names) > 1 and not names[0]:
    names = ('column-1', *names[1:])
  for at, name in enumerate(names, 1):
    fault = ''
    if not name:
      fault = 'is empty'
    elif len(name) > _LONGEST_NAME or '\n' in name:
      fault = f'is a long text, {name[:40]!a}...'
    elif re.fullmatch(r'[-+]?[\d.,]+', name):
      fault = f'is a number, {name}'
    elif name in names[: at - 1]:
      fault = f'is {name!a}, like another cell'
    if fault:
      raise Fault(
        'the first row must be the header, with the names of the columns; '
        f'its cell {at} {fault}'
      )
  if not names:
    raise Fault('the table is empty')
  return names


def _csv_rows(
  reader: Iterator[list[str]], name: str, faults: Faults
) -> Iterator[tuple[int, list[str]]]:
  """Yields the first line and the cells of each row that is not blank."""
  while True:
    line = reader.line_num + 1
    try:
      cells = next(reader, None)
    except csv.Error as error:
      is_open = 'unexpected end' in str(error)
      message = (
        'a cell in this row begins with a quote that is never closed'
        if is_open
        else f'not a row of a table: {error}'
      )
      faults.add(name, line, message, fatal=is_open)
      continue
    except (OSError, EOFError, zlib.error, UnicodeError) as error:
      message = f'the file is damaged: {error}'
      faults.add(name, line, message, fatal=True)
      return
    if cells is None:
      return
    if cells:
      yield line, cells


def _with_names(
  rows: Iterator[tuple[int, list[str]]],
  columns: Sequence[str],
  name: str,
  faults: Faults,
) -> Iterator[tuple[int, dict[str, str]]]:
  """Yields rows as {column: cell}, and leaves out rows of another width."""
  for line, cells in rows:
    if len(cells) == len(columns):
      yield line, dict(zip(columns, cells, strict=True))
    else:
      faults.add(name, line, f'{len(cells)} cells, but {len(columns)} columns')


def _parquet(file: BinaryIO, name: str, faults: Faults) -> Table:
  try:
    import pyarrow as pa
    from pyarrow import parquet
  except ImportError as error:
    raise UserError(
      f'{name}: reading Parquet needs pyarrow: pip install pyarrow'
    ) from error
  try:
    table = parquet.ParquetFile(file)
    columns = tuple(table.schema_arrow.names)
  except (pa.ArrowException, OSError) as error:
    raise Fault(f'not a Parquet file that can be read: {error}') from error

  def rows() -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    try:
      for batch in table.iter_batches(_SAMPLED):
        for row in batch.to_pylist():
          number += 1
          yield number, row
    except (pa.ArrowException, OSError, ValueError) as error:
      message = f'the file is damaged: {error}'
      faults.add(name, number + 1, message, fatal=True)

  return Table(FileKind.PARQUET, columns, rows())


def encoding_of(file: BinaryIO) -> str:
  """Returns the encoding of an open text file, and puts it back at its start.

  It is 'utf-16' after a byte order mark, 'utf-8-sig' if all bytes are UTF-8,
  else 'cp1252', or 'latin-1' if cp1252 lacks a byte. A Fault tells of a NUL, or
  of a byte that is not UTF-8 in a text that mostly is.
  """
  decoder = codecs.getincrementaldecoder('utf-8')()
  line, encoding, seen = 1, 'utf-8-sig', False
  try:
    while piece := file.read(_PIECE):
      if line == 1 and piece.startswith(UTF16_MARKS):
        return 'utf-16'
      if (at := piece.find(0)) >= 0:
        line += piece.count(b'\n', 0, at)
        raise Fault('a NUL byte: the file is not text', line)
      if encoding == 'utf-8-sig':
        encoding = _check_utf8(decoder, piece, line, seen)
        # Bytes at the end may be the start of a character.
        whole = piece[: len(piece) - len(decoder.getstate()[0])]
        seen = seen or not whole.isascii()
      elif _NOT_IN_CP1252.search(piece):
        encoding = 'latin-1'
      line += piece.count(b'\n')
    if encoding == 'utf-8-sig' and decoder.getstate()[0]:
      if seen:
        raise Fault('the last character is cut off: the file is damaged', line)
      return 'cp1252'
    return encoding
  finally:
    file.seek(0)


def _check_utf8(
  decoder: codecs.IncrementalDecoder, piece: bytes, line: int, seen: bool
) -> str:
  """Returns the encoding of a piece: utf-8-sig, cp1252 or latin-1."""
  # If earlier pieces have characters of several bytes (`seen`), or most of
  # these here are valid, damage is a Fault.
  try:
    decoder.decode(piece)
  except UnicodeDecodeError as error:
    text = piece.decode('utf-8', 'replace')
    broken = text.count('\ufffd')
    # Text in another encoding is hardly ever valid UTF-8 by accident.
    valid = len(text) - len(text.encode('ascii', 'ignore'))
    if seen or valid > 2 * broken:
      raise Fault(
        'a byte that is not UTF-8, although most of the text is UTF-8',
        line + piece.count(b'\n', 0, error.start),
      ) from error
    return 'latin-1' if _NOT_IN_CP1252.search(piece) else 'cp1252'
  return 'utf-8-sig'


def write_csv(
  path: str | os.PathLike,
  columns: Sequence[str],
  rows: Iterable[Sequence[Any]],
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
