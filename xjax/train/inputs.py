"""From documents to batches, as one run reads them."""

from collections.abc import Iterable, Sequence
import dataclasses
import os

import numpy as np

from xjax.config.run import Config
from xjax.core.errors import ConfigError, DataError
from xjax.core.progress import progress
from xjax.core.share import WHOLE, Share
from xjax.core.types import Ragged
from xjax.data.batches.dense import (
  Documents,
  EvalBatches,
  TrainBatches,
  eval_batches,
)
from xjax.data.batches.feature_files import (
  features_folder,
  in_files,
  read_features,
  word_features,
)
from xjax.data.batches.feature_rows import FeatureRows
from xjax.data.batches.packing import Packing
from xjax.data.batches.zones import Zones
from xjax.data.formats.contract import DataConfig
from xjax.data.load import model_view
from xjax.data.schema import Corpus, Document, Label, Split
from xjax.data.text.subwords import Subwords, document_subwords
from xjax.data.text.token_cache import default_cache_dir, encode, tokenise
from xjax.data.text.words import PAD_ID, Vocabulary, WordPlace, document_words

_GIVE = (
  'this run reads vectors of an outside encoder: give those of the documents '
  'as --features=STEM (STEM.npy and STEM.ids.txt), from Python as features'
)


def check_features(corpus: Corpus, config: Config) -> None:
  """Refuses vectors of another size than the model's, or none of its labels.

  Raises:
    ConfigError: with both sizes.
    DataError: as label_features.
  """
  if not config.data.tokens.dense:
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


def features_from_arrays(
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
  if not config.data.tokens.dense:
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


@dataclasses.dataclass(frozen=True, eq=False)
class Inputs:
  """Turns documents into batches of word ids, or of features.

  Attributes:
    config: of the run.
    vocab: numbers the words, or cuts texts into the pieces that a pretrained
      encoder reads; None where documents come as features.
    share: of this process, in parts for the devices along the data axis;
      documents share rows within one.
  """

  config: Config
  vocab: Vocabulary | Subwords | None
  share: Share = WHOLE

  @property
  def vocab_size(self) -> int:
    """Token ids, padding and unknown included; 0 where there are none."""
    return 0 if self.vocab is None else len(self.vocab)

  def train_batches(self, split: Split, n_labels: int) -> TrainBatches:
    """Shuffled batches of this process's rows; gold from n_labels on goes."""
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
    )

  def split_batches(self, split: Split) -> EvalBatches:
    """Batches to judge a split by: every document once."""
    rows = self.config.eval.batch_size
    return self._once(self._tokens(split), split.gold, rows)

  def text_batches(
    self,
    documents: Sequence[str | Document],
    features: FeatureRows | None = None,
  ) -> EvalBatches:
    """Batches to predict for texts, every one once.

    Args:
      documents: texts, or documents whose zones are cut as in training.
      features: of the documents, where the run reads such.

    Raises:
      ConfigError: features are missing, or of another size.
    """
    tokens = self._texts(documents, features)
    no_gold = Ragged.of([()] * len(documents))
    rows = self.config.eval.batch_size
    # A few texts need no full batch; halving keeps the shapes few.
    while rows % (2 * self.share.of) == 0 and rows // 2 >= len(documents):
      rows //= 2
    return self._once(tokens, no_gold, rows)

  def document(self, document: str | Document) -> Document:
    """What is read of a text or a document: the zones of the run."""
    return read_zones(document, self.config.data)

  def words(self, document: str | Document) -> list[WordPlace]:
    """The words that are read of it, where they are read one after the other.

    Word t is what a batch has as token t; of subwords, it may be a piece.
    """
    read, longest = self.document(document), self.config.data.tokens.max_tokens
    if isinstance(self.vocab, Subwords):
      return document_subwords(read, self.vocab, longest)
    return document_words(read)[:longest]

  def _texts(
    self, documents: Sequence[str | Document], features: FeatureRows | None
  ) -> Documents:
    data = self.config.data
    found = (read_zones(document, data) for document in documents)
    if self.vocab is None:
      return document_features(list(found), features, self.config)
    tokens = data.tokens
    return self._apart(
      encode(found, self.vocab, tokens.max_tokens, self._by_zone)
    )

  def _tokens(self, split: Split) -> Documents:
    if self.vocab is None:
      return split_features(split, self.config)
    data = self.config.data
    return self._apart(
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

  def _apart(self, tokens: Ragged) -> Ragged | Zones:
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
  """The vocabulary of a training split."""
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
  """What is read of a text or a document: the zones of a run."""
  if isinstance(document, str):
    return Document('', {'text': document})
  return model_view(data, document)
