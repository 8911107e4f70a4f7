"""Gold labels from files of any known format."""

from collections.abc import Callable
import os

import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import Fields, open_text, parse_rows
from xjax.data.formats.htc import hierarchy_labels
from xjax.data.formats.xc_files import NOT_GOLD, read_xc
from xjax.data.formats.xc_text import target_columns
from xjax.judge.files.kind import FileKind, kind_of, not_understood
from xjax.judge.files.rows import LabelRows, RowsDraft
from xjax.judge.files.sparse_npz import read_sparse_npz
from xjax.judge.predictions import Predictions

# Reads a document's id, if it has one, and its label ids.
_Read = Callable[[Fields], tuple[str | None, tuple[str, ...]]]


def read_gold(path: str | os.PathLike) -> LabelRows:
  """Reads the gold labels of documents, of a test or a training set.

  Args:
    path: a file, told by what is in it: an XC-repository label or feature
      file, LIBSVM multilabel rows, a sparse matrix saved by scipy (an entry of
      0 is no label), JSON lines of ours, of EURLEX57K, of raw text
      (target_ind) or with a hierarchy (doc_label or label), or a
      predictions.npz with gold; text may be gzipped.

  Returns:
    Its labels, without scores.

  Raises:
    DataError: it cannot be read, is none of these, or has faults; values of
      labels are neither 0 nor 1; rows have features, but none a label.
  """
  kind = kind_of(path)
  match kind:
    case FileKind.PREDICTIONS:
      return _of_predictions(path)
    case FileKind.SPARSE:
      return _of_matrix(path)
    case FileKind.XC_SCORES | FileKind.XC_LABELS:
      return _of_xc(path)
    case None:
      raise not_understood(path, 'gold labels', tuple(FileKind))
    case _:
      return _of_json(path, kind)


def read_training(path: str | os.PathLike) -> tuple[LabelRows, int]:
  """Reads how often labels occur in training.

  Args:
    path: as read_gold; or a predictions.npz, whose training counts are taken,
      and not its gold, which is that of other documents.

  Returns:
    Labels, whose number is how often they stand there, or, where they have
    scores, these; and the number of training documents.

  Raises:
    DataError: as read_gold; no label occurs, or training counts are not known.
  """
  if kind_of(path) is FileKind.PREDICTIONS:
    saved = Predictions.load(path)
    used = np.flatnonzero(saved.train_counts)
    found = LabelRows(
      path,
      Ragged.of([range(len(used))]),
      labels=tuple(saved.labels[i] for i in used.tolist()),
      scores=saved.train_counts[used].astype(np.float64),
    )
    n = saved.n_train
  else:
    found = read_gold(path)
    n = len(found)
  if not len(found.rows.values):
    raise DataError(f'{path}: no label occurs in it: these train nothing')
  return found, n


def _of_matrix(path: str | os.PathLike) -> LabelRows:
  found = read_sparse_npz(path)
  found.check(~np.isin(found.scores, (0, 1)), NOT_GOLD)
  kept = found.kept(found.scores != 0)
  return LabelRows(path, kept.rows, n_labels=found.n_labels)


def _of_predictions(path: str | os.PathLike) -> LabelRows:
  found = Predictions.load(path)
  if found.gold is None:
    raise DataError(f'{path}: these predictions have no gold')
  return LabelRows(
    path, found.gold, tuple(found.labels), doc_ids=tuple(found.doc_ids)
  )


def _of_xc(path: str | os.PathLike) -> LabelRows:
  found = read_xc(path, features=False)
  # Features are looked for only where something is amiss.
  if not len(found.gold.values) and _has_features(path):
    raise DataError(
      f'{path}: not one label in it; if its rows are `label:value`, it lacks '
      'the header `N L`, documents and labels'
    )
  first = 2 if found.header else 1
  return LabelRows(
    path,
    found.gold,
    n_labels=found.n_labels if found.header else None,
    lines=np.arange(first, first + len(found.gold)),
  )


def _has_features(path: str | os.PathLike) -> bool:
  features = read_xc(path).features
  return features is not None and features.nnz > 0


def _of_json(path: str | os.PathLike, kind: FileKind) -> LabelRows:
  draft = RowsDraft(path)
  faults = Faults(on_error=None)
  with open_text(path) as file:
    for number, row in parse_rows(file, str(path), faults):
      fields = Fields(row)
      id_, labels = _READ[kind](fields)
      draft.misfits(id_, fields.faults)
      if faults.extend(path, number, fields.faults):
        draft.add(number, id_, labels)
  faults.settle()
  rows = draft.done()
  return _by_column(rows) if kind is FileKind.XC_TEXT else rows


def _own(fields: Fields) -> tuple[str, tuple[str, ...]]:
  return fields.identifier('id'), fields.identifiers('labels')


def _eurlex(fields: Fields) -> tuple[str, tuple[str, ...]]:
  return fields.identifier('celex_id'), fields.identifiers('concepts')


def _hierarchical(fields: Fields) -> tuple[None, tuple[str, ...]]:
  return None, hierarchy_labels(fields)


def _xc_text(fields: Fields) -> tuple[str, tuple[str, ...]]:
  uid = fields.row.get('uid')
  id_ = str(uid) if type(uid) is int else fields.identifier('uid')
  return id_, target_columns(fields)


_READ: dict[FileKind, _Read] = {
  FileKind.LISTS: _own,
  FileKind.EURLEX: _eurlex,
  FileKind.HTC: _hierarchical,
  FileKind.XC_TEXT: _xc_text,
}


def _by_column(found: LabelRows) -> LabelRows:
  """The same where label ids are columns."""
  columns = np.array(list(map(int, found.labels)), np.int32)
  return LabelRows(
    found.path,
    Ragged(found.rows.indptr, columns[found.rows.values]),
    doc_ids=found.doc_ids,
    lines=found.lines,
  )
