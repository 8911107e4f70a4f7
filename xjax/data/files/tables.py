"""Reads CSV, TSV, Parquet or JSON lines, told by contents; writes CSV."""

from collections.abc import Iterable, Sequence
import csv
import dataclasses
import enum
import itertools
import os
import re
from typing import Any, BinaryIO

from xjax.core.atomic import atomic_write
from xjax.core.errors import DataError, optional
from xjax.data.files.csv_table import (
  DELIMITERS,
  LONGEST_NAME,
  Quoting,
  Rows,
  head_of,
  read_csv,
)
from xjax.data.files.encodings import wide_encoding
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import (
  PARQUET_MAGIC,
  read_rows,
  reading,
)

_ZIP_MAGIC = b'PK\x03\x04'  # spreadsheets are zip archives
_SAMPLED = 1000  # rows that tell the columns of JSON lines
# A spreadsheet program computes a cell that starts with one of these characters
# as a formula.
_FORMULA = ('=', '+', '-', '@', '\t', '\r')


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
  rows: Rows  # all rows


def read_table(
  file: BinaryIO,
  name: str,
  faults: Faults,
  encoding: str = '',
  quoting: Quoting = Quoting.AUTO,
) -> TableReader:
  """Begins to read a table from an open file; faulty rows are left out."""
  # The file stays open. A faulty header is a DataError, a missing pyarrow a
  # UserError.
  kind = table_format(file, name)
  columns = None
  if kind is TableFormat.PARQUET:
    columns, rows = _parquet(file, name)
  elif kind is TableFormat.TABLE:
    columns, rows = read_csv(file, name, faults, encoding, quoting)
  else:
    rows = read_rows(file, faults, name, encoding=encoding)
  # Of a pipe, no row waits for those that follow.
  first = list(itertools.islice(rows, _SAMPLED if file.seekable() else 0))
  sample = [row for _, row in first]
  if columns is None:
    columns = dict.fromkeys(key for row in sample for key in row)
  return TableReader(kind, tuple(columns), sample, itertools.chain(first, rows))


def table_format(file: BinaryIO, name: str) -> TableFormat:
  """Tells the kind of an open file by its first bytes."""
  # A table with a single column can only be told by a name in .csv or .tsv.
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
  names = re.split(f'[{DELIMITERS}]', start.partition('\n')[0])
  is_header = len(names) > 1 and all(len(n) <= LONGEST_NAME for n in names)
  named = re.search(r'\.(csv|tsv)(\.gz)?$', name, re.I)
  if start and not start.startswith(('{', '[')) and (named or is_header):
    return TableFormat.TABLE
  return TableFormat.JSON_LINES


def _parquet(file: BinaryIO, name: str) -> tuple[Sequence[str], Rows]:
  pa = optional('pyarrow', f'{name}: reading Parquet', 'parquet')
  from pyarrow import parquet

  try:
    table = parquet.ParquetFile(file)
    columns = table.schema_arrow.names
  except (pa.ArrowException, OSError) as error:
    message = f'not a Parquet file that can be read: {error}'
    raise DataError(f'{name}:1: {message}') from error

  def rows() -> Rows:
    try:
      batches = (b.to_pylist() for b in table.iter_batches(_SAMPLED))
      yield from enumerate(itertools.chain.from_iterable(batches), 1)
    except (pa.ArrowException, OSError, ValueError) as error:
      raise DataError(f'{name}: the file is damaged: {error}') from error

  return columns, rows()


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
