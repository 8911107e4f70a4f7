"""Reads the rows of CSV and TSV."""

import codecs
from collections.abc import Iterator, Sequence
import contextlib
import csv
import enum
import io
import itertools
from operator import itemgetter
import re
from typing import Any, BinaryIO

from absl import logging

from xjax.data.files.csv_quotes import (
  KNOWN_ROWS,
  NEARLY_ALL,
  WAY_OUT,
  Quotes,
)
from xjax.data.files.encodings import NUL, Encoding, encoding_of
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import reading
from xjax.data.files.json_values import decode_utf8

DELIMITERS = ',;\t|'
# A header as R writes it; such a table has spaces between the cells.
SPACED = re.compile(r'(?:"[^"\r\n]*" )+"[^"\r\n]*"\r?$', re.MULTILINE)
LONGEST_NAME = 100  # characters in the name of a column
HEAD = 1 << 18  # bytes that tell the kind and the delimiter of a file
_LONGEST_CELL = 1 << 27  # characters
_NO_DELIMITER = '\x1f'  # for tables with a single column

# The first line (in Parquet: the number) of each row, and its cells.
Rows = Iterator[tuple[int, dict[str, Any]]]


class Quoting(enum.Enum):
  """Says what quotes mean in a table."""

  AUTO = 'auto'  # as in CSV, but a cell that seems to hold rows is a fault
  CSV = 'csv'  # a quoted cell may hold anything
  BACKSLASH = 'backslash'  # as in auto; a backslash is before a quote in a cell
  NONE = 'none'  # nothing: quotes are ordinary characters


def read_csv(
  file: BinaryIO,
  name: str,
  faults: Faults,
  wanted: str,
  quoting: Quoting,
  blank: bool = False,
) -> tuple[Sequence[str], Rows]:
  """Returns the columns and the rows; a faulty header is a DataError.

  With `blank`, there are also rows of empty cells, and in a table with one
  column, blank lines between others.
  """
  csv.field_size_limit(_LONGEST_CELL)
  form = {'strict': True}
  if quoting is Quoting.NONE:
    form['quoting'] = csv.QUOTE_NONE
  elif quoting is Quoting.BACKSLASH:
    form['escapechar'] = '\\'
  with reading(name):
    encoding = Encoding(wanted or 'utf-8-sig')
    if file.seekable():
      encoding = encoding_of(file, wanted)
      if encoding.unclear:
        raise Fault(f'the encoding is not clear: {encoding}')
      encoding.log(name)
    head = head_of(file)
    decoder = codecs.getincrementaldecoder(encoding.name)('replace')
    text, whole = decoder.decode(head), len(head) < HEAD
    # Excel's first line may name the delimiter.
    if told := re.match(r'(?i)"?sep=(.)"?\s', text):
      form['delimiter'], text = told[1], text[told.end() :]
    else:
      form['delimiter'] = _delimiter(text, whole, form)
    if quoting is Quoting.AUTO:
      form |= _quotes_of(text, whole, form, name)
    lines = _text_lines(file, encoding.name, wanted)
    if file.seekable():
      reader = csv.reader(lines, **form)
    else:
      reader = _PipeReader(lines, form, text * (quoting is Quoting.AUTO), name)
    try:
      if told:
        next(reader)
      cells = next((row for row in reader if any(row)), [])
      columns = _header(cells, reader.line_num)
      first = _first_rows(text, whole, form)
      if _has_row_names(first, text.startswith('"')):
        columns = ['column-1', *columns]
    except csv.Error as error:
      raise Fault(_row_fault(error, 1, reader.line_num)) from error
  quotes = None
  if quoting in (Quoting.AUTO, Quoting.BACKSLASH):
    quotes = Quotes(columns, form['delimiter'], name, faults)
    for row in first:
      if not any('\n' in cell or '\r' in cell for cell in row):
        quotes.note(_trimmed(row, len(columns)))
  rows = _rows(reader, columns, name, faults, quotes, text.startswith('"'))
  return columns, rows if blank else filter(itemgetter(1), rows)


def head_of(file: BinaryIO) -> bytes:
  """Returns the first bytes of a file, or the first lines of a pipe."""
  if not file.seekable():
    return file.peek()
  head = file.read(HEAD)
  file.seek(0)
  return head


def _text_lines(file: BinaryIO, encoding: str, wanted: str) -> Iterator[str]:
  if file.seekable():
    text = io.TextIOWrapper(file, encoding, newline='')
    try:
      yield from text
    finally:
      with contextlib.suppress(ValueError):  # the file has been closed already
        text.detach()
    return
  for number, line in enumerate(file, 1):
    if b'\0' in line:
      raise Fault(NUL, number)
    try:
      text = decode_utf8(line, wanted).removeprefix('\ufeff')
    except Fault as fault:
      raise Fault(str(fault), number) from fault
    yield from io.StringIO(text, newline='')


class _OddLine(Exception):
  """Reports a line that may tell how cells are quoted."""


class _PipeReader:
  """Reads the rows of a pipe, each as soon as it has come.

  The first rows of a file tell how cells are quoted; of a pipe, the first row
  that has such quotes tells it, together with the `header`. It is '' if this is
  known.
  """

  def __init__(
    self, lines: Iterator[str], form: dict[str, Any], header: str, name: str
  ):
    self._lines, self._form = lines, form
    self._header, self._name = header, name
    self.line_num = 0

  def __iter__(self) -> Iterator[list[str]]:
    return self

  def __next__(self) -> list[str]:
    taken: list[str] = []

    def watched() -> Iterator[str]:
      for line in self._lines:
        taken.append(line)
        if self._header and self.line_num and re.search(r'[\\ ]"', line):
          raise _OddLine
        yield line

    reader = csv.reader(watched(), **self._form)
    try:
      return next(reader)
    except _OddLine:
      text = self._header + ''.join(taken)
      if quotes := _quotes_of(text, True, self._form, self._name):
        self._form, self._header = self._form | quotes, ''
      lines = itertools.chain(taken, self._lines)
      reader = csv.reader(lines, **self._form)
      return next(reader)
    finally:
      self.line_num += reader.line_num


def _delimiter(text: str, whole: bool, form: dict[str, Any]) -> str:
  """Returns the delimiter that divides the first rows most evenly."""
  if SPACED.match(text):
    return ' '
  best = (0.0, 0, _NO_DELIMITER)
  for delimiter in DELIMITERS:
    rows = _first_rows(text, whole, form | {'delimiter': delimiter})
    width = len(rows[0]) if rows else 0
    if width > 1:
      share = sum(len(row) == width for row in rows) / len(rows)
      best = max(best, (share, width, delimiter), key=lambda b: b[:2])
  return best[2]


def _first_rows(
  text: str, whole: bool, form: dict[str, Any], strict: bool = False
) -> list[list[str]]:
  lines = io.StringIO(text, newline='')
  rows = []
  try:
    for row in csv.reader(lines, **(form | {'strict': strict})):
      rows += [row] if any(row) else []
  except csv.Error as error:
    if whole or 'unexpected end' not in str(error):
      raise
  return rows if whole or len(rows) < 3 else rows[:-1]


def _quotes_of(
  text: str, whole: bool, form: dict[str, Any], name: str
) -> dict[str, Any]:
  """Returns how cells are quoted, if the first rows show that it is unusual."""
  mark = re.escape(form['delimiter'])
  spaced = re.findall(rf'{mark} +"', text)
  cell = rf'{mark} +"(?:[^"]|"")*+" *(?={mark}|[\r\n]|$)'
  if spaced and len(re.findall(cell, text)) >= NEARLY_ALL * len(spaced):
    return {'skipinitialspace': True}
  quotes = {'escapechar': '\\'}
  if (
    '\\"' not in text
    or _is_even(text, whole, form)
    or not _is_even(text, whole, form | quotes)
  ):
    return {}
  logging.info(
    r'%s: \" is a quote in a cell (guessed; if not, train with '
    '--config.data.quoting=csv)',
    name,
  )
  return quotes


def _is_even(text: str, whole: bool, form: dict[str, Any]) -> bool:
  """Returns whether rows have as many cells as the header, or all one more."""
  try:
    rows = _first_rows(text, whole, form, strict=True)
  except csv.Error:
    return False
  return {len(row) - len(rows[0]) for row in rows[1:]} in ({0}, {1})


def _has_row_names(rows: Sequence[Sequence[str]], is_quoted: bool) -> bool:
  """Returns whether rows begin with a number or a name, as those of R."""
  widths = {len(row) - len(rows[0]) for row in rows[1:]}
  if widths != {1} or not any(row[-1] for row in rows[1:]):
    return False
  # A text with a delimiter and no quotes would be no name.
  names = [row[0] for row in rows[1:]]
  is_name = is_quoted and len({*names}) == len(names)
  return is_name or all(map(str.isdecimal, names))


def _names(cells: Sequence[str]) -> list[str]:
  return [cell.strip().lstrip('\ufeff') for cell in cells]


def _header(cells: Sequence[str], end: int) -> Sequence[str]:
  names = _names(cells)
  while len(names) > 1 and not names[-1]:  # rows end in a delimiter
    names.pop()
  # Programs that number the rows often give the numbers no name.
  if len(names) > 1 and not names[0]:
    names[0] = 'column-1'
  if names and re.match('#.*\\s', names[0]):
    raise Fault('begins with #, as comments do: remove what is not the table')
  numbers = [n for n in names if re.fullmatch(r'[-+]?[\d.,]+', n)]
  for at, name in enumerate(names):
    wrong = ''
    is_number = name in numbers and 2 * len(numbers) >= len(names)
    if not name or is_number or len(name) > LONGEST_NAME or '\n' in name:
      wrong = f'its cell {at + 1} is {name[:40]!a}'
    elif name in names[:at]:
      wrong = f'the name {name!a} occurs twice in it'
    if wrong:
      ends = f', which ends on line {end}: {WAY_OUT}' if end > 1 else ''
      raise Fault(
        'the first row must be the header, with the names of the columns, but '
        f'{wrong}{ends}'
      )
  return names


def _row_fault(error: csv.Error, line: int, end: int) -> str:
  if 'unexpected end' in str(error):
    return f'a cell here begins with a quote that is never closed; {WAY_OUT}'
  on = f' on line {end}, in a row that begins here' if end > line else ''
  return (
    f'not a row of a table: {error}{on}; a quote in a quoted cell is doubled; '
    'if a backslash is before it, train with --config.data.quoting=backslash; '
    f'{WAY_OUT}'
  )


def _rows(
  reader: Iterator[list[str]],
  columns: Sequence[str],
  name: str,
  faults: Faults,
  quotes: Quotes | None,
  is_quoted: bool,
) -> Rows:
  """Yields rows of the right width, and {} for blank ones (see read_csv)."""
  width, blank, first = len(columns), [], isinstance(reader, _PipeReader)
  with reading(name):
    while True:
      line = reader.line_num + 1
      try:
        cells = row = next(reader)
      except StopIteration:
        break
      except csv.Error as error:
        # The number of rows that are lost in a quoted cell is unknown.
        message = _row_fault(error, line, reader.line_num)
        is_lost = 'unexpected end' in message or reader.line_num > line
        faults.add(name, line, message, fatal=is_lost)
        continue
      end = reader.line_num
      if first and _has_row_names([columns, row], is_quoted):  # of a pipe
        columns, width = ['column-1', *columns], width + 1
        if quotes:
          quotes = Quotes(columns, quotes.delimiter, name, faults)
      first = first and not row
      if len(cells) != width or not cells[0] or cells[0].isspace():
        cells = _trimmed(cells, width)
      is_new = quotes and (end > line or quotes.noted < KNOWN_ROWS)
      if is_new and quotes.swallow(cells, line, end):
        continue
      if row:
        yield from blank
        blank.clear()
      is_header = width > 1 and cells and columns[-1] in cells[-1]
      if is_header and _names(cells) == columns:
        faults.add(name, line, 'the header again: several tables in one file')
      elif len(cells) == width:
        yield line, dict(zip(columns, cells, strict=True))
      elif row and not cells:
        yield line, {}
      elif not row:
        blank += [(line, {})] if width == 1 else []
      else:
        ends = f' in the row that ends on line {end}' if end > line else ''
        message = f'{len(cells)} cells, but {width} columns{ends}'
        faults.add(name, line, message)


def _trimmed(cells: list[str], width: int) -> list[str]:
  """Returns a row without empty cells at its end; [] if all are empty."""
  # Spreadsheets write such rows; an only cell may be an empty text.
  if max(width, len(cells)) > 1 and not any(map(str.strip, cells)):
    return []
  while len(cells) > width and not cells[-1].strip():
    cells.pop()
  return cells
