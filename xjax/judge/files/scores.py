"""Scored labels from files of any known format."""

import math
import os

import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import (
  Fields,
  numbered_lines,
  open_text,
  parse_rows,
)
from xjax.data.formats.xc_files import NO_HEADER, read_xc_scores
from xjax.judge.files.kind import FileKind, kind_of, not_understood
from xjax.judge.files.rows import LabelRows, RowsDraft
from xjax.judge.files.sparse_npz import read_sparse_npz
from xjax.judge.predictions import Predictions

_PREDICTED = (
  FileKind.SPARSE,
  FileKind.XC_SCORES,
  FileKind.PREDICTIONS,
  FileKind.LISTS,
)


def read_predictions(
  path: str | os.PathLike,
) -> tuple[LabelRows, Predictions | None]:
  """Reads predictions of any system, told by what is in the file.

  Args:
    path: a sparse matrix saved by scipy, an XC-repository score file, JSON
      lines {"id", "labels": [{"id", "score"}]}, or a predictions.npz; text may
      be gzipped.

  Returns:
    Scored labels, and None; or the ids of a predictions.npz (rows are empty,
    n_labels beside ids says that they are in order), and itself.

  Raises:
    DataError: it cannot be read, is none of these, or has faults.
  """
  saved = None
  match kind_of(path):
    case FileKind.SPARSE:
      scored = read_sparse_npz(path)
    case FileKind.XC_SCORES:
      scored = _of_text(path)
    case FileKind.LISTS:
      scored = _of_json(path)
    case FileKind.PREDICTIONS:
      saved = Predictions.load(path)
      scored = LabelRows(
        path,
        Ragged(np.zeros(len(saved) + 1, np.int64), np.zeros(0, np.int32)),
        tuple(saved.labels),
        n_labels=len(saved.labels),
        doc_ids=tuple(saved.doc_ids),
      )
    case FileKind.XC_LABELS if _is_bare(path):
      raise DataError(f'{path}:1: {NO_HEADER}')
    case _:
      raise not_understood(path, 'predictions', _PREDICTED)
  if not len(scored):
    raise DataError(f'{path}: no document in it')
  return scored, saved


def _is_bare(path: str | os.PathLike) -> bool:
  """Whether rows `label:value` stand in a file that has no header."""
  with open_text(path) as file:
    rows = (line.split() for _, line in numbered_lines(file, path))
    return b':' in next(filter(None, rows))[0]


def _of_text(path: str | os.PathLike) -> LabelRows:
  scores = read_xc_scores(path)
  return LabelRows(
    path,
    Ragged(scores.indptr.astype(np.int64), scores.indices),
    n_labels=scores.shape[1],
    lines=np.arange(2, 2 + scores.shape[0]),
    scores=scores.data,
  ).checked()


def _of_json(path: str | os.PathLike) -> LabelRows:
  draft = RowsDraft(path)
  faults = Faults(on_error=None)
  with open_text(path) as file:
    for number, row in parse_rows(file, str(path), faults):
      fields = Fields(row)
      id_ = fields.identifier('id')
      labels, scores = _listed(fields)
      draft.misfits(id_, fields.faults)
      if faults.extend(path, number, fields.faults):
        draft.add(number, id_, labels, scores)
  faults.settle()
  return draft.done(scored=True).checked()


def _listed(fields: Fields) -> tuple[tuple[str, ...], tuple[float, ...]]:
  """Label ids and scores of a row; notes what is wrong with them."""
  items = fields.row.get('labels')
  if not isinstance(items, list) or not all(isinstance(i, dict) for i in items):
    fields.faults.append('labels is no list of objects {"id", "score"}')
    return (), ()
  labels, scores = [], []
  for i, item in enumerate(items):
    score = item.get('score')
    if type(score) not in (int, float) or not _is_float(score):
      fields.faults.append(f'the score of labels[{i}] is no finite number')
    labels.append(fields.as_id(item.get('id'), f'the id of labels[{i}]'))
    scores.append(score)
  return tuple(labels), tuple(scores)


def _is_float(score: float) -> bool:
  try:
    return math.isfinite(score)
  except OverflowError:
    return False
