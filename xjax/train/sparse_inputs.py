"""From documents to batches of sparse features, and to rows to train on."""

import abc
from collections.abc import Callable, Sequence
import dataclasses

import numpy as np
from scipy import sparse

from xjax.config.run import Config
from xjax.core.errors import ConfigError
from xjax.core.progress import Progress
from xjax.core.share import own_share
from xjax.core.types import Ragged
from xjax.data.batches.feature_rows import FeatureRows
from xjax.data.batches.sparse import Features, SparseBatches, SparseDocuments
from xjax.data.config import TfidfConfig
from xjax.data.schema import Document, Split
from xjax.data.text.tfidf import Tfidf
from xjax.train.inputs import check_reads_features, read_zones

_CHUNK = 512  # documents whose features are made at a time

# SplitTexts -> their features, [N, D], columns ascending.
Featurise = Callable[[Sequence[str]], sparse.csr_array]


@dataclasses.dataclass(frozen=True, eq=False)
class SparseInputs(abc.ABC):
  """Turns documents into batches of sparse features.

  Attributes:
    config: of the run.
  """

  config: Config

  @abc.abstractmethod
  def features(self, documents: Sequence[str | Document]) -> Features:
    """What tells the features of these documents.

    Raises:
      ConfigError, DataError: the run cannot read them.
    """

  def split_batches(self, split: Split) -> SparseBatches:
    """Batches to judge a split by: every document once."""
    return self._once(self.features(split.documents), split.gold)

  def text_batches(
    self,
    documents: Sequence[str | Document],
    features: FeatureRows | None = None,
  ) -> SparseBatches:
    """Batches to predict for documents, every one once.

    Args:
      documents: as the run reads them: texts, or documents whose zones are cut
        as in training; or SparseDocuments.
      features: None; of other runs.

    Raises:
      ConfigError: features are given, or documents that the run cannot read.
      DataError: these have features beyond those of training.
    """
    if features is not None:
      check_reads_features(self.config)
    no_gold = Ragged.of([()] * len(documents))
    return self._once(self.features(documents), no_gold)

  def split_rows(self, split: Split) -> sparse.csr_array:
    """The features of all documents of a split, float32 [N, D]."""
    features, rows = self.features(split.documents), np.arange(len(split))
    title = f'features of {split.name}'
    with Progress(title, len(rows)) as shown:
      parts = []
      for start in range(0, max(1, len(rows)), _CHUNK):
        parts.append(features(rows[start : start + _CHUNK]))
        shown.update(parts[-1].shape[0])
    return sparse.vstack(parts, format='csr')

  def _once(self, features: Features, gold: Ragged) -> SparseBatches:
    return SparseBatches(
      features,
      gold,
      batch_size=self.config.eval.batch_size,
      share=own_share(),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class TextInputs(SparseInputs):
  """Features that are made of a document's text.

  Attributes:
    featurise: texts -> their features.
  """

  featurise: Featurise

  def features(self, documents: Sequence[str | Document]) -> Features:
    """Made of the zones of the run, as they are asked for."""
    data = self.config.data
    return lambda rows: self.featurise(
      [read_zones(documents[row], data).text() for row in rows.tolist()]
    )


@dataclasses.dataclass(frozen=True, eq=False)
class RowInputs(SparseInputs):
  """Features that documents come with.

  Attributes:
    n_features: D of the training split.
  """

  n_features: int

  def features(self, documents: Sequence[str | Document]) -> Features:
    """The rows of SparseDocuments.

    Raises:
      ConfigError: these are other documents.
      DataError: they have features beyond D.
    """
    return self._rows(documents).__getitem__

  def split_rows(self, split: Split) -> sparse.csr_array:
    """As SparseInputs, without a copy."""
    return self._rows(split.documents)

  def _rows(self, documents: Sequence[str | Document]) -> sparse.csr_array:
    if not isinstance(documents, SparseDocuments):
      raise ConfigError(
        'this run reads no text: give it the features of documents, as in the '
        'files it was trained on'
      )
    return documents.of_width(self.n_features).rows


def fit_inputs(split: Split, config: Config) -> TextInputs | RowInputs:
  """What reads documents as config.data.tokens says.

  Args:
    split: of training.
    config: of a run whose model reads sparse features.

  Raises:
    ConfigError: tokens are none of sparse features.
    DataError: no n-gram is left.
  """
  tokens = config.data.tokens
  if tokens.sparse:
    return RowInputs(config, split.documents.n_features)
  if not isinstance(tokens, TfidfConfig):
    raise ConfigError(
      f'config.data.tokens={type(tokens).__name__}(...): no sparse features'
    )
  return TextInputs(config, Tfidf.fit(SplitTexts(split.documents), tokens))


@dataclasses.dataclass(frozen=True, eq=False)
class SplitTexts(Sequence):
  """The texts of documents, read as they are asked for."""

  documents: Sequence[Document]

  def __len__(self) -> int:
    return len(self.documents)

  def __getitem__(self, row: int) -> str:
    return self.documents[range(len(self))[row]].text()
