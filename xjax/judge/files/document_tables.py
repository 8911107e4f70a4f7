"""Reads predictions or gold labels from tables, in the forms of training."""

from collections.abc import Sequence
import dataclasses
import itertools
import math
import os

import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.files.cells import FLAGS, NO_SEPARATOR
from xjax.data.files.faults import Faults
from xjax.data.files.fields import Fields
from xjax.data.files.json_lines import open_text
from xjax.data.files.tables import original, read_table
from xjax.data.formats.columns import (
  Columns,
  are_whole,
  choose_columns,
  label_cells,
  read_row,
  with_separator,
)
from xjax.judge.files.document_labels import DocumentLabels

_ORDERS = 'score', 'rank'  # what a table with a row for each label has


def read_document_table(
  path: str | os.PathLike, scored: bool = False
) -> DocumentLabels:
  """Reads the labels of the documents of a table; rows of one id are one.

  If `scored`, labels are `ranked`: in a long table, which has a row for each
  label as predict writes it, by the column `score` or `rank`; else as listed.
  """
  columns, faults = _columns(path, scored), Faults(on_error=None)
  documents: dict[str, tuple[int, dict[str, float]]] = {}
  known: dict[str, int] = {}
  with open_text(path) as file:
    table = read_table(file, str(path), faults, blank=True)
    is_long, by = _is_long(table.columns, scored), ''
    if is_long and scored:
      by = next(name for name in _ORDERS if name in table.columns)
    for line, row in table.rows:
      if is_long:
        row = {name: original(cell) for name, cell in row.items()}
      if not row and columns.id:  # a row of empty cells
        continue
      fields = Fields(row)
      fields.may_be_empty = True
      document = read_row(columns, fields, f'line-{line}')
      score = _number(fields, by) if by and document.labels else 0.0
      _, labels = documents.setdefault(document.id, (line, {}))
      if is_long and labels.keys() & document.labels:
        fields.faults.append(f'label {document.labels[0]!a} occurs twice')
      labels.update(dict.fromkeys(document.labels, score))
      faults.add(path, line, *fields.faults)
  faults.raise_or_log()
  lines, rows = zip(*documents.values()) if documents else ((), ())
  if by != 'score':
    rows = [sorted(row, key=row.get) for row in rows]
  return DocumentLabels(
    path,
    Ragged.of([[known.setdefault(x, len(known)) for x in row] for row in rows]),
    tuple(known),
    doc_ids=tuple(documents) if columns.id else None,
    lines=np.array(lines, np.int64),
    scores=np.array([x for row in rows for x in row.values()], np.float64)
    if by == 'score'
    else None,
    ranked=scored,
  )


def _is_long(columns: Sequence[str], scored: bool) -> bool:
  """Returns whether a table has a row for each label, not for each document."""
  if not {'id', 'label'} <= {*columns}:
    return False
  return 'rank' in columns or scored and 'score' in columns


def _number(fields: Fields, name: str) -> float:
  try:
    number = float(fields.row[name])
  except (TypeError, ValueError):
    number = math.nan
  if not math.isfinite(number):
    fields.faults.append(f'the {name} is not a finite number')
  return number


def _columns(path: str | os.PathLike, scored: bool) -> Columns:
  with open_text(path) as file:
    # Faults of rows are reported later.
    table = read_table(file, str(path), Faults(on_error=None))
    if _is_long(table.columns, scored):
      return Columns((), 'label', NO_SEPARATOR, 'id')
    others = [x for x in table.columns if x.lower() in ('score', 'scores')]
    if scored and others:
      raise DataError(
        f'{path}: the column {others[0]!a} would not be read: write a row for '
        'each label, with the columns id, label and score; or leave it out, '
        'and list labels by rank'
      )
    given = Columns(()), table.columns, table.sample, str(path)
    columns = choose_columns(*given, is_judged=True)
    columns = dataclasses.replace(columns, text=())
    cells = []
    if columns.is_open:
      cells = label_cells(columns, table.sample, table.rows)
      columns = with_separator(columns, {path: cells}, is_judged=True)
    if columns.separator == FLAGS:
      raise DataError(
        f'{path}: {columns.labels} has lists of zeros and ones: write lists of '
        'labels, or make a column of zeros and ones for each label'
      )
    rest = (row.get(columns.labels) for _, row in table.rows)
    whole = are_whole(columns, itertools.chain(cells, rest))
  return dataclasses.replace(columns, whole=whole)
