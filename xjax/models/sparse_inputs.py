"""Turns documents into sparse features, in batches or in a single matrix."""

import abc
from collections.abc import Sequence
import dataclasses
import functools
import pathlib
from typing import ClassVar

import numpy as np
from scipy import sparse

from xjax.core.distributed import barrier, is_host0
from xjax.core.errors import ConfigError
from xjax.core.mesh_config import WHOLE, own_share
from xjax.core.progress import Progress
from xjax.core.types import Ragged
from xjax.data.config import TextVectorsConfig, TfidfConfig
from xjax.data.schema import Document, Split
from xjax.data.shared_documents import SharedDocuments
from xjax.data.sparse_documents import Features, SparseBatches, SparseDocuments
from xjax.data.text.tfidf import Tfidf
from xjax.data.text.word_shares import TextFeatures, WordShares
from xjax.data.text.words import WordPlace
from xjax.data.vectors.feature_rows import FeatureRows
from xjax.models.config import Config
from xjax.models.workdir import Workdir
from xjax.train.batches.inputs import (
  READS_TEXT,
  check_reads_features,
  read_zones,
)

GIVE_ENCODER = (
  'give a pretrained encoder: a folder in the form of Hugging Face '
  '(config.json, model.safetensors and the tokenizer), or the name of a model '
  'in the local Hugging Face cache'
)
_CHUNK = 512  # documents whose features are computed at a time


@dataclasses.dataclass(frozen=True, eq=False)
class SparseInputs(abc.ABC):
  """Turns documents into batches of sparse features.

  Attributes:
    reads_rows: whether documents must already have sparse features.
    config: config of the run.
  """

  reads_rows: ClassVar[bool] = False

  config: Config

  @abc.abstractmethod
  def features(self, documents: Sequence[str | Document]) -> Features:
    """Returns a function that computes the features of some of the documents.

    The function takes int [n], indices of `documents`, and returns the features
    of these documents, float32 [n, D].

    Raises:
      ConfigError, DataError: the run cannot read these documents.
    """

  def split_batches(self, split: Split) -> SparseBatches:
    """Returns batches for judging a split; each document occurs once."""
    return self._once(self.features(split.documents), split.gold)

  def text_batches(
    self,
    documents: Sequence[str | Document],
    features: FeatureRows | None = None,
  ) -> SparseBatches:
    """Returns batches for predicting labels; each document occurs once.

    Args:
      documents: texts, or documents whose zones are read as in training. A run
        whose corpus holds sparse features instead of text needs
        SparseDocuments.
      features: must be None. Only runs that read vectors use this argument.

    Raises:
      ConfigError: features is not None, or the run cannot read the documents.
      DataError: documents have features that training did not have.
    """
    if features is not None:
      check_reads_features(self.config)
    if isinstance(documents, SparseDocuments) and not self.reads_rows:
      raise ConfigError(READS_TEXT)
    no_gold = Ragged.of([()] * len(documents))
    return self._once(self.features(documents), no_gold)

  def split_rows(self, split: Split) -> sparse.csr_array:
    """Computes the features of all documents of a split, float32 [N, D]."""
    features = self.features(split.documents)
    return _in_chunks(features, len(split), f'features of {split.name}')

  def warmup(self) -> None:
    """Compiles the programs that compute features; by default, none."""
    return

  def _once(self, features: Features, gold: Ragged) -> SparseBatches:
    share, size = own_share(), self.config.eval.batch_size
    if share == WHOLE:  # few documents need no rows that only fill a batch
      size = max(1, min(size, len(gold)))
    return SparseBatches(features, gold, batch_size=size, share=share)


def _in_chunks(features: Features, n: int, title: str) -> sparse.csr_array:
  """Computes the features of documents 0 to n - 1, and shows the progress."""
  rows, parts = np.arange(n), []
  with Progress(title, n) as shown:
    for start in range(0, max(1, n), _CHUNK):
      parts.append(features(rows[start : start + _CHUNK]))
      shown.update(parts[-1].shape[0])
  return sparse.vstack(parts, format='csr')


@dataclasses.dataclass(frozen=True, eq=False)
class TextInputs(SparseInputs):
  """Computes features from the texts of documents.

  Attributes:
    featurise: function that computes the features of texts.
  """

  featurise: TextFeatures

  @property
  def n_features(self) -> int:
    """Returns the number of features of a document."""
    return self.featurise.n_features

  def features(self, documents: Sequence[str | Document]) -> Features:
    """Returns a function that computes features of some of the documents.

    The features are computed from the zones that the run reads. Models that
    share documents compute equal features once.
    """
    digest = getattr(self.featurise, 'digest', None)
    if isinstance(documents, SharedDocuments) and digest:
      key = digest, tuple(self.config.data.zones)
      return documents.features(key, self._all_features).__getitem__
    return functools.partial(self._features, documents)

  def _features(
    self, documents: Sequence[str | Document], rows: np.ndarray
  ) -> sparse.csr_array:
    data = self.config.data
    return self.featurise(
      [read_zones(documents[row], data).text() for row in rows.tolist()]
    )

  def _all_features(
    self, documents: Sequence[str | Document]
  ) -> sparse.csr_array:
    features = functools.partial(self._features, documents)
    if len(documents) <= _CHUNK:  # a batch, whose progress its reader shows
      return features(np.arange(len(documents)))
    return _in_chunks(features, len(documents), 'features of documents')

  def warmup(self) -> None:
    """Compiles the programs that compute features, if there are any."""
    if isinstance(self.config.data.tokens, TextVectorsConfig):
      self.featurise.warmup()

  def document(self, document: str | Document) -> Document:
    """Returns a document with only the zones that the run reads."""
    return read_zones(document, self.config.data)

  def words(self, document: str | Document) -> list[WordPlace]:
    """Returns the words of a document that the run reads, in reading order."""
    return self.featurise.words(self.document(document))

  def word_shares(self, document: str | Document) -> WordShares:
    """Divides the features of a document among the words of the document."""
    return self.featurise.word_shares(self.document(document))


@dataclasses.dataclass(frozen=True, eq=False)
class RowInputs(SparseInputs):
  """Reads the features that documents already have.

  Attributes:
    n_features: int, number D of features in the training split.
  """

  reads_rows = True

  n_features: int

  def features(self, documents: Sequence[str | Document]) -> Features:
    """Returns a function that looks up the features of some of the documents.

    Raises:
      ConfigError: the documents are not SparseDocuments.
      DataError: the documents have features that training did not have.
    """
    return self._rows(documents).__getitem__

  def split_rows(self, split: Split) -> sparse.csr_array:
    """Returns the features of all documents of a split, without a copy."""
    return self._rows(split.documents)

  def _rows(self, documents: Sequence[str | Document]) -> sparse.csr_array:
    if not isinstance(documents, SparseDocuments):
      raise ConfigError(
        'this run reads sparse features, not text; give it documents with '
        'features, in the format of its training files'
      )
    return documents.with_width(self.n_features).rows


def fit_inputs(split: Split, config: Config) -> TextInputs | RowInputs:
  """Returns the inputs of a new run, fitted to its training split.

  Args:
    split: training split.
    config: config of a run whose model reads sparse features.

  Raises:
    ConfigError: config.data.tokens does not give sparse features.
    DataError: no n-gram is left after min_count and max_share of
      config.data.tokens.
  """
  tokens, documents = config.data.tokens, split.documents
  if tokens.sparse:
    return RowInputs(config, documents.n_features)
  if isinstance(tokens, TextVectorsConfig):
    from xjax.models.text_vectors import TextVectors  # loads JAX

    vectors = TextVectors.fit(tokens, SplitTexts(documents))
    return TextInputs(config, vectors)
  if not isinstance(tokens, TfidfConfig):
    raise ConfigError(
      f'config.data.tokens={type(tokens).__name__}(...): does not give the '
      'features that this model reads; TfidfConfig does'
    )
  return TextInputs(config, Tfidf.fit(SplitTexts(documents), tokens))


def features_file(config: Config, folder: Workdir) -> pathlib.Path:
  """Returns the file with what computes the features of texts."""
  if isinstance(config.data.tokens, TextVectorsConfig):
    return folder.text_vectors
  return folder.tfidf


def check_features(config: Config, folder: Workdir) -> None:
  """Checks that the features of a new or resumed run can be computed.

  Raises:
    ConfigError, DataError: the encoder that computes vectors of texts is
      missing or has a fault.
  """
  tokens = config.data.tokens
  if not isinstance(tokens, TextVectorsConfig):
    return
  if features_file(config, folder).exists():
    return
  if tokens.folder:
    from xjax.models.text_vectors import check_folder  # loads JAX

    check_folder(tokens)
  elif not config.data.generated:
    raise ConfigError(f"config.data.tokens.folder='': {GIVE_ENCODER}")


def kept_inputs(
  split: Split, config: Config, folder: Workdir
) -> TextInputs | RowInputs:
  """Returns the inputs of a new or resumed run, which are saved.

  Args:
    split: training split.
    config: config of a run whose model reads sparse features.
    folder: workdir of the run.

  Raises:
    As fit_inputs and saved_inputs.
  """
  path = features_file(config, folder)
  if path.exists():
    return saved_inputs(config, folder, 0)
  inputs = fit_inputs(split, config)
  if isinstance(inputs, TextInputs) and is_host0():
    with folder.recording(path):
      inputs.featurise.save(path)
  barrier('xjax:features')
  return inputs


def saved_inputs(
  config: Config, folder: Workdir, n_features: int
) -> TextInputs | RowInputs:
  """Returns the inputs of a run, from the files of its workdir.

  Args:
    config: config of the run.
    folder: workdir of the run.
    n_features: number of features, if documents already have features.

  Raises:
    DataError: a file is missing or damaged.
  """
  if config.data.tokens.sparse:
    return RowInputs(config, n_features)
  path = features_file(config, folder)
  if isinstance(config.data.tokens, TextVectorsConfig):
    from xjax.models.text_vectors import TextVectors  # loads JAX

    features = TextVectors.load(path)
  else:
    features = Tfidf.load(path)
  folder.check(path)
  return TextInputs(config, features)


@dataclasses.dataclass(frozen=True, eq=False)
class SplitTexts(Sequence):
  """Gives the texts of documents, which are read again at each access."""

  documents: Sequence[Document]

  def __len__(self) -> int:
    return len(self.documents)

  def __getitem__(self, row: int) -> str:
    return self.documents[range(len(self))[row]].text()
