"""Reads folders of feature files of the Extreme Classification Repository.

A folder has train.txt, test.txt and perhaps dev.txt, in the format that
xc_files.read_xc reads. The names of labels may be in Y.txt or labels.txt, or
their descriptors in labels.jsonl. Each file may be gzipped.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
import hashlib
import itertools
import os
import pathlib

from absl import logging
import numpy as np
from scipy import sparse

from xjax.core.config_part import RATE, SEED, field
from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.documents import SparseDocuments
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import (
  STREAM,
  find_files,
  find_source,
  only_file,
)
from xjax.data.formats.corpus_builder import TRAIN, SourceCorpus, choose_splits
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.drawing import draw_missing, missing_shares
from xjax.data.formats.label_files import read_columns, read_descriptors
from xjax.data.formats.xc_files import SparseRows, check_width, read_xc
from xjax.data.schema import Label, Labels, Split
from xjax.data.tokens_config import GivenFeaturesConfig, Norm, TokensConfig

# Lengths from 1 - _UNIT to 1 + _UNIT count as 1, because many files have values
# with only six decimals.
_UNIT = 1e-3


@dataclasses.dataclass
class XcFeaturesData(DataConfig):
  """Configures feature files of the Extreme Classification Repository.

  The id of a document is its row number, from 0. All columns are labels, even
  if no split uses them. Documents have no text and no zones.
  """

  labels: str = 'all'
  dev_share: float = field(
    0.0,
    'The share of training documents that are drawn as dev if there is no '
    'dev.txt. Without dev, there are no calibrated probabilities.',
    RATE,
  )
  tokens: TokensConfig = field(
    GivenFeaturesConfig, 'The form in which models read documents.'
  )
  split_seed: int = field(0, 'Decides which documents are drawn.', SEED)
  named_ids: bool = field(
    False,
    'Whether labels.jsonl has the ids and names of the labels, one line per '
    'column. If False, the id of a label is its column number.',
  )

  sparse = True

  def read(
    self, splits: Sequence[str] = (), usual: bool = True
  ) -> SourceCorpus:
    """Reads a folder; if it reads train, all have as many features as train."""
    folder = find_source(self.dir)
    faults = Faults(on_error=None)
    files = find_files(folder, 'txt')
    names = [*files.pop('Y', ()), *files.pop('labels', ())]
    if self.named_ids:
      names = find_files(folder).get('labels', [])
    drawn = missing_shares(files, {'dev': self.dev_share})
    present = {*files, *drawn}
    chosen = choose_splits(self.dir, present, splits, usual)
    to_read = dict.fromkeys(TRAIN if n in drawn else n for n in chosen)
    paths = {name: only_file(files[name], faults) for name in to_read}
    named = self._read_labels(names, faults)
    faults.raise_or_log()
    read = {name: _read(path) for name, path in paths.items()}
    labels = _labels([*read.values()], names, named)
    documents = {name: self._documents(xc) for name, xc in read.items()}
    if TRAIN in documents:
      if self.tokens.norm is Norm.NONE:
        _warn_unscaled(documents[TRAIN])
      width = documents[TRAIN].n_features
      documents = {n: split.with_width(width) for n, split in documents.items()}
    raw = _corpus(self.dir, labels, documents)
    raw = draw_missing(raw, drawn, functools.partial(_keys, self.split_seed))
    return raw.chosen(splits, usual)

  def read_input(self, source: str) -> SparseDocuments:
    """Reads documents to be tagged from a feature file, plain or gzipped.

    Their labels are None if no document has a label, or if data.named_ids is
    True, because the file does not name its columns.
    """
    if source == STREAM:
      raise DataError(
        'standard input: this run reads features of documents, not text; give '
        'a feature file in the format of the training files'
      )
    documents = self._documents(_read(pathlib.Path(source).expanduser()))
    has_labels = len(documents.labels.values) > 0
    if has_labels and self.named_ids:
      logging.info(
        '%s: the labels are left out: this run knows them by name', source
      )
    if has_labels and not self.named_ids:
      return documents
    return dataclasses.replace(documents, labels=None)

  def _read_labels(
    self, paths: Sequence[pathlib.Path], faults: Faults
  ) -> Labels:
    if self.named_ids and not paths:
      raise DataError(
        f'{self.dir}: config.data.named_ids=True needs labels.jsonl, with the '
        'label of one column per line'
      )
    if not paths:
      return Labels.of(())
    path = only_file(paths, faults)
    if self.named_ids:
      return Labels.of(read_descriptors(path, faults).values())
    return read_columns(path, faults, plain=True)

  def _documents(self, xc: SparseRows) -> SparseDocuments:
    rows = scale_rows(xc.matrix(), self.tokens.norm)
    return SparseDocuments(os.fspath(xc.path), rows, xc.labels)


def _keys(seed: int, documents: SparseDocuments) -> Iterator[int]:
  """Yields a key of each document; equal documents have equal keys."""
  rows, salt = documents.rows, seed.to_bytes(8, 'little')
  for start, end in itertools.pairwise(rows.indptr.tolist()):
    columns = rows.indices[start:end].data
    digest = hashlib.blake2b(columns, digest_size=8, salt=salt)
    digest.update(rows.data[start:end].data)
    yield int.from_bytes(digest.digest(), 'little')


def _read(path: pathlib.Path) -> SparseRows:
  xc_file = read_xc(path)
  if len(xc_file.header) == 2:
    raise DataError(
      f'{path}:1: `N L` is the header of a label file; a feature file starts '
      'with `N D L` or has no header'
    )
  if not len(xc_file.labels):
    raise DataError(f'{path}: no document in it')
  return xc_file


def _labels(
  files: Sequence[SparseRows], names: Sequence[pathlib.Path], named: Labels
) -> Labels:
  """Returns a label for each column that a header, names or labels tell of."""
  entries = sum(len(xc.values) + len(xc.labels.values) for xc in files)
  for xc in files:
    check_width(xc.path, xc.n_features, 'feature', entries)
    if not named:
      check_width(xc.path, xc.n_labels, 'label', entries)
  counts = {xc.path: xc.n_labels for xc in files if xc.header}
  if named:
    counts[names[0]] = len(named)
  most = max(xc.n_labels for xc in files)
  first, n_labels = next(iter(counts.items()), (None, most))
  # A file without a header has no more labels than the others say.
  counts |= {
    xc.path: xc.n_labels
    for xc in files
    if not xc.header and xc.n_labels > n_labels
  }
  for path, count in counts.items():
    if count != n_labels:
      raise DataError(f'{path}: has {count} labels, but {first} has {n_labels}')
  return named or Labels.of(Label(str(i), str(i)) for i in range(n_labels))


def scale_rows(rows: sparse.csr_array, norm: Norm) -> sparse.csr_array:
  """Returns features float32 [N, D]; Norm.L2 scales rows to length 1."""
  if norm is not Norm.L2:
    return rows
  lengths = np.repeat(_lengths(rows), np.diff(rows.indptr))
  scaled = rows.data / np.where(lengths > 0, lengths, 1)
  parts = scaled.astype(np.float32), rows.indices, rows.indptr
  return sparse.csr_array(parts, shape=rows.shape)


def _lengths(rows: sparse.csr_array) -> np.ndarray:
  """Returns the Euclidean length of each row, float64 [N]."""
  squares = np.square(rows.data, dtype=np.float64)
  row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
  return np.sqrt(np.bincount(row, squares, rows.shape[0]))


def _warn_unscaled(documents: SparseDocuments) -> None:
  lengths = _lengths(documents.rows)
  unscaled = int(((lengths > 0) & (abs(lengths - 1) > _UNIT)).sum())
  if unscaled:
    logging.warning(
      '%s: %d of %d rows are not of length 1. Linear models are much worse on '
      'such rows (on Bibtex, P@1 is 56.2 instead of 63.8). The flag '
      '--config.data.tokens.norm=l2 scales rows to length 1.',
      documents.source,
      unscaled,
      len(lengths),
    )


def _corpus(
  source: str, labels: Labels, documents: Mapping[str, SparseDocuments]
) -> SourceCorpus:
  columns = np.concatenate([x.labels.values for x in documents.values()])
  used = np.unique(columns)
  splits = {}
  for name, split in documents.items():
    rows, gold = split.rows, split.labels
    digest = hashlib.sha256()
    arrays = rows.data, rows.indices, rows.indptr, gold.indptr, gold.values
    for values in arrays:
      digest.update(np.ascontiguousarray(values).data)
    values = np.searchsorted(used, gold.values).astype(np.int32)
    splits[name] = Split(
      name=name,
      ids=split.ids,
      gold=Ragged(gold.indptr, values),
      documents=split,
      digest=digest.hexdigest(),
    )
  return SourceCorpus(
    source=source,
    labels=labels,
    label_ids=tuple(labels.ids[used]),
    splits=splits,
    zones=(),
    ordered=True,
  )
