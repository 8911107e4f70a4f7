"""Scores labels by the training documents with the same facts."""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import pathlib

from jaxtyping import Float32, Float64
import numpy as np
from scipy import sparse

from xjax.core.config_part import POSITIVE, field
from xjax.core.errors import ConfigError, DataError
from xjax.core.ranking import Lists, Query, lists_of
from xjax.data.documents import Documents
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.quality import check_train_labels
from xjax.data.schema import Corpus, Document
from xjax.data.text.dates import days_of, is_date
from xjax.data.tokens_config import TfidfConfig
from xjax.models.contract import Run
from xjax.models.features import (
  FeaturesModel,
  TextFeaturiser,
  check_features,
  fit_featuriser,
  open_featuriser,
)
from xjax.models.lookup.exact_match import LabelScoreScorer
from xjax.models.lookup.neighbours_model import VotingDocuments, details_of
from xjax.models.scorer import cannot_add

_ASSIGNED_ABOVE = 0.5  # more than half of the documents
# What a stack also sees of a label: the log of its share, divided by its share
# in all documents; the log of how many documents have it and one of the values.
_DETAILS = 'ratio', 'documents'


class ValuesScorer(LabelScoreScorer):
  """Ranks labels by their shares among documents with the same values."""

  fixed_labels = cannot_add('ValuesModel')

  def __init__(
    self,
    trained: VotingDocuments,
    featuriser: TextFeaturiser,
    smoothing: float,
    block: int,
  ):
    super().__init__(featuriser, _ASSIGNED_ABOVE, block)
    self.n_labels, self.trained = trained.n_labels, trained
    self._zones = tuple(featuriser.data.zones)
    self.unexplained = 'labels of a ValuesModel cannot be explained by words'
    gold, n = trained.gold, len(trained.gold)
    ones = np.ones(len(gold.values))
    labels = sparse.csr_array(
      (ones, gold.values, gold.indptr), (n, self.n_labels)
    )
    values = _ones(trained.rows)
    self._uses = sparse.csr_array(values.T @ labels)  # [values, L]
    self._weights_V = 1 / (values.sum(axis=0) + smoothing)
    # Smoothed, since a label that no document of a fold has must not have 0.
    counts_L = np.bincount(gold.values, minlength=self.n_labels)
    self._usual_L, self._smoothing = (counts_L + 0.5) / (n + 1), smoothing

  def rank_block(self, documents: Documents, query: Query) -> Lists:
    rows = _ones(self.featuriser(self._facts(documents)))
    shares, usual_X = self._shares(rows)
    lists = lists_of(shares.astype(np.float32), query)
    if not query.details:
      return lists
    hits = sparse.csr_array(rows @ self._uses)
    hits.sort_indices()  # the same cells as those of shares
    details_XD = np.full((shares.nnz + 1, 2), np.nan, np.float32)
    details_XD[:-1, 0] = np.log(shares.data / usual_X)
    details_XD[:-1, 1] = np.log1p(hits.data)
    document = np.repeat(np.arange(len(documents)), np.diff(shares.indptr))
    cells = document * np.int64(self.n_labels) + shares.indices
    details = details_of(lists.ids_GNK, cells, details_XD, self.n_labels)
    return dataclasses.replace(lists, details_GNKD=details)

  def _shares(
    self, rows: sparse.csr_array
  ) -> tuple[sparse.csr_array, Float64[np.ndarray, ' X']]:
    """Returns smoothed shares, float64 [B, L], and the usual ones of its cells.

    Only labels that some document with one of the values has are there. The
    share of several values is the mean of theirs.
    """
    mean = sparse.diags_array(1 / np.maximum(rows.sum(axis=1), 1)) @ rows
    weights = sparse.csr_array(mean @ sparse.diags_array(self._weights_V))
    shares = sparse.csr_array(weights @ self._uses)
    shares.sort_indices()
    usual_X = self._usual_L[shares.indices]
    # The documents that smoothing adds to a value have the usual shares.
    added_B = self._smoothing * weights.sum(axis=1)
    shares.data += np.repeat(added_B, np.diff(shares.indptr)) * usual_X
    return shares, usual_X

  def days(self, documents: Documents) -> Float32[np.ndarray, ' N']:
    """Returns the dates among the facts, as numbers of days; else NaN."""
    return _days(self._facts(documents))

  def _facts(self, documents: Documents) -> Documents:
    """Shows documents without their texts, also those that have no facts."""
    show = functools.partial(_only, self._zones)
    return documents.seen_as(show, ('facts', self._zones))


@dataclasses.dataclass
class ValuesModel(FeaturesModel):
  """Scores labels by their shares among documents with the same facts.

  The score of a label is its share among the training documents that have a
  value, such as an author; the mean of several values. Shares of few documents
  are drawn towards the share among all (additive smoothing).
  """

  reads = (TfidfConfig,)
  detail_names = _DETAILS
  knows_dates = True

  smoothing: float = field(
    20.0,
    'Number of documents with the usual shares of labels that are added to '
    'those of each value.',
    POSITIVE,
  )

  def check(self, corpus: Corpus, run: Run) -> None:
    check_train_labels(corpus)
    zones = run.config.data.zones
    if not zones:
      raise ConfigError('config.data.zones=(): name the zones with values')
    try:
      check_features(corpus, run)
    except DataError as error:
      raise DataError(
        f'no value of {", ".join(zones)} is in two training documents'
      ) from error

  def fit(self, corpus: Corpus, run: Run) -> None:
    split = corpus.splits[TRAIN]

    def build() -> Callable[[pathlib.Path], None]:
      documents = Documents.of(split.documents)
      featuriser = fit_featuriser(split, run)
      rows = featuriser.in_chunks(documents, f'values of {split.name}')
      gold, n_labels = corpus.trained_gold, corpus.label_space.n_trained
      days_N = _days(documents)
      return VotingDocuments(rows, gold, n_labels, days_N).save

    run.once(_file(run), build, lambda _: None)  # `open` reads the file

  def open(self, run: Run) -> ValuesScorer:
    trained = run.read(_file(run), VotingDocuments.load)
    featuriser = open_featuriser(run, trained.rows.shape[1])
    block = run.config.eval.batch_size
    return ValuesScorer(trained, featuriser, self.smoothing, block)


def _only(zones: Sequence[str], document: str | Document) -> Document:
  known = {} if isinstance(document, str) else document.zones
  return Document('', {zone: known.get(zone, '') for zone in zones})


def _days(documents: Documents) -> Float32[np.ndarray, ' N']:
  lines = (document.text().split('\n') for document in documents)
  return days_of('\n'.join(filter(is_date, x)) for x in lines)


def _ones(rows: sparse.csr_array) -> sparse.csr_array:
  parts = np.ones(rows.nnz), rows.indices, rows.indptr
  return sparse.csr_array(parts, rows.shape)


def _file(run: Run) -> pathlib.Path:
  return run.folder.model / 'values.npz'
