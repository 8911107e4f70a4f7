"""Reads labels and their scores from files of any known format."""

import math
import os
import sys
from typing import Any

import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.files.fields import Fields
from xjax.data.files.json_lines import numbered_lines, open_text
from xjax.data.formats.xc_files import read_sparse
from xjax.judge.files.document_labels import (
  DocumentLabels,
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
      scored = _read_json(path)
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


def _read_json(path: str | os.PathLike) -> DocumentLabels:
  return read_json_rows(path, _scored_labels, scored=True).validate()


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
