"""Reads gold labels from files of any known format."""

import os

import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.formats.htc import hierarchy_labels
from xjax.data.formats.xc_files import NOT_GOLD, read_xc
from xjax.data.formats.xc_text import target_columns
from xjax.judge.files.document_labels import (
  DocumentLabels,
  ReadRow,
  identifier,
  read_json_rows,
)
from xjax.judge.files.document_tables import read_document_table
from xjax.judge.files.file_format import (
  FileFormat,
  file_format_of,
  unknown_format,
)
from xjax.judge.files.sparse_npz import read_sparse_npz
from xjax.judge.predictions import Predictions


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
