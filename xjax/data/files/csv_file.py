"""Writes CSV files that spreadsheet programs can open safely."""

from collections.abc import Iterable, Sequence
import csv
import os
from typing import Any

from xjax.core.atomic import atomic_write

# A spreadsheet program computes a cell that starts with one of these characters
# as a formula.
_FORMULA = ('=', '+', '-', '@', '\t', '\r')


def write_csv(
  path: str | os.PathLike,
  columns: Sequence[str],
  rows: Iterable[Sequence[Any]],
) -> None:
  """Writes a CSV file atomically; the cell of None is empty.

  A text that a spreadsheet program would compute as a formula gets an
  apostrophe in front. Such programs then show the text.
  """
  with atomic_write(path) as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(columns)
    writer.writerows([_safe(cell) for cell in row] for row in rows)


def _safe(cell: Any) -> Any:
  is_formula = isinstance(cell, str) and cell.startswith(_FORMULA)
  return f"'{cell}" if is_formula else cell
