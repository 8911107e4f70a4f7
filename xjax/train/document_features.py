"""Vectors of documents, as a run that reads no words reads them."""

from collections.abc import Iterable, Sequence
import os

import numpy as np

from xjax.config.run import Config
from xjax.core.errors import ConfigError, DataError
from xjax.data.batches.feature_files import (
  features_folder,
  in_files,
  read_features,
)
from xjax.data.batches.feature_rows import FeatureRows
from xjax.data.batches.word_features import word_features
from xjax.data.config import FeatureFilesConfig
from xjax.data.schema import Corpus, Document, Label, Split

_GIVE = (
  'this run reads vectors of an outside encoder: give those of the documents '
  'as --features=STEM (STEM.npy and STEM.ids.txt), from Python as features'
)


def reads_features(config: Config) -> bool:
  """Whether documents come as vectors and not as words."""
  return isinstance(config.data.tokens, FeatureFilesConfig)


def check_features(corpus: Corpus, config: Config) -> None:
  """Refuses vectors of another size than the model's, or none of its labels.

  Raises:
    ConfigError: with both sizes.
    DataError: as label_features.
  """
  if not reads_features(config):
    return
  for split in corpus.splits.values():
    if split.features is not None:
      _check_size(split.features, config)
  if config.model.head.describes:
    space = corpus.label_space
    label_features(space.labels[: space.n_inside], config)


def split_features(split: Split, config: Config) -> FeatureRows:
  """The vectors of a split; of the embedded corpus made of words.

  Raises:
    ConfigError: as check_features.
  """
  if split.features is None:
    documents = (split.documents[row] for row in range(len(split)))
    return _made(split.ids, documents, config)
  _check_size(split.features, config)
  return split.features


def label_features(labels: Sequence[Label], config: Config) -> np.ndarray:
  """What a head that knows labels by descriptors knows of them here.

  Of the embedded corpus it is made of the words of their names.

  Args:
    labels: L of them.
    config: of the run.

  Returns:
    float32 [L, E], E as documents' vectors.

  Raises:
    ConfigError: as check_features.
    DataError: a fault in the files, or a label that they lack.
  """
  ids = [label.id for label in labels]
  if in_files(config.data):
    stem = os.path.join(features_folder(config.data), 'labels')
    found = read_features(stem, ids)
    if (found.lengths != 1).any():
      raise DataError(f'{stem}.lengths.npy: a label has one vector')
  else:
    names = (label.name for label in labels)
    found = word_features(ids, names, config.model.embedding.dim, 1)
  _check_size(found, config)
  return found.padded(np.arange(len(labels)), 1)[:, 0]


def given_features(
  features: Sequence[np.ndarray] | None, n: int, config: Config
) -> FeatureRows | None:
  """Vectors that are in memory.

  Args:
    features: float [D] or [tokens, D] each; None: none.
    n: documents that they are of.
    config: of the run.

  Raises:
    ConfigError: the run reads none.
    DataError: they are more or fewer than documents, or have other shapes.
  """
  if features is None:
    return None
  check_reads_features(config)
  ids = [f'documents[{row}]' for row in range(n)]
  return FeatureRows.joined(
    'features', ids, features, config.model.embedding.dim
  )


def check_reads_features(config: Config) -> None:
  """Refuses features where words are read.

  Raises:
    ConfigError: the run reads words.
  """
  if not reads_features(config):
    raise ConfigError(
      'this run reads the words of documents: give it no features'
    )


def document_features(
  documents: Sequence[Document], features: FeatureRows | None, config: Config
) -> FeatureRows:
  """The vectors of documents to be tagged.

  Args:
    documents: N of them.
    features: N rows; None: they are made of words, as in training.
    config: of the run.

  Raises:
    ConfigError: as check_features, or they cannot be made.
  """
  if features is None:
    if in_files(config.data):
      raise ConfigError(_GIVE)
    ids = [document.id for document in documents]
    return _made(ids, documents, config)
  _check_size(features, config)
  return features.first(config.data.tokens.max_tokens)


def _made(
  ids: Sequence[str], documents: Iterable[Document], config: Config
) -> FeatureRows:
  texts = (document.text() for document in documents)
  size = config.model.embedding.dim
  return word_features(ids, texts, size, config.data.tokens.max_tokens)


def _check_size(features: FeatureRows, config: Config) -> None:
  dim = config.model.embedding.dim
  if features.dim != dim:
    raise ConfigError(
      f'config.model.embedding.dim={dim}: {features.source} has vectors of '
      f'size {features.dim}'
    )
