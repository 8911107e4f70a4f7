"""Reads CSV, TSV, Parquet, JSON lines or lines of fastText; writes CSV."""

from collections.abc import Collection, Iterable, Mapping, Sequence
import csv
import dataclasses
import enum
import itertools
import json
import os
import re
from typing import Any, BinaryIO

from xjax.core.atomic import atomic_write
from xjax.core.errors import DataError, optional
from xjax.data.files.csv_table import (
  DELIMITERS,
  LONGEST_NAME,
  SPACED,
  Quoting,
  Rows,
  head_of,
  read_csv,
)
from xjax.data.files.encodings import wide_encoding
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import (
  PACKED,
  PARQUET_MAGIC,
  TEXTS,
  numbered_lines,
  read_rows,
  reading,
)
from xjax.data.files.json_values import decode_utf8

_ZIP_MAGIC = b'PK\x03\x04'  # spreadsheets are zip archives
FASTTEXT_LABEL = '__label__'  # begins a label in a file of fastText
_SAMPLED = 1000  # rows that tell the columns of JSON lines
# A spreadsheet program computes a cell that starts with one of these characters
# as a formula.
# The apostrophes before it are those of write_csv, or of the text.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")


class TableFormat(enum.Enum):
  JSON_LINES = 'JSON lines'
  TABLE = 'a table (CSV or TSV)'
  PARQUET = 'Parquet'
  FASTTEXT = 'text with labels as of fastText'


@dataclasses.dataclass(frozen=True)
class TableReader:
  """Holds a table that is being read; its rows can be read once."""

  kind: TableFormat
  columns: tuple[str, ...]  # their names
  sample: list[dict[str, Any]]  # the first rows
  rows: Rows  # all rows


def read_table(
  file: BinaryIO,
  name: str,
  faults: Faults,
  encoding: str = '',
  quoting: Quoting = Quoting.AUTO,
  fasttext: bool = False,
  texts: Collection[str] = (),
  blank: bool = False,
) -> TableReader:
  """Begins to read a table from an open file; faulty rows are left out.

  Blank rows and lines are left out too, unless `blank` (see read_csv). For
  `texts`, see table_format.
  """
  # The file stays open. A faulty header is a DataError, a missing pyarrow a
  # UserError.
  kind = table_format(file, name, fasttext, texts)
  columns = None
  if kind is TableFormat.PARQUET:
    columns, rows = _parquet(file, name)
  elif kind is TableFormat.TABLE:
    columns, rows = read_csv(file, name, faults, encoding, quoting, blank)
  elif kind is TableFormat.FASTTEXT:
    columns = 'text', 'labels'
    rows = _fasttext(file, name, faults, encoding, blank)
  else:
    rows = read_rows(file, faults, name, '', encoding, TEXTS)
  # Of a pipe, no row waits for those that follow.
  first = list(itertools.islice(rows, _SAMPLED if file.seekable() else 0))
  sample = [row for _, row in first]
  if columns is None:
    columns = dict.fromkeys(key for row in sample for key in row)
  return TableReader(kind, tuple(columns), sample, itertools.chain(first, rows))


def table_format(
  file: BinaryIO,
  name: str,
  fasttext: bool = False,
  texts: Collection[str] = (),
) -> TableFormat:
  """Tells the kind of an open file by its first bytes.

  With `fasttext`, other lines than JSON are of fastText, even without a label.
  A table with a single column is told by the name of the file in .csv or .tsv,
  or by that of the column, if this is one of `texts`.
  """
  with reading(name):
    head = head_of(file)
  if head.startswith(_ZIP_MAGIC):
    raise DataError(
      f'{name}: is a zip archive or a spreadsheet such as .xlsx; save the '
      'table as CSV'
    )
  if head.startswith(PARQUET_MAGIC):
    return TableFormat.PARQUET
  encoding = wide_encoding(head) or 'utf-8'
  start = head.decode(encoding, 'replace').lstrip('\ufeff \t\r\n')
  first = start.partition('\n')[0]
  names = re.split(f'[{DELIMITERS}]', first)
  is_header = len(names) > 1 and all(len(n) <= LONGEST_NAME for n in names)
  is_header |= bool(SPACED.match(start))
  is_header |= first.strip().strip('"').lower() in texts
  named = re.search(rf'\.(csv|tsv){PACKED}$', name, re.I)
  # The first lines may have no label, and commas as a header has.
  later = ' ' in first and re.search(rf'^{FASTTEXT_LABEL}\S+ ', start, re.M)
  is_text = not named and not re.match(r'\{|\[\s*[{\]]', start)
  if start.startswith(FASTTEXT_LABEL) or is_text and (fasttext or later):
    return TableFormat.FASTTEXT
  if start and not start.startswith(('{', '[')) and (named or is_header):
    return TableFormat.TABLE
  return TableFormat.JSON_LINES


def _parquet(file: BinaryIO, name: str) -> tuple[Sequence[str], Rows]:
  pa = optional('pyarrow', f'{name}: reading Parquet', 'parquet')
  from pyarrow import parquet

  try:
    table = parquet.ParquetFile(file)
    columns = table.schema_arrow.names
    classes = _class_names(table.schema_arrow.metadata or {})
  except (pa.ArrowException, OSError) as error:
    message = f'not a Parquet file that can be read: {error}'
    raise DataError(f'{name}:1: {message}') from error

  def rows() -> Rows:
    try:
      batches = (b.to_pylist() for b in table.iter_batches(_SAMPLED))
      for number, row in enumerate(itertools.chain.from_iterable(batches), 1):
        for column, names in classes.items():
          row[column] = _named(row.get(column), names)
        yield number, row
    except (pa.ArrowException, OSError, ValueError) as error:
      raise DataError(f'{name}: the file is damaged: {error}') from error

  return columns, rows()


def _class_names(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
  """Returns the names of classes, by column, of Hugging Face datasets."""
  try:
    features = json.loads(metadata[b'huggingface'])['info']['features']
    found = {}
    for column, feature in features.items():
      feature = feature[0] if isinstance(feature, list) else feature
      feature = feature.get('feature', feature)
      if feature.get('_type') == 'ClassLabel':
        found[column] = [str(name) for name in feature['names']]
    return found
  except (KeyError, TypeError, ValueError, AttributeError, IndexError):
    return {}


def _named(value: Any, names: Sequence[str]) -> Any:
  """Returns the name of a class, or of each in a list; None for class -1."""
  if isinstance(value, list):
    return [_named(item, names) for item in value]
  if isinstance(value, int) and -1 <= value < len(names):
    return names[value] if value >= 0 else None
  return value


def _fasttext(
  file: BinaryIO, name: str, faults: Faults, encoding: str, blank: bool
) -> Rows:
  """Yields lines such as `__label__fish __label__law Some text`."""
  pattern = re.compile(rf'(?<!\S){FASTTEXT_LABEL}(\S+)\s*')
  for number, line in numbered_lines(file, name):
    try:
      text = decode_utf8(line, encoding)
    except Fault as fault:
      faults.add(name, number, str(fault))
      continue
    if blank or text.strip():
      labels = [x.rstrip(',') for x in pattern.findall(text)]
      yield number, {'text': pattern.sub('', text), 'labels': labels}


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
  is_formula = isinstance(cell, str) and _FORMULA.match(cell)
  return f"'{cell}" if is_formula else cell


def original(cell: Any) -> Any:
  """Returns what write_csv was given as a text."""
  is_safe = isinstance(cell, str) and cell[:1] == "'" and _FORMULA.match(cell)
  return cell[1:] if is_safe else cell
