"""Reads predictions and gold labels from files of any known format."""

from collections.abc import Sequence
import dataclasses
import itertools
import math
import os
import sys
from typing import Any

import numpy as np
import scipy.sparse

from xjax.core.errors import DAMAGE, DataError
from xjax.core.types import Ragged, offsets_of
from xjax.data.files.cells import FLAGS, NO_SEPARATOR
from xjax.data.files.faults import Faults
from xjax.data.files.fields import Fields
from xjax.data.files.json_lines import numbered_lines, open_text
from xjax.data.files.tables import original, read_table
from xjax.data.formats.columns import (
  Columns,
  are_whole,
  choose_columns,
  label_cells,
  read_row,
  with_separator,
)
from xjax.data.formats.htc import hierarchy_labels
from xjax.data.formats.xc_files import (
  MOST,
  NOT_GOLD,
  check_width,
  read_sparse,
  read_xc,
)
from xjax.data.formats.xc_text import target_columns
from xjax.judge.files.document_labels import (
  DocumentLabels,
  ReadRow,
  identifier,
  read_json_rows,
)
from xjax.judge.files.file_format import (
  FileFormat,
  file_format_of,
  unknown_format,
)
from xjax.judge.predictions import Predictions

_PREDICTED = (
  FileFormat.SPARSE,
  FileFormat.XC_SCORES,
  FileFormat.PREDICTIONS,
  FileFormat.LISTS,
  FileFormat.TABLE,
)


def read_predictions(
  path: str | os.PathLike,
) -> tuple[DocumentLabels, Predictions | None]:
  """Reads the predictions of any system from a file of any known format.

  For a predictions.npz, all rows are empty, but ids and the number of labels
  are set, and the saved predictions are returned too.
  """
  saved = None
  match file_format_of(path):
    case FileFormat.SPARSE:
      scored = read_sparse_npz(path)
    case FileFormat.XC_SCORES:
      scored = _read_text(path)
    case FileFormat.LISTS:
      scored = read_json_rows(path, _scored_labels, scored=True).validate()
    case FileFormat.TABLE:
      scored = read_document_table(path, scored=True).validate()
    case FileFormat.PREDICTIONS:
      saved = Predictions.load(path)
      scored = DocumentLabels(
        path,
        Ragged(np.zeros(len(saved) + 1, np.int64), np.zeros(0, np.int32)),
        tuple(saved.labels),
        n_labels=len(saved.labels),
        doc_ids=tuple(saved.doc_ids),
      )
    case FileFormat.XC_LABELS if _has_scores(path):
      raise DataError(
        f'{path}:1: the header `N L` (numbers of documents and labels) is '
        'missing; a score file must start with this header'
      )
    case _:
      raise unknown_format(path, 'predictions', _PREDICTED)
  if not len(scored):
    raise DataError(f'{path}: has no document')
  return scored, saved


def _has_scores(path: str | os.PathLike) -> bool:
  """Returns whether the first entry of a text file is `label:value`."""
  with open_text(path) as file:
    rows = (line.split() for _, line in numbered_lines(file, path))
    return b':' in next(filter(None, rows))[0]


def _read_text(path: str | os.PathLike) -> DocumentLabels:
  file = read_sparse(path)
  return DocumentLabels(
    path,
    file.entries,
    n_labels=file.n_labels,
    lines=file.lines,
    scores=file.values,
  ).validate()


def _scored_labels(fields: Fields) -> tuple[Any, ...]:
  """Returns the id, the label ids and the scores of a row; notes its faults."""
  id_, items = identifier(fields, 'id'), fields.row.get('labels')
  if not isinstance(items, list):
    fields.faults.append('labels is not a list of {"id", "score"}, or of ids')
    return id_, (), ()
  given = fields.row.get('scores')
  if isinstance(given, list) and len(given) == len(items):
    items = [{'id': x, 'score': y} for x, y in zip(items, given)]
  elif given is not None:
    fields.faults.append('scores is not a list of a number for each label')
  labels, scores = [], []
  for i, item in enumerate(items):
    item = item if isinstance(item, dict) else {'id': item}
    score = item.get('score', math.nan)  # see read_json_rows
    is_number = type(score) in (int, float)
    # An integer can be too large for a float.
    if not is_number or abs(score) > sys.float_info.max:
      fields.faults.append(f'the score of labels[{i}] is not a finite number')
    labels.append(fields.as_id(item.get('id'), f'the id of labels[{i}]'))
    scores.append(score)
  return id_, labels, scores


def read_gold(path: str | os.PathLike) -> DocumentLabels:
  """Reads the gold labels of documents from a file of any FileKind.

  In a sparse matrix, an entry of 0 is not a label.
  """
  kind = file_format_of(path)
  match kind:
    case FileFormat.PREDICTIONS:
      return _read_saved(path)
    case FileFormat.SPARSE:
      return _read_matrix(path)
    case FileFormat.XC_SCORES | FileFormat.XC_LABELS:
      return _read_xc(path)
    case FileFormat.TABLE:
      return read_document_table(path)
    case None:
      raise unknown_format(path, 'gold labels', tuple(FileFormat))
    case FileFormat.XC_TEXT:
      return _by_column(read_json_rows(path, _READ[kind]))
    case _:
      return read_json_rows(path, _READ[kind])


def read_training(path: str | os.PathLike) -> tuple[DocumentLabels, int]:
  """Reads the labels of each training document, and the number of documents.

  The training counts of a predictions.npz are a single row with scores.
  """
  if file_format_of(path) is FileFormat.PREDICTIONS:
    saved = Predictions.load(path)
    trained = np.flatnonzero(saved.train_counts)
    rows = DocumentLabels(
      path,
      Ragged.of([range(len(trained))]),
      labels=tuple(saved.labels[i] for i in trained.tolist()),
      scores=saved.train_counts[trained].astype(np.float64),
    )
    n = saved.n_train
  else:
    rows = read_gold(path)
    n = len(rows)
  if not len(rows.rows.values):
    raise DataError(f'{path}: has no label, so labels cannot be counted')
  return rows, n


def _read_matrix(path: str | os.PathLike) -> DocumentLabels:
  matrix = read_sparse_npz(path)
  matrix.check(~np.isin(matrix.scores, (0, 1)), NOT_GOLD)
  kept = matrix.keep(matrix.scores != 0)
  return DocumentLabels(path, kept.rows, n_labels=matrix.n_labels)


def _read_saved(path: str | os.PathLike) -> DocumentLabels:
  saved = Predictions.load(path)
  if saved.gold is None:
    raise DataError(f'{path}: these predictions have no gold')
  return DocumentLabels(
    path, saved.gold, tuple(saved.labels), doc_ids=tuple(saved.doc_ids)
  )


def _read_xc(path: str | os.PathLike) -> DocumentLabels:
  file = read_xc(path, features=False)
  # Features are read only to explain why there are no labels.
  may_explain = not len(file.labels.values) and len(file.header) != 2
  if may_explain and len(read_xc(path).values):
    raise DataError(
      f'{path}: has no label; if its rows are `label:value`, add the header '
      '`N L`, the numbers of documents and labels'
    )
  n_labels = file.n_labels if file.header else None
  return DocumentLabels(path, file.labels, n_labels=n_labels, lines=file.lines)


_READ: dict[FileFormat, ReadRow] = {
  FileFormat.LISTS: lambda fields: (
    identifier(fields, 'id'),
    fields.identifiers('labels'),
  ),
  FileFormat.EURLEX: lambda fields: (
    fields.identifier('celex_id'),
    fields.identifiers('concepts'),
  ),
  FileFormat.HTC: lambda fields: (None, hierarchy_labels(fields)),
  FileFormat.XC_TEXT: lambda fields: (
    fields.identifier('uid'),
    target_columns(fields),
  ),
}


def _by_column(source: DocumentLabels) -> DocumentLabels:
  """Converts label ids such as '12' to column numbers."""
  columns = np.array(list(map(int, source.labels)), np.int32)
  return DocumentLabels(
    source.path,
    Ragged(source.rows.indptr, columns[source.rows.values]),
    doc_ids=source.doc_ids,
    lines=source.lines,
  )


def read_sparse_npz(path: str | os.PathLike) -> DocumentLabels:
  """Reads a csr, csc or coo matrix of documents x labels; stored 0s count."""
  try:
    matrix = scipy.sparse.load_npz(path)
    _check(matrix)
  # SciPy raises NotImplementedError for a format that it does not know.
  except (*DAMAGE, NotImplementedError) as error:
    raise DataError(
      f'{path}: cannot be read as a sparse matrix of scipy ({error}); save the '
      'matrix as csr, or, if the file is damaged or cut short, get it again'
    ) from error
  n, n_labels = matrix.shape
  data = matrix.data
  if matrix.format == 'csr':
    indptr, columns = matrix.indptr.astype(np.int64), matrix.indices
  else:
    check_width(path, n, 'row', len(data))
    entries = matrix.tocoo()
    order = np.lexsort((entries.col, entries.row))
    counts = np.bincount(entries.row, minlength=n)
    indptr = offsets_of(counts)
    columns, data = entries.col[order], entries.data[order]
  if data.dtype not in (np.float32, np.float64):
    data = data.astype(np.float64)
  rows = Ragged(indptr, columns.astype(np.int32, copy=False))
  return DocumentLabels(path, rows, n_labels=n_labels, scores=data).validate()


def _check(matrix: scipy.sparse.sparray | scipy.sparse.spmatrix) -> None:
  if matrix.format not in ('csr', 'csc', 'coo'):
    raise ValueError(f'its format is {matrix.format}')
  if matrix.ndim != 2 or max(matrix.shape) > MOST:
    raise ValueError(f'its shape is {[*matrix.shape]}')
  if matrix.dtype.kind not in 'biuf':
    raise ValueError(f'its values are {matrix.dtype}')
  if matrix.format != 'coo':
    matrix.check_format(full_check=True)


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
