"""Turns documents into batches, according to the config of a run."""

from collections.abc import Iterable, Iterator, Sequence
import dataclasses
import os

import numpy as np

from xjax.core.errors import ConfigError, DataError
from xjax.core.mesh_config import WHOLE, Share
from xjax.core.progress import progress
from xjax.core.types import (
  Batch,
  Ragged,
)
from xjax.data.formats.data_config import DataConfig
from xjax.data.hierarchy import Hierarchy
from xjax.data.load import model_view
from xjax.data.schema import Corpus, Document, Label, Split
from xjax.data.sparse_documents import SparseDocuments
from xjax.data.text.subwords import Subwords, document_subwords
from xjax.data.text.token_cache import default_cache_dir, encode, tokenise
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
from xjax.models.config import Config
from xjax.train.batches.candidates import TrainShortlists
from xjax.train.batches.dense import (
  Documents,
  EvalBatches,
  TrainBatches,
  eval_batches,
)
from xjax.train.batches.packing import Packing, possible_rows
from xjax.train.batches.zones import Zones

_FEW_ROWS = 1024  # splits are judged in batches of this size or more
_NEEDS_FEATURES = (
  'this run reads vectors of an outside encoder; give the vectors of the '
  'documents with --features=STEM (STEM.npy and STEM.ids.txt), or in Python '
  'with the argument features'
)
READS_TEXT = 'this run reads texts; do not give it a matrix of features'


def check_features(corpus: Corpus, config: Config) -> None:
  """Checks the vectors of documents and labels from an outside encoder.

  All vectors must have the model's size. If the head uses label descriptors,
  all labels must have vectors. If the model also reads parents, all concepts of
  its hierarchy must have vectors too.

  Raises:
    ConfigError: vectors have another size than the model's.
    DataError: as in label_features; or the model reads parents, and a label is
      its own ancestor.
  """
  if not config.data.tokens.dense:
    return
  for split in corpus.splits.values():
    if split.features is not None:
      _check_size(split.features, config)
  if config.model.head.describes:
    space = corpus.label_space
    nodes = space.labels[: space.n_inside]
    if config.model.reads_parents:
      nodes = Hierarchy.of_space(space, len(nodes)).labels
    label_features(nodes, config)


def split_features(split: Split, config: Config) -> FeatureRows:
  """Returns the vectors of a split.

  If the split has no vectors, they are computed from the words of documents.

  Raises:
    ConfigError: vectors have another size than the model's.
  """
  if split.features is None:
    documents = (split.documents[row] for row in range(len(split)))
    return _features_of_words(split.ids, documents, config)
  _check_size(split.features, config)
  return split.features


def label_features(labels: Sequence[Label], config: Config) -> np.ndarray:
  """Returns the vectors of labels, for a head that uses label descriptors.

  Without feature files, the vectors are computed from the words of label names.

  Args:
    labels: L labels. For a model that reads parents, concepts follow them.
    config: config of a run on vectors of an outside encoder.

  Returns:
    float32 [L, E]. Label vectors and document vectors have the same size E.

  Raises:
    ConfigError: vectors have another size than the model's.
    DataError: a file has a fault, or lacks a label or a concept.
  """
  ids = [label.id for label in labels]
  if has_feature_files(config.data):
    stem = os.path.join(features_folder(config.data), 'labels')
    also = ' and concepts' if config.model.reads_parents else ''
    features = read_features(stem, ids, f'labels{also}')
    if (features.lengths != 1).any():
      raise DataError(
        f'{stem}.lengths.npy: each label must have exactly one vector'
      )
  else:
    names = (label.name for label in labels)
    features = word_features(ids, names, config.model.embedding.dim, 1)
  _check_size(features, config)
  return features.padded(np.arange(len(labels)), 1)[:, 0]


def features_from_arrays(
  features: Sequence[np.ndarray] | None, n: int, config: Config
) -> FeatureRows | None:
  """Makes FeatureRows from vectors that are in memory.

  Args:
    features: vectors of each document, float [D] or [tokens, D]; None if
      documents have no vectors.
    n: int, number of documents.
    config: config of the run.

  Raises:
    ConfigError: the run reads no vectors.
    DataError: the length of `features` is not n, or an array has a wrong shape.
  """
  if features is None:
    return None
  check_reads_features(config)
  ids = [f'documents[{row}]' for row in range(n)]
  return FeatureRows.from_arrays(
    'features', ids, features, config.model.embedding.dim
  )


def check_reads_features(config: Config) -> None:
  """Checks that a run reads vectors of an outside encoder.

  Raises:
    ConfigError: the run reads words.
  """
  if not config.data.tokens.dense:
    raise ConfigError(
      'this run reads the words of documents; do not give it features'
    )


def document_features(
  documents: Sequence[Document], features: FeatureRows | None, config: Config
) -> FeatureRows:
  """Returns the vectors of the documents whose labels are predicted.

  Args:
    documents: N documents.
    features: vectors of the N documents. None is allowed only if training has
      computed vectors from words; they are then computed here too.
    config: config of the run.

  Raises:
    ConfigError: vectors have another size than the model's, or are missing
      and cannot be computed.
  """
  if features is None:
    if has_feature_files(config.data):
      raise ConfigError(_NEEDS_FEATURES)
    ids = [document.id for document in documents]
    return _features_of_words(ids, documents, config)
  _check_size(features, config)
  return features.first(config.data.tokens.max_tokens)


def _features_of_words(
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


@dataclasses.dataclass(frozen=True, eq=False)
class Inputs:
  """Turns documents into batches of word ids, or of features.

  Attributes:
    config: config of the run.
    vocab: vocabulary of words, or tokenizer of a pretrained encoder; None if
      documents are given as features.
    share: the rows of a batch that this process reads. These rows are divided
      among the devices along the data axis. Two documents can be packed into
      one row only if both are for the same device.
  """

  config: Config
  vocab: Vocabulary | Subwords | None
  share: Share = WHOLE

  @property
  def vocab_size(self) -> int:
    """Returns the number of token ids, including the ids of special tokens.

    Returns 0 if documents are given as features.
    """
    return 0 if self.vocab is None else len(self.vocab)

  def train_batches(
    self,
    split: Split,
    n_labels: int,
    shortlists: TrainShortlists | None = None,
  ) -> TrainBatches:
    """Returns shuffled batches for training, with the rows of this process.

    Args:
      split: training split.
      n_labels: int; gold labels with an index of n_labels or more are left out.
      shortlists: makes the shortlists of the documents; None if training scores
        all labels.
    """
    config = self.config
    return TrainBatches(
      self._tokens(split),
      split.gold.keep(split.gold.values < n_labels),
      batch_size=config.train.batch_size,
      buckets=config.data.tokens.buckets,
      seed=config.seed,
      share=self.share,
      workers=config.data.workers,
      padding=self._padding,
      packing=self._packing(config.train.accumulate),
      shortlists=shortlists,
    )

  def split_batches(self, split: Split) -> EvalBatches:
    """Returns batches for judging a split; each document occurs once."""
    rows = self._rows(len(split), _FEW_ROWS)
    return self._once(self._tokens(split), split.gold, rows)

  def text_batches(
    self,
    documents: Sequence[str | Document],
    features: FeatureRows | None = None,
  ) -> EvalBatches:
    """Returns batches for predicting labels; each text occurs once.

    Args:
      documents: texts, or documents whose zones are read as in training.
      features: vectors of the documents, if the run reads vectors.

    Raises:
      ConfigError: features are missing, or have another size; or the documents
        are SparseDocuments.
    """
    if isinstance(documents, SparseDocuments):
      raise ConfigError(READS_TEXT)
    tokens = self._texts(documents, features)
    no_gold = Ragged.of([()] * len(documents))
    return self._once(tokens, no_gold, self._rows(len(documents)))

  def token_batches(self, documents: Sequence[str | Document]) -> EvalBatches:
    """Returns batches of texts for this run's own encoder; see text_batches."""
    return Inputs.text_batches(self, documents)

  def _rows(self, n_documents: int, few: int = 1) -> int:
    """Returns the number of rows of a batch for judging or predicting.

    Args:
      n_documents: number of documents.
      few: batches of at most this size are not made smaller.
    """
    sizes = self._sizes()
    enough = [size for size in sizes if size >= n_documents] or sizes[:1]
    return next((size for size in enough if size <= few), enough[-1])

  def _sizes(self) -> list[int]:
    """Returns the sizes of batches for judging or predicting, descending.

    A few documents need no full batch. The batch size is halved, not reduced to
    the number of documents, so that few shapes occur and few programs are
    compiled.
    """
    sizes = [self.config.eval.batch_size]
    while sizes[-1] % (2 * self.share.of) == 0:
      sizes.append(sizes[-1] // 2)
    return sizes

  def example_batches(self) -> Iterator[Batch]:
    """Yields a batch of every shape that text_batches can have.

    If zones are kept apart, the batches have only one zone, because the number
    of zones of later documents is not known.
    """
    for rows in self._sizes():
      for lengths in self._example_lengths(rows):
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        tokens = Ragged(indptr, np.full(indptr[-1], UNKNOWN_ID, np.int32))
        documents = self._split_zones(tokens)
        if self.vocab is None:
          size = self.config.model.embedding.dim
          vectors = [np.zeros((n, size), np.float32) for n in lengths]
          ids = [str(row) for row in range(rows)]
          documents = FeatureRows.from_arrays('examples', ids, vectors, size)
        yield from self._once(documents, Ragged.of([()] * rows), rows)

  def _example_lengths(self, rows: int) -> Iterator[np.ndarray]:
    """Yields int64 [rows], lengths of documents, for every shape of a batch."""
    packing, buckets = self._packing(), self.config.data.tokens.buckets
    if packing is None:
      yield from (np.full(rows, width) for width in buckets)
      return
    # Documents that are longer than half of a row cannot share a row.
    long = buckets[-1] // 2 + 1
    each = rows // self.share.of
    for n_long in possible_rows(each):
      yield np.tile(np.where(np.arange(each) < n_long, long, 1), self.share.of)

  def document(self, document: str | Document) -> Document:
    """Returns a document with only the zones that the run reads."""
    return read_zones(document, self.config.data)

  def words(self, document: str | Document) -> list[WordPlace]:
    """Returns the words of a document that the run reads, in reading order.

    Item t of the list is token t of the document in a batch. If the run reads
    subwords, an item may be a piece of a word.
    """
    zones, longest = self.document(document), self.config.data.tokens.max_tokens
    if isinstance(self.vocab, Subwords):
      return document_subwords(zones, self.vocab, longest)
    return document_words(zones)[:longest]

  def _texts(
    self, documents: Sequence[str | Document], features: FeatureRows | None
  ) -> Documents:
    data = self.config.data
    read = (read_zones(document, data) for document in documents)
    if self.vocab is None:
      return document_features(list(read), features, self.config)
    tokens = data.tokens
    return self._split_zones(
      encode(read, self.vocab, tokens.max_tokens, self._by_zone)
    )

  def _tokens(self, split: Split) -> Documents:
    if self.vocab is None:
      return split_features(split, self.config)
    data = self.config.data
    return self._split_zones(
      tokenise(
        split,
        self.vocab,
        data.tokens.max_tokens,
        default_cache_dir(data),
        self._by_zone,
      )
    )

  @property
  def _by_zone(self) -> bool:
    return self.config.data.tokens.by_zone

  def _split_zones(self, tokens: Ragged) -> Ragged | Zones:
    return Zones.of(tokens) if self._by_zone else tokens

  @property
  def _padding(self) -> int:
    return PAD_ID if self.vocab is None else self.vocab.pad_id

  def _packing(self, accumulate: int = 1) -> Packing | None:
    tokens = self.config.data.tokens
    return Packing(self.share.of, accumulate) if tokens.packed else None

  def _once(self, tokens: Documents, gold: Ragged, rows: int) -> EvalBatches:
    return eval_batches(
      tokens,
      gold,
      batch_size=rows,
      buckets=self.config.data.tokens.buckets,
      share=self.share,
      padding=self._padding,
      packing=self._packing(),
    )


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


def read_zones(document: str | Document, data: DataConfig) -> Document:
  """Returns a document with only the zones that a run reads.

  A text becomes a document with one zone. A document that has none of the zones
  in the config keeps all its zones.
  """
  if isinstance(document, str):
    return Document('', {'text': document})
  return model_view(data, document)
