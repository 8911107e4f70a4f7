"""Folders of feature files of the Extreme Classification Repository.

train.txt, test.txt and perhaps dev.txt, as xc_files.read_xc reads them, and
perhaps Y.txt or labels.txt with the labels' names. Each may be gzipped.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import hashlib
import os
import pathlib

from absl import logging
import numpy as np
from scipy import sparse

from xjax.core.config_part import field
from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.batches.sparse import SparseDocuments
from xjax.data.config import GivenFeaturesConfig, Norm, TokensConfig
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import find_files, find_folder, only_file
from xjax.data.formats.contract import DataConfig
from xjax.data.formats.draft import TRAIN, RawCorpus, RawSplit, choose_splits
from xjax.data.formats.xc_files import XcFile, read_xc
from xjax.data.formats.xc_text import read_label_names
from xjax.data.schema import Label, Labels


@dataclasses.dataclass
class XcFeaturesData(DataConfig):
  """Feature files of the Extreme Classification Repository.

  train.txt, test.txt and dev.txt, each perhaps gzipped, and perhaps Y.txt with
  the labels' names, a line each. A document's id is its row, a label's id its
  column, both from 0. All columns are labels, as of XcRepoData. There is no
  text, so there are no zones.
  """

  labels: str = 'all'
  tokens: TokensConfig = field(
    GivenFeaturesConfig, 'What is read of a document.'
  )

  sparse = True

  def read(self, splits: Sequence[str] = (), usual: bool = True) -> RawCorpus:
    return read_xc_features(self, splits, usual)

  def read_rows(self, source: str) -> SparseDocuments:
    return read_feature_documents(self, source)


_NAMES = ('Y', 'labels')
_EXAMPLE = 'a train.txt or train.txt.gz'
_UNIT = 1e-3  # from length 1, of rows written with six decimals


def read_xc_features(
  data: XcFeaturesData, splits: Sequence[str] = (), usual: bool = True
) -> RawCorpus:
  """Reads a folder of feature files.

  Args:
    data: where, and how long rows are made.
    splits: those that must be there.
    usual: whether train, dev and test are read as well, where they are there.

  Returns:
    The corpus; its descriptors are all columns, in order, and their ids are
    the columns. Its documents are SparseDocuments, as wide as train where that
    is read.

  Raises:
    DataError: no such folder, no split, one of splits is absent, the files have
      faults or do not fit one another.
  """
  folder = find_folder(data.dir)
  faults = Faults(on_error=None)
  files = find_files(folder, 'txt')
  names = [path for name in _NAMES for path in files.pop(name, ())]
  chosen = choose_splits(data.dir, files, splits, usual, _EXAMPLE)
  paths = {name: only_file(files[name], faults) for name in chosen}
  named = _read_names(names, faults)
  faults.settle()
  found = {path: _read(path) for path in paths.values()}
  labels = _labels(found, names, named)
  documents = {
    name: _documents(path, found[path], data.tokens.norm)
    for name, path in paths.items()
  }
  if TRAIN in documents:
    _tell_raw(paths[TRAIN], documents[TRAIN].rows, data.tokens.norm)
    width = documents[TRAIN].n_features
    documents = {n: split.with_width(width) for n, split in documents.items()}
  return _corpus(data.dir, labels, documents)


def read_feature_documents(
  data: XcFeaturesData, source: str
) -> SparseDocuments:
  """Reads documents to be tagged from a feature file.

  Args:
    data: the corpus a model was trained on.
    source: the file, perhaps gzipped.

  Returns:
    The documents; where none has a label, labels are not known.

  Raises:
    DataError: the file has faults or no documents, or is standard input.
  """
  if source == '-':
    raise DataError(
      'standard input: this run reads the features of documents: give a file '
      'like those it was trained on'
    )
  path = pathlib.Path(source).expanduser()
  return _documents(path, _read(path), data.tokens.norm)


def _read(path: pathlib.Path) -> XcFile:
  found = read_xc(path)
  if found.features is None:
    raise DataError(
      f'{path}:1: the header of a label file, `N L`: a file of features starts '
      'with `N D L`, or has no header'
    )
  if not len(found.gold):
    raise DataError(f'{path}: no document in it')
  return found


def _read_names(paths: Sequence[pathlib.Path], faults: Faults) -> Labels:
  """The labels of the file of names, if there is one."""
  if not paths:
    return Labels.of(())
  return read_label_names(only_file(paths, faults), faults)


def _labels(
  files: Mapping[pathlib.Path, XcFile],
  names: Sequence[pathlib.Path],
  named: Labels,
) -> Labels:
  """All columns: as many as headers and names say, else the largest and 1.

  Raises:
    DataError: files disagree.
  """
  told = {path: xc.n_labels for path, xc in files.items() if xc.header}
  if named:
    told[names[0]] = len(named)
  most = max(xc.n_labels for xc in files.values())
  first, n_labels = next(iter(told.items()), (None, most))
  for path, count in told.items():
    if count != n_labels:
      raise DataError(
        f'{path}: {count} labels, but there are {n_labels} in {first}'
      )
  for path, xc in files.items():
    if xc.n_labels > n_labels:
      raise DataError(
        f'{path}: label {xc.n_labels - 1} is not in 0..{n_labels - 1}, those '
        f'in {first}'
      )
  return named or Labels.of(Label(str(i), str(i)) for i in range(n_labels))


def _documents(
  path: str | os.PathLike, xc: XcFile, norm: Norm
) -> SparseDocuments:
  rows = xc.features
  if norm is Norm.L2:
    lengths = np.repeat(_lengths(rows), np.diff(rows.indptr))
    scaled = rows.data / np.where(lengths > 0, lengths, 1)
    parts = scaled.astype(np.float32), rows.indices, rows.indptr
    rows = sparse.csr_array(parts, shape=rows.shape)
  known = len(xc.gold.values) > 0
  return SparseDocuments(os.fspath(path), rows, xc.gold if known else None)


def _lengths(rows: sparse.csr_array) -> np.ndarray:
  """float64 [N], the lengths of rows."""
  squares = np.square(rows.data, dtype=np.float64)
  row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
  return np.sqrt(np.bincount(row, squares, rows.shape[0]))


def _tell_raw(path: pathlib.Path, rows: sparse.csr_array, norm: Norm) -> None:
  lengths = _lengths(rows)
  raw = int(((lengths > 0) & (abs(lengths - 1) > _UNIT)).sum())
  if norm is Norm.NONE and raw:
    logging.warning(
      '%s: %d of %d rows are not of length 1, on which linear models are much '
      'worse (Bibtex: P@1 56.2, not 63.8): --config.data.tokens.norm=l2 makes '
      'them so',
      path,
      raw,
      len(lengths),
    )


def _corpus(
  source: str,
  labels: Labels,
  documents: Mapping[str, SparseDocuments],
) -> RawCorpus:
  none = Ragged.of([])
  gold = {name: split.labels or none for name, split in documents.items()}
  used = np.unique(np.concatenate([rows.values for rows in gold.values()]))
  return RawCorpus(
    source=source,
    labels=labels,
    label_ids=tuple(map(str, used.tolist())),
    splits={name: _split(split, used) for name, split in documents.items()},
    zones=(),
    ordered=True,
  )


def _split(documents: SparseDocuments, used: np.ndarray) -> RawSplit:
  """A split; used: the columns that are label_ids, ascending."""
  gold = documents.labels or Ragged.of([()] * len(documents))
  found = hashlib.sha256()
  rows = documents.rows
  for array in (rows.data, rows.indices, rows.indptr, gold.indptr, gold.values):
    found.update(np.ascontiguousarray(array).data)
  return RawSplit(
    ids=tuple(map(str, range(len(documents)))),
    gold=Ragged(
      gold.indptr, np.searchsorted(used, gold.values).astype(np.int32)
    ),
    documents=documents,
    digest=found.hexdigest(),
  )
