"""Features of documents from files, saved by any outside encoder.

STEM.npy has vectors, float32 or float16, and STEM.ids.txt the documents' ids,
one per line, in the order of the vectors. Without STEM.lengths.npy a document
is one vector; with it, integers, the states of its tokens, and those of all
documents lie end to end. Nothing but what a batch needs is read into memory.
Labels may have vectors too, one each, in files of the stem `labels`.
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
from xjax.data.batches.feature_rows import FeatureRows
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import Fields, numbered_lines, open_text
from xjax.data.formats.contract import DataConfig
from xjax.data.schema import Corpus
from xjax.data.text.words import split_words


def word_features(
  ids: Sequence[str], texts: Iterable[str], dim: int, max_tokens: int
) -> FeatureRows:
  """Random vectors of words, the same wherever a word stands.

  Args:
    ids: N document ids.
    texts: of the documents.
    dim: size D of a vector; its entries are of about unit size.
    max_tokens: if 1, a document is one vector, the sum over its words divided
      by the root of their number, so that its entries are of unit size as
      well; else, it is those of its first words.

  Returns:
    N rows; a document without words has none.
  """
  vector = functools.cache(
    lambda word: host_generator(0, 'word_features', word).standard_normal(
      dim, np.float32
    )
  )
  found = []
  for text in texts:
    words = split_words(text)
    if max_tokens > 1:
      words = words[:max_tokens]
    states = np.array([vector(word) for word in words]).reshape(-1, dim)
    if max_tokens == 1 and len(words):
      states = states.sum(axis=0, keepdims=True) / len(words) ** 0.5
    found.append(states)
  return FeatureRows.from_arrays('features made of words', ids, found, dim)


_DTYPES = (np.float32, np.float16)


def read_features(stem: str | os.PathLike, ids: Sequence[str]) -> FeatureRows:
  """Finds the features of documents.

  Args:
    stem: the files, STEM.npy and those beside it.
    ids: of N documents; the files may have others, in any order.

  Returns:
    N rows in the order of ids, memory-mapped.

  Raises:
    DataError: a file is absent or damaged, or does not fit the others; or
      documents are not among them, of which the message names one.
  """
  stem = os.path.expanduser(os.fspath(stem)).removesuffix('.npy')
  vectors = _read_vectors(pathlib.Path(f'{stem}.npy'))
  known = _read_ids(pathlib.Path(f'{stem}.ids.txt'))
  lengths = _read_lengths(stem, len(vectors))
  if len(known) != len(lengths):
    of = 'lengths.npy' if os.path.exists(f'{stem}.lengths.npy') else 'npy'
    raise DataError(
      f'{stem}.ids.txt: {len(known)} ids, but {stem}.{of} has {len(lengths)} '
      'rows'
    )
  order = np.array([known.get(id_, -1) for id_ in ids], np.int64)
  if len(missing := np.flatnonzero(order < 0)):
    raise DataError(
      f'{stem}.ids.txt: {len(missing)} of {len(ids)} documents are missing, '
      f'such as {ids[missing[0]]!a}'
    )
  found = FeatureRows.of(f'{stem}.npy', list(known), vectors, lengths)
  return found.select(order, ids)


def has_feature_files(data: DataConfig) -> bool:
  """Whether the vectors of a corpus' documents are in files.

  Those of the embedded corpus are made of words, unless a folder is named.
  """
  return not data.generated or bool(data.tokens.dir)


def features_folder(data: DataConfig) -> str:
  """The folder of the features of a corpus that has them in files.

  Raises:
    ConfigError: none is named.
  """
  if folder := data.tokens.dir or data.dir:
    return folder
  raise ConfigError(
    'data.tokens.dir is not set: give the folder with the features as '
    '--config.data.tokens.dir=FOLDER'
  )


def add_features(corpus: Corpus, data: DataConfig) -> Corpus:
  """The corpus with the features of its documents, where they are in files.

  The digests of splits and corpus tell other features as they tell other
  documents.

  Raises:
    ConfigError: there is no folder to look in.
    DataError: as read_features.
  """
  if not data.tokens.dense or not has_feature_files(data):
    return corpus
  folder = features_folder(data)
  splits = {}
  for name, split in corpus.splits.items():
    found = read_features(os.path.join(folder, name), split.ids)
    found = _cut(found, name, data.tokens.max_tokens)
    digest = _joined(split.digest, found.digest())
    splits[name] = dataclasses.replace(split, features=found, digest=digest)
  digests = (split.digest for split in splits.values())
  fingerprint = _joined(corpus.fingerprint, *digests)
  return Corpus(corpus.label_space, splits, fingerprint)


def _cut(features: FeatureRows, split: str, max_tokens: int) -> FeatureRows:
  """The first vectors of each document; logs of how many that is not all."""
  if longer := int((features.lengths > max_tokens).sum()):
    logging.warning(
      '%s: %d of %d documents have more vectors than data.tokens.max_tokens=%d:'
      ' the first are read',
      split,
      longer,
      len(features),
      max_tokens,
    )
  return features.first(max_tokens)


def _joined(*digests: str) -> str:
  return hashlib.sha256(' '.join(digests).encode()).hexdigest()


def _open(path: pathlib.Path) -> np.ndarray:
  """Maps a .npy file."""
  if not path.is_file():
    raise DataError(f'{path}: no such file')
  try:
    return np.lib.format.open_memmap(path, mode='r')
  except DAMAGE as error:
    raise DataError(
      f'{path}: not a whole .npy file of numbers: {error}'
    ) from error


def _read_vectors(path: pathlib.Path) -> np.ndarray:
  vectors = _open(path)
  if vectors.dtype not in _DTYPES:
    raise DataError(f'{path}: {vectors.dtype}, not float32 or float16')
  if vectors.ndim != 2 or not vectors.shape[1]:
    raise DataError(
      f'{path}: shape {vectors.shape}, not [documents, D], nor [tokens, D] '
      'with a lengths.npy beside it'
    )
  return vectors


def _read_lengths(stem: str, n_vectors: int) -> np.ndarray:
  """Vectors of each document, int64; all 1 where no file tells."""
  path = pathlib.Path(f'{stem}.lengths.npy')
  if not path.exists():
    return np.ones(n_vectors, np.int64)
  lengths = _open(path)
  if lengths.ndim != 1 or lengths.dtype.kind not in 'iu':
    raise DataError(
      f'{path}: {lengths.dtype} {lengths.shape}, not one integer per document'
    )
  lengths = np.asarray(lengths, np.int64)
  if len(lengths) and lengths.min() < 0:
    raise DataError(f'{path}: row {lengths.argmin()} is negative')
  if lengths.sum() != n_vectors:
    raise DataError(
      f'{path}: {lengths.sum()} tokens in all, but {stem}.npy has {n_vectors}'
    )
  return lengths


def _read_ids(path: pathlib.Path) -> dict[str, int]:
  """Id -> row."""
  found: dict[str, int] = {}
  faults = Faults(on_error=None)
  with open_text(path) as file:
    for number, line in numbered_lines(file, path):
      fields = Fields({})
      id_ = fields.as_id(line.decode('utf-8', 'surrogateescape'), 'the id')
      if id_ in found:
        fields.faults.append(f'duplicate id {id_!a}')
      faults.extend(path, number, fields.faults)
      found[id_] = number - 1
  faults.settle()
  return found
