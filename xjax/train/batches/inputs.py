"""Turns documents into batches, as a run reads them to train and to rank."""

from collections.abc import Iterable, Iterator, Sequence
import dataclasses
import os
from typing import Any

import numpy as np

from xjax.core.errors import ConfigError, DataError
from xjax.core.mesh_config import WHOLE, ProcessShare
from xjax.core.progress import progress
from xjax.core.types import Ragged, offsets_of
from xjax.data.documents import Documents
from xjax.data.formats.data_config import DataConfig
from xjax.data.load import read_zones
from xjax.data.schema import Document, Label, Split
from xjax.data.text.subwords import Subwords, document_subwords
from xjax.data.text.token_cache import encode, tokenise
from xjax.data.text.words import (
  PAD_ID,
  UNKNOWN_ID,
  Vocabulary,
  WordPlace,
  document_words,
)
from xjax.data.vectors.feature_files import (
  features_folder,
  has_feature_files,
  read_features,
  word_features,
)
from xjax.data.vectors.feature_rows import FeatureRows
from xjax.networks.batch import TokenBatch
from xjax.train.batches.candidates import TrainShortlists
from xjax.train.batches.dense import EvalBatches, TokenRows, TrainBatches, Zones
from xjax.train.batches.packing import Packing, possible_rows

_FEW_ROWS = 1024  # splits are judged in batches of this size or more
_NEEDS_FEATURES = (
  'this run reads vectors of an outside encoder; give the vectors of the '
  'documents with --features=STEM (STEM.npy and STEM.ids.txt), or in Python '
  'with the argument features'
)


def check_vector_size(features: FeatureRows, dim: int) -> None:
  """Checks that an outside encoder's vectors have the size of a model."""
  if features.dim != dim:
    raise ConfigError(
      f'config.model.embedding.dim={dim}: {features.source} has vectors of '
      f'size {features.dim}'
    )


def read_label_vectors(
  labels: Sequence[Label], data: DataConfig, dim: int, reads_parents: bool
) -> np.ndarray:
  """Returns the vectors [L, E] of labels, for a head with label descriptors.

  Without feature files, they are computed from the words of label names. For a
  model that reads parents, concepts follow the L labels. A DataError says that
  a file has a fault, or lacks a label or a concept.
  """
  ids = [label.id for label in labels]
  if has_feature_files(data):
    stem = os.path.join(features_folder(data), 'labels')
    also = ' and concepts' if reads_parents else ''
    features = read_features(stem, ids, f'labels{also}')
    if (features.lengths != 1).any():
      raise DataError(
        f'{stem}.lengths.npy: each label must have exactly one vector'
      )
  else:
    names = (label.name for label in labels)
    features = word_features(ids, names, dim, 1)
  check_vector_size(features, dim)
  return features.padded(np.arange(len(labels)), 1)[:, 0]


@dataclasses.dataclass(frozen=True, eq=False)
class TokenReader:
  """Turns documents into batches of word ids, or of vectors."""

  data: DataConfig
  # Vocabulary of words, or tokenizer of a pretrained encoder; None if documents
  # are given as vectors.
  vocab: Vocabulary | Subwords | None
  dim: int  # size of these vectors
  batch_size: int  # for judging or predicting, over all processes
  # The rows of a batch that this process reads. These rows are divided among
  # the devices along the data axis. Two documents can be packed into one row
  # only if both are for the same device.
  share: ProcessShare = WHOLE

  @property
  def vocab_size(self) -> int:
    """Returns the number of token ids, with special tokens; 0 for vectors."""
    return 0 if self.vocab is None else len(self.vocab)

  def train_batches(
    self,
    split: Split,
    n_labels: int,
    *,
    batch_size: int,
    seed: int,
    accumulate: int = 1,
    shortlists: TrainShortlists | None = None,
  ) -> TrainBatches:
    """Returns shuffled batches for training, with the rows of this process."""
    # `batch_size` counts the documents of all processes. Gold labels with an
    # index of n_labels or more are left out.
    return TrainBatches(
      self._rows(Documents.of_split(split)),
      split.gold.keep(split.gold.values < n_labels),
      batch_size=batch_size,
      seed=seed,
      workers=self.data.workers,
      shortlists=shortlists,
      **self._layout(accumulate),
    )

  def batches(self, documents: Documents) -> EvalBatches:
    """Returns batches with every document once; doc_B are rows of `documents`.

    A ConfigError says that the documents have sparse features, or that vectors
    are missing, or have another size.
    """
    if documents.sparse is not None:
      raise ConfigError(
        'this run reads texts; do not give it a matrix of features'
      )
    n, gold = len(documents), documents.gold
    few = 1 if documents.split is None else _FEW_ROWS
    if gold is None:
      gold = Ragged.of([()] * n)
    return self._once(self._rows(documents), gold, self._batch_rows(n, few))

  def _rows(self, documents: Documents) -> TokenRows:
    """Returns tokens or vectors; the tokens of a split are cached in a file."""
    if self.vocab is None:
      return self._vectors(documents)
    # A memory has the tokens of all documents, not those of some.
    if documents.memory is None or documents.rows is not None:
      return self._tokens(documents)
    tokens = self.data.tokens
    key = (
      *('tokens', self.vocab.digest, tokens.max_tokens, tokens.by_zone),
      *self.data.zones,
    )
    return documents.view(key, self._tokens)

  def _tokens(self, documents: Documents) -> Ragged | Zones:
    tokens, split = self.data.tokens, documents.split
    longest, by_zone = tokens.max_tokens, tokens.by_zone
    if split is None:
      read = map(self.document, documents)
      ids = encode(read, self.vocab, longest, by_zone)
    else:
      folder = self.data.cache_folder
      ids = tokenise(split, self.vocab, longest, folder, by_zone)
    return self._split_zones(ids)

  def _vectors(self, documents: Documents) -> FeatureRows:
    features, longest = documents.vectors, self.data.tokens.max_tokens
    if features is not None:
      check_vector_size(features, self.dim)
      return features.first(longest)
    if documents.split is None and has_feature_files(self.data):
      raise ConfigError(_NEEDS_FEATURES)
    read = list(map(self.document, documents))
    ids = [document.id for document in read]
    texts = (document.text() for document in read)
    return word_features(ids, texts, self.dim, longest)

  def _batch_rows(self, n_documents: int, few: int) -> int:
    """Returns the rows of a batch; one of at most `few` rows is not halved."""
    sizes = self._sizes()
    enough = [size for size in sizes if size >= n_documents] or sizes[:1]
    # Sizes fall, so this is the largest that is at most few.
    return next((size for size in enough if size <= few), enough[-1])

  def _sizes(self) -> list[int]:
    """Returns the sizes of batches for judging or predicting, descending."""
    # A few documents need no full batch. Sizes are halved, so that few shapes
    # occur and few programs are compiled.
    sizes = [self.batch_size]
    while sizes[-1] % (2 * self.share.of) == 0:
      sizes.append(sizes[-1] // 2)
    return sizes

  def example_batches(self) -> Iterator[TokenBatch]:
    """Yields a batch of every shape that batches of texts can have."""
    # If zones are kept apart, only with one zone, as the number is unknown.
    for rows in self._sizes():
      for lengths in self._example_lengths(rows):
        indptr = offsets_of(lengths)
        tokens = Ragged(indptr, np.full(indptr[-1], UNKNOWN_ID, np.int32))
        documents = self._split_zones(tokens)
        if self.vocab is None:
          vectors = [np.zeros((n, self.dim), np.float32) for n in lengths]
          ids = [str(row) for row in range(rows)]
          documents = FeatureRows.from_arrays(
            'examples', ids, vectors, self.dim
          )
        yield from self._once(documents, Ragged.of([()] * rows), rows)

  def _example_lengths(self, rows: int) -> Iterator[np.ndarray]:
    """Yields lengths of documents [rows] for every shape of a batch."""
    packing, buckets = self._packing(), self.data.tokens.buckets
    if packing is None:
      yield from (np.full(rows, width) for width in buckets)
      return
    # Documents that are longer than half of a row cannot share a row.
    long = buckets[-1] // 2 + 1
    each = rows // self.share.of
    for n_long in possible_rows(each):
      yield np.tile(np.where(np.arange(each) < n_long, long, 1), self.share.of)

  def document(self, document: str | Document) -> Document:
    return read_zones(document, self.data)

  def words(self, document: str | Document) -> list[WordPlace]:
    """Returns the word, or piece of a word, of each token of a document."""
    zones, longest = self.document(document), self.data.tokens.max_tokens
    if isinstance(self.vocab, Subwords):
      return document_subwords(zones, self.vocab, longest)
    return document_words(zones)[:longest]

  def _split_zones(self, tokens: Ragged) -> Ragged | Zones:
    return Zones.of(tokens) if self.data.tokens.by_zone else tokens

  def _packing(self, accumulate: int = 1) -> Packing | None:
    packed = self.data.tokens.packed
    return Packing(self.share.of, accumulate) if packed else None

  def _layout(self, accumulate: int = 1) -> dict[str, Any]:
    return {
      'buckets': self.data.tokens.buckets,
      'share': self.share,
      'padding': PAD_ID if self.vocab is None else self.vocab.pad_id,
      'packing': self._packing(accumulate),
    }

  def _once(
    self, rows: TokenRows, gold: Ragged, batch_size: int
  ) -> EvalBatches:
    return EvalBatches(rows, gold, batch_size=batch_size, **self._layout())


def fit_vocabulary(split: Split, data: DataConfig) -> Vocabulary:
  """Builds the vocabulary of a training split."""
  with progress(range(len(split)), 'words of train') as rows:
    texts = (
      text
      for row in rows
      for text in _texts(split.documents[row], data.tokens.by_zone)
    )
    return Vocabulary.fit(texts, data.tokens)


def _texts(document: Document, by_zone: bool) -> Iterable[str]:
  return document.zones.values() if by_zone else [document.text()]
