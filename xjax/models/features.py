"""Turns documents into sparse features, for models that read them."""

import abc
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import itertools
import pathlib

from jaxtyping import Float32
import numpy as np
from scipy import sparse

from xjax.core.errors import ConfigError, DataError
from xjax.core.progress import Progress, progress
from xjax.core.ranking import Lists, Query
from xjax.data.documents import Documents, SparseDocuments
from xjax.data.files.faults import plural
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.formats.data_config import DataConfig
from xjax.data.load import read_zones
from xjax.data.quality import check_train_labels
from xjax.data.schema import Corpus, Document, Split
from xjax.data.text.dates import days_of
from xjax.data.text.tfidf import Tfidf, frequent_ngrams
from xjax.data.text.words import TextFeatures, WordPlace, WordShares
from xjax.data.tokens_config import (
  GivenFeaturesConfig,
  TextVectorsConfig,
  TfidfConfig,
)
from xjax.models.contract import Model, Run
from xjax.models.explanations import BEYOND, LabelExplanations
from xjax.models.scorer import Scorer, rank_blocks

GIVE_ENCODER = (
  'give a pretrained encoder: a folder in the form of Hugging Face '
  '(config.json, model.safetensors and the tokenizer), or the name of a model '
  'in the local Hugging Face cache'
)
# Files of features of texts, which do not depend on labels.
FEATURE_FILES = 'features/tfidf.npz', 'features/text_vectors.npz'
_FIRST = 100  # training documents that mostly show that TF-IDF has n-grams
_CHUNK = 512  # documents whose features are computed at a time


class Featuriser(abc.ABC):
  """Turns documents into sparse features."""

  n_features: int  # D
  unexplained: str = ''  # why words cannot explain the features; '' if they can

  @abc.abstractmethod
  def __call__(self, documents: Documents) -> sparse.csr_array:
    """Returns the features of N documents, float32 [N, D]."""

  def in_chunks(
    self, documents: Documents | Sequence[str | Document], title: str
  ) -> sparse.csr_array:
    """Returns the features of many documents, and shows the progress."""
    documents, parts = Documents.of(documents), []
    with Progress(title, len(documents)) as shown:
      # No documents still make one chunk, which gives the matrix its width.
      for start in range(0, max(1, len(documents)), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(documents)))
        parts.append(self(documents.part(rows)))
        shown.update(len(rows))
    return sparse.vstack(parts, format='csr')

  @abc.abstractmethod
  def example(self) -> Documents:
    """Returns a document that can be read, for compiling programs."""

  def warmup(self) -> None:
    """Compiles the programs that compute features; by default, none."""
    return

  @property
  def stages(self) -> 'dict[str, Scorer]':
    """Returns the models that compute features, by the name of their stage."""
    return {}


@dataclasses.dataclass
class FeaturesModel(Model, abstract=True):
  """Scores labels by sparse features of documents."""

  reads = (TfidfConfig, GivenFeaturesConfig, TextVectorsConfig)
  label_independent_files = FEATURE_FILES
  has_features = True

  def check(self, corpus: Corpus, run: Run) -> None:
    super().check(corpus, run)
    check_features(corpus, run)
    check_train_labels(corpus)


def check_sizes(
  path: pathlib.Path, own: Mapping[str, int], run: Mapping[str, int]
) -> None:
  """Raises a DataError if a file has other sizes, by noun, than its run."""
  if own != run:
    own, run = (
      ' and '.join(plural(sizes[noun], noun) for noun in sizes)
      for sizes in (own, run)
    )
    raise DataError(
      f'{path}: has {own}, but the run has {run}; is this a file of another '
      'run?'
    )


class FeatureScorer(Scorer):
  """Ranks labels by the sparse features of documents, block by block."""

  def __init__(self, featuriser: Featuriser, block: int):
    self.featuriser, self.block = featuriser, block
    self.unexplained = featuriser.unexplained

  @property
  def stages(self) -> dict[str, Scorer]:
    return self.featuriser.stages

  def rank(self, documents: Documents, query: Query) -> Lists:
    query = query.for_labels(self.n_labels)
    return rank_blocks(documents, query, self.block, self.rank_block)

  @abc.abstractmethod
  def rank_block(self, documents: Documents, query: Query) -> Lists:
    """Returns the lists of some documents; see Scorer.rank."""

  @abc.abstractmethod
  def feature_weights(
    self, features: np.ndarray, labels: np.ndarray
  ) -> np.ndarray:
    """Returns what features add to the scores of labels, for `explain`.

    Features, int [D], are columns; labels, int [K], end with PAD. The result is
    float64 [D, K], what one unit of a feature's value adds, and 0 for PAD.
    """

  def explain(
    self, documents: Documents, ids_NK: np.ndarray, words: int, n_first: int = 0
  ) -> LabelExplanations:
    """Computes how much each word of a document adds to the scores of labels.

    The contribution of a word to a label is the sum over all features of the
    word's share of the feature's value, times the weight of the feature in the
    label. So all contributions and the bias of a one-vs-all classifier add up
    to the label's score before calibration. For label trees, see
    TreeSearch.feature_weights.

    A word that occurs several times is listed once, at its first place, with
    the sum of its contributions. Only words with a sum above 0 are listed.
    """
    if self.unexplained:
      raise ConfigError(self.unexplained)
    lists, first = [], []
    shares = map(self.featuriser.word_shares, documents)
    with progress(shares, 'explaining', total=len(ids_NK)) as shown:
      for ids_K, document in zip(ids_NK, shown, strict=True):
        # Only the features of this document are looked up, since a matrix of
        # all features and labels would not fit into memory.
        weights_DK = self.feature_weights(document.features, ids_K)
        contributions_KT = document.contributions(weights_DK)
        lists.append(_largest(contributions_KT, document.terms, words))
        if len(first) < n_first:
          first.append(contributions_KT.astype(np.float32))
    # Documents list different numbers of words, so the arrays are made last.
    widest = max((len(at_W) for row in lists for at_W, _ in row), default=0)
    at_NKW = np.full((*ids_NK.shape, widest), BEYOND, np.int32)
    weights_NKW = np.zeros(at_NKW.shape, np.float32)
    for at_KW, weights_KW, row in zip(at_NKW, weights_NKW, lists, strict=True):
      for number, (at_W, weights_W) in enumerate(row):
        at_KW[number, : len(at_W)] = at_W
        weights_KW[number, : len(at_W)] = weights_W
    return LabelExplanations(
      documents, self.featuriser, at_NKW, weights_NKW, words, first
    )

  def warmup(self, query: Query, explain: bool = False) -> None:
    del explain
    self.featuriser.warmup()
    self.rank(self.featuriser.example(), query)


def _largest(
  contributions_KT: np.ndarray, terms: Sequence[str], words: int
) -> list[tuple[np.ndarray, np.ndarray]]:
  """Returns first places and sums of at most `words` terms for each label."""
  # The first place of each term. reversed() lets earlier places win.
  place_of = dict(zip(reversed(terms), range(len(terms) - 1, -1, -1)))
  first_T = np.fromiter(map(place_of.__getitem__, terms), np.int64, len(terms))
  lists = []
  for contributions_T in contributions_KT:
    sums_T = np.bincount(first_T, contributions_T, len(terms))
    # The other places of a term have sum 0.
    at = np.flatnonzero(sums_T > 0)
    # The sort is stable, so that of equal words the earlier one comes first.
    at = at[np.argsort(-sums_T[at], kind='stable')[:words]]
    lists.append((at, sums_T[at]))
  return lists


@dataclasses.dataclass(frozen=True, eq=False)
class TextFeaturiser(Featuriser):
  """Computes features from the zones of documents that a run reads."""

  data: DataConfig
  featurise: TextFeatures

  @property
  def n_features(self) -> int:
    return self.featurise.n_features

  @property
  def unexplained(self) -> str:
    if isinstance(self.data.tokens, TextVectorsConfig):
      return (
        'labels cannot be explained: this run reads vectors of texts, not words'
      )
    return ''

  def __call__(self, documents: Documents) -> sparse.csr_array:
    if documents.sparse is not None:
      raise ConfigError('this run reads texts; do not give it features')
    if documents.vectors is not None:
      raise ConfigError(
        'this run reads the words of documents; do not give it features'
      )
    # Featurisers with equal digests share features of the same documents
    # (Documents.view). One without a digest, such as a matcher of names,
    # computes its own.
    digest = getattr(self.featurise, 'digest', None)
    if digest is None:
      return self._compute(documents)
    # Stages with the same featuriser may read other zones.
    key = digest, tuple(self.data.zones)
    return documents.view(key, self._compute)

  def _compute(self, documents: Documents) -> sparse.csr_array:
    if len(documents) > _CHUNK:
      # The chunks must not remember their features too, since the caller
      # remembers the whole.
      whole = dataclasses.replace(documents, memory=None)
      texts = TextFeaturiser(self.data, self.featurise)
      return texts.in_chunks(whole, 'features of documents')
    return self.featurise(
      [read_zones(document, self.data).text() for document in documents]
    )

  def example(self) -> Documents:
    return Documents([''])

  def warmup(self) -> None:
    if isinstance(self.data.tokens, TextVectorsConfig):
      self.featurise.warmup()

  def document(self, document: str | Document) -> Document:
    return read_zones(document, self.data)

  def days(self, documents: Documents) -> Float32[np.ndarray, ' N']:
    """Returns the dates of documents as numbers of days; NaN if unknown."""
    key = 'days', tuple(self.data.zones)
    return documents.view(key, self._days)

  def _days(self, documents: Documents) -> Float32[np.ndarray, ' N']:
    with progress(documents, 'dates of documents') as shown:
      return days_of(self.document(document).text() for document in shown)

  def words(self, document: str | Document) -> list[WordPlace]:
    return self.featurise.words(self.document(document))

  def word_shares(self, document: str | Document) -> WordShares:
    return self.featurise.word_shares(self.document(document))


@dataclasses.dataclass(frozen=True, eq=False)
class RowFeaturiser(Featuriser):
  """Reads the features that documents already have."""

  n_features: int
  unexplained = 'labels cannot be explained: this run reads features, not words'

  def __call__(self, documents: Documents) -> sparse.csr_array:
    if documents.sparse is None:
      raise ConfigError(
        'this run reads sparse features, not text; give it documents with '
        'features, in the format of its training files'
      )
    # Files may have more or fewer columns than the training files.
    return documents.sparse.with_width(self.n_features).rows

  def in_chunks(
    self, documents: Documents | Sequence[str | Document], title: str
  ) -> sparse.csr_array:
    del title
    return self(Documents.of(documents))  # without a copy

  def example(self) -> Documents:
    rows = sparse.csr_array((1, self.n_features), dtype=np.float32)
    return Documents(SparseDocuments('example', rows))


@dataclasses.dataclass(frozen=True, eq=False)
class DocumentTexts(Sequence):
  """Gives the texts of documents, which are read again at each access."""

  documents: Sequence[Document]

  def __len__(self) -> int:
    return len(self.documents)

  def __getitem__(self, row: int) -> str:
    # range checks the row, and counts negative rows from the end.
    return self.documents[range(len(self))[row]].text()


def features_file(run: Run) -> pathlib.Path:
  """Returns the file with what computes the features of texts."""
  if isinstance(run.config.data.tokens, TextVectorsConfig):
    return run.folder.text_vectors
  return run.folder.tfidf


def check_features(corpus: Corpus, run: Run) -> None:
  """Raises a ConfigError or DataError if features cannot be computed."""
  tokens = run.config.data.tokens
  if tokens.sparse or features_file(run).exists():
    return
  if isinstance(tokens, TfidfConfig):
    documents = corpus.splits[TRAIN].documents
    first = [
      document.text() for document in itertools.islice(documents, _FIRST)
    ]
    # An n-gram of the first texts is usable in all, unless there may be too
    # many of it. So seldom all texts are read twice.
    if tokens.max_share < 1 or not frequent_ngrams(first, tokens):
      Tfidf.fit(DocumentTexts(documents), tokens)
  elif tokens.folder:
    from xjax.models.text_vectors import check_folder  # loads JAX

    check_folder(tokens)
  elif not run.config.data.generated:
    raise ConfigError(f"config.data.tokens.folder='': {GIVE_ENCODER}")


def fit_featuriser(split: Split, run: Run) -> TextFeaturiser | RowFeaturiser:
  """Returns the featuriser of a new or resumed run, which is saved."""
  tokens, documents = run.config.data.tokens, split.documents
  if tokens.sparse:
    return RowFeaturiser(Documents.of(documents).sparse.n_features)
  texts, kind = DocumentTexts(documents), _kind_of_features(run)

  def build() -> Callable[[pathlib.Path], None]:
    return kind.fit(texts, tokens).save

  featurise = run.once(features_file(run), build, kind.load)
  return TextFeaturiser(run.config.data, featurise)


def _kind_of_features(run: Run) -> type[TextFeatures]:
  if isinstance(run.config.data.tokens, TextVectorsConfig):
    from xjax.models.text_vectors import TextVectors  # loads JAX

    return TextVectors
  return Tfidf


def open_featuriser(
  run: Run, n_features: int
) -> TextFeaturiser | RowFeaturiser:
  """Returns the featuriser of a fitted run, from the files of its workdir.

  Only documents that already have features need `n_features`.
  """
  if run.config.data.tokens.sparse:
    return RowFeaturiser(n_features)
  featurise = run.read(features_file(run), _kind_of_features(run).load)
  return TextFeaturiser(run.config.data, featurise)
