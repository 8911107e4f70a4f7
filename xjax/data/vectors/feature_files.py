"""Reads vectors of documents that an outside encoder has saved in files.

The files of a split have a common stem, for example the name of the split:

  STEM.npy          vectors, float32 or float16
  STEM.ids.txt      document ids, one per line, in the order of STEM.npy
  STEM.lengths.npy  number of vectors of each document

If STEM.lengths.npy exists, a document has one vector per token, and STEM.npy
has the vectors of all documents, concatenated. Otherwise, a document has one
vector. Only the vectors of the current batch are read into memory. Labels may
have vectors too, in files with the stem `labels`.
"""

from collections.abc import Iterable, Sequence
import dataclasses
import functools
import hashlib
import os
import pathlib

from absl import logging
import numpy as np

from xjax.core.errors import DAMAGE, ConfigError, DataError
from xjax.core.rng import host_generator
from xjax.data.files.faults import Faults
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.label_files import read_ids
from xjax.data.schema import Corpus
from xjax.data.text.words import split_words
from xjax.data.vectors.feature_rows import FeatureRows


def word_features(
  ids: Sequence[str], texts: Iterable[str], dim: int, max_tokens: int
) -> FeatureRows:
  """Makes vectors of N documents from random vectors of their words.

  The entries of a word's vector are drawn from the standard normal
  distribution. If max_tokens is 1, a document has one vector: the sum of the
  vectors of its words, divided by the square root of the number of words.
  Otherwise, a document has the vectors of its first max_tokens words.
  """

  @functools.cache
  def vector(word: str) -> np.ndarray:
    rng = host_generator(0, 'word_features', word)
    return rng.standard_normal(dim, np.float32)

  arrays = []
  for text in texts:
    words = split_words(text)
    if max_tokens > 1:
      words = words[:max_tokens]
    states = np.array([vector(word) for word in words]).reshape(-1, dim)
    if max_tokens == 1 and len(words):
      states = states.sum(axis=0, keepdims=True) / len(words) ** 0.5
    arrays.append(states)
  return FeatureRows.from_arrays('features of words', ids, arrays, dim)


_DTYPES = (np.float32, np.float16)


def read_features(
  stem: str | os.PathLike, ids: Sequence[str], what: str = 'documents'
) -> FeatureRows:
  """Opens the files of a stem, and selects the features of N documents.

  `stem` is the path of STEM.npy, with or without the ending. The files may have
  further documents, in any order. A vector is read from disk only when it is
  used. Files that are missing, damaged or contradict each other, or that lack
  one of the `ids`, are a DataError.
  """
  stem = os.path.expanduser(os.fspath(stem)).removesuffix('.npy')
  vectors = _read_vectors(pathlib.Path(f'{stem}.npy'))
  faults = Faults(on_error=None)
  read = read_ids(f'{stem}.ids.txt', faults, 'document')
  faults.raise_or_log()
  rows = {id_: row for row, id_ in enumerate(read)}  # not lines: some are blank
  lengths = _read_lengths(stem, len(vectors))
  if len(rows) != len(lengths):
    ending = 'lengths.npy' if os.path.exists(f'{stem}.lengths.npy') else 'npy'
    raise DataError(
      f'{stem}.ids.txt: {len(rows)} ids, but {stem}.{ending} has '
      f'{len(lengths)} rows'
    )
  order = np.array([rows.get(id_, -1) for id_ in ids], np.int64)
  if len(missing := np.flatnonzero(order < 0)):
    raise DataError(
      f'{stem}.ids.txt: {len(missing)} of {len(ids)} {what} are missing, '
      f'such as {ids[missing[0]]!a}'
    )
  features = FeatureRows.of(f'{stem}.npy', list(rows), vectors, lengths)
  return features.select(order, ids)


def has_feature_files(data: DataConfig) -> bool:
  """Returns whether documents have vectors in files, not computed ones."""
  return not data.generated or bool(data.tokens.dir)


def features_folder(data: DataConfig) -> str:
  """Returns the folder with the feature files; a ConfigError if none is set."""
  if folder := data.tokens.dir or data.dir:
    return folder
  raise ConfigError(
    'data.tokens.dir is not set: give the folder with the features as '
    '--config.data.tokens.dir=FOLDER'
  )


def add_features(corpus: Corpus, data: DataConfig) -> Corpus:
  """Adds the features in files to the documents and digests of a corpus."""
  # Unchanged if models read no vectors, or if there are no files.
  if not data.tokens.dense or not has_feature_files(data):
    return corpus
  folder = features_folder(data)
  splits = {}
  for name, split in corpus.splits.items():
    features = read_features(os.path.join(folder, name), split.ids)
    features = _cut(features, name, data.tokens.max_tokens)
    digest = _join_digests(split.digest, features.digest())
    splits[name] = dataclasses.replace(split, features=features, digest=digest)
  digests = (split.digest for split in splits.values())
  fingerprint = _join_digests(corpus.fingerprint, *digests)
  return dataclasses.replace(corpus, splits=splits, fingerprint=fingerprint)


def _cut(features: FeatureRows, split: str, max_tokens: int) -> FeatureRows:
  if longer := int((features.lengths > max_tokens).sum()):
    logging.warning(
      f'{split}: {longer} of {len(features)} documents have more vectors than '
      f'data.tokens.max_tokens={max_tokens}; only the first vectors of these '
      'documents are read'
    )
  return features.first(max_tokens)


def _join_digests(*digests: str) -> str:
  return hashlib.sha256(' '.join(digests).encode()).hexdigest()


def _open(path: pathlib.Path) -> np.ndarray:
  if not path.is_file():
    raise DataError(f'{path}: no such file')
  try:
    return np.lib.format.open_memmap(path, mode='r')
  except DAMAGE as error:
    raise DataError(
      f'{path}: not a complete .npy file of numbers: {error}'
    ) from error


def _read_vectors(path: pathlib.Path) -> np.ndarray:
  vectors = _open(path)
  fits = vectors.ndim == 2 and vectors.shape[1]
  if vectors.dtype not in _DTYPES or not fits:
    raise DataError(
      f'{path}: the array is {vectors.dtype} {vectors.shape}, but must be '
      'float32 or float16, [documents, D] or, if there is a file of lengths, '
      '[tokens, D]'
    )
  return vectors


def _read_lengths(stem: str, n_vectors: int) -> np.ndarray:
  """Returns the number of vectors of each document; 1 without the file."""
  path = pathlib.Path(f'{stem}.lengths.npy')
  if not path.exists():
    return np.ones(n_vectors, np.int64)
  lengths = _open(path)
  counts = lengths.ndim == 1 and lengths.dtype.kind in 'iu'
  if not counts or (lengths < 0).any() or lengths.sum() != n_vectors:
    raise DataError(
      f'{path}: must have one integer per document, at least 0, whose sum is '
      f'the number of vectors in {stem}.npy, {n_vectors}'
    )
  return np.asarray(lengths, np.int64)
