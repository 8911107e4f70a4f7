"""Scores labels by the votes of the nearest training documents (kNN)."""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import pathlib
from typing import Any, NamedTuple

from jaxtyping import Float32, Float64, Int32, Int64
import numpy as np
from scipy import sparse

from xjax.core.arrays import Arrays, matrix_arrays, rows_arrays
from xjax.core.atomic import write_npz
from xjax.core.config_part import AMOUNT, AT_LEAST_1, field
from xjax.core.progress import Progress
from xjax.core.ranking import Lists, Query, lists_of, places_of
from xjax.core.types import PAD, Ragged, offsets_of
from xjax.data.documents import Documents
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.schema import Corpus
from xjax.models.contract import Run
from xjax.models.features import (
  FeaturesModel,
  Featuriser,
  check_sizes,
  fit_featuriser,
  open_featuriser,
)
from xjax.models.lookup.exact_match import LabelScoreScorer
from xjax.models.lookup.neighbours import NearestDocuments
from xjax.models.scorer import cannot_add, rank_blocks

_ASSIGNED_ABOVE = 0.5  # more than half of the votes
_TWIN = 0.9  # the cosine from which a neighbour is nearly the same text
_FEW = 5  # the nearest neighbours
# What a stack sees of a label: the cosine of the nearest neighbour that has it;
# the place of this neighbour, counted down from 0; how many neighbours have it;
# how many of the nearest five; its share among those with a cosine from 0.9.
_DETAILS = 'cosine', 'first', 'hits', 'near hits', 'twins'
# In votes that fade with time, a vote counts exp(-1) after so many days.
_FADING = {'in a year': 365.25, 'in four years': 4 * 365.25}


class VotingDocuments(NamedTuple):
  """Holds the training documents that vote."""

  rows: sparse.csr_array  # float32 [N, D], their features
  gold: Ragged  # N rows of trained labels
  n_labels: int
  days_N: np.ndarray | None = None  # float32, their dates; NaN: unknown

  def save(self, path: pathlib.Path) -> None:
    arrays = {
      'features': np.int64(self.rows.shape[1]),
      'labels': np.int64(self.n_labels),
      **matrix_arrays('rows', self.rows),
      **rows_arrays('gold', self.gold),
    }
    if self.days_N is not None:
      arrays['days'] = self.days_N
    write_npz(path, arrays)

  @classmethod
  def load(cls, path: pathlib.Path) -> 'VotingDocuments':
    arrays = Arrays.read(path)
    n_features, n_labels = arrays.count('features'), arrays.count('labels')
    rows = arrays.matrix('rows', n_features)
    gold, days_N = arrays.rows('gold', n_labels), None
    if 'days' in arrays.left:
      days_N = arrays.take('days', np.float32, (len(gold),))
    arrays.finish()
    if rows.shape[0] != len(gold):
      arrays.fail('gold/indptr', f'should have {rows.shape[0] + 1} entries')
    return cls(rows, gold, n_labels, days_N)


class NeighboursScorer(LabelScoreScorer):
  """Ranks labels by the votes of training documents."""

  fixed_labels = cannot_add('NeighboursModel')

  def __init__(
    self,
    model: 'NeighboursModel',
    trained: VotingDocuments,
    featuriser: Featuriser,
    train_digest: str | None,
    *,
    block: int = 512,  # documents that are ranked at a time
    threads: int = 1,
  ):
    super().__init__(featuriser, _ASSIGNED_ABOVE, block)
    self.n_labels = trained.n_labels
    self.unexplained = self.unexplained or (
      'labels of a NeighboursModel cannot be explained by words: the labels of '
      'the nearest training documents decide'
    )
    self._model, self._train = model, (TRAIN, train_digest)
    self._documents = NearestDocuments(trained.rows, threads=threads)
    self.trained, gold = trained, trained.gold
    parts = np.ones(len(gold.values)), gold.values, gold.indptr
    self._labels = sparse.csr_array(parts, (len(gold), self.n_labels))

  def rank(self, documents: Documents, query: Query) -> Lists:
    query, split = query.for_labels(self.n_labels), documents.split
    # A training document is its own nearest neighbour, and would vote for its
    # gold labels. So none votes for itself. The digest decides, because another
    # corpus also has a split train.
    own = split is not None and (split.name, split.digest) == self._train

    def rank_block(block: Documents, query: Query) -> Lists:
      exclude = block.numbers if own else None
      rows, k = self.featuriser(block), self._model.neighbours
      ids_BK, sims_BK = self._documents.nearest(rows, k, exclude)
      weights_BK = self._weights(ids_BK, sims_BK)
      lists = lists_of(self._votes(ids_BK, weights_BK), query)
      if not query.details:
        return lists
      faded = self._faded(block, ids_BK, weights_BK)
      details = self._details(ids_BK, sims_BK, faded, lists.ids_GNK)
      return dataclasses.replace(lists, details_GNKD=details)

    return rank_blocks(documents, query, self.block, rank_block)

  def _weights(
    self, ids_BK: Int32[np.ndarray, 'B K'], sims_BK: Float32[np.ndarray, 'B K']
  ) -> Float64[np.ndarray, 'B K']:
    """Returns what the votes of neighbours count: similarity^power."""
    listed_BK = ids_BK != PAD
    # Similarities are divided by the largest one of the row, so that no power
    # makes all of them 0.
    sims_BK = np.where(listed_BK, sims_BK, 0).astype(np.float64)
    largest_B1 = sims_BK[:, :1]
    sims_BK /= np.where(largest_B1 > 0, largest_B1, 1)
    return np.where(listed_BK, sims_BK**self._model.power, 0)

  def _votes(
    self,
    ids_BK: Int32[np.ndarray, 'B K'],
    weights_BK: Float64[np.ndarray, 'B K'],
  ) -> sparse.csr_array:
    """Returns the votes, float32 [B, L] with ascending columns, all above 0.

    The vote for a label is the sum of the weights of the nearest documents that
    have the label, divided by the sum over all nearest documents. So votes are
    from 0 to 1.
    """
    listed_BK = ids_BK != PAD
    indptr = offsets_of(listed_BK.sum(axis=1))
    parts = weights_BK[listed_BK], ids_BK[listed_BK], indptr
    weights = sparse.csr_array(parts, (len(ids_BK), len(self.trained.gold)))
    votes = weights @ self._labels
    votes.data /= np.repeat(weights_BK.sum(axis=1), np.diff(votes.indptr))
    votes = votes.astype(np.float32)
    # Small votes are rounded to 0 in float32, and a label with the vote 0 must
    # not be listed.
    votes.eliminate_zeros()
    votes.sort_indices()
    return votes

  def days(self, documents: Documents) -> Float32[np.ndarray, ' N']:
    """Returns the dates of documents as numbers of days; NaN if unknown."""
    return self.featuriser.days(documents)

  def _faded(
    self,
    block: Documents,
    ids_BK: Int32[np.ndarray, 'B K'],
    weights_BK: Float64[np.ndarray, 'B K'],
  ) -> list[Float64[np.ndarray, 'B K']]:
    """Returns weights that fade with the time between documents."""
    if not self._model.dated:
      return []
    days_N = self.trained.days_N
    apart_BK = np.abs(self.days(block)[:, None] - days_N[ids_BK])
    # Without a date, votes do not fade. float64: over centuries, all weights of
    # float32 would be 0.
    apart_BK = np.nan_to_num(apart_BK.astype(np.float64))
    return [
      weights_BK * np.exp(-apart_BK / scale) for scale in _FADING.values()
    ]

  def _details(
    self,
    ids_BK: Int32[np.ndarray, 'B K'],
    sims_BK: Float32[np.ndarray, 'B K'],
    faded: Sequence[Float64[np.ndarray, 'B K']],
    listed_GBM: Int32[np.ndarray, 'G B M'],
  ) -> Float32[np.ndarray, 'G B M D']:
    """Returns the details (NeighboursModel.detail_names) of listed labels."""
    # Each label of each neighbour is an entry; the entries of a pair of a
    # document and a label are in the order of the neighbours, best first.
    owner, place = np.nonzero(ids_BK != PAD)
    labels = self.trained.gold.take(ids_BK[owner, place])
    entry = labels.owners
    cells = owner[entry] * np.int64(self.n_labels) + labels.values
    order = np.argsort(cells, kind='stable')
    cells, first, hits = np.unique(
      cells[order], return_index=True, return_counts=True
    )
    entry = entry[order]
    at = owner[entry], place[entry]
    place, sims = place[entry], sims_BK[at]
    twins_B = np.maximum((sims_BK >= _TWIN).sum(axis=1), 1)
    sums = functools.partial(np.add.reduceat, indices=first, dtype=np.float64)
    n_details = len(self._model.detail_names)
    details_XD = np.full((len(cells) + 1, n_details), np.nan, np.float32)
    if len(cells):
      columns = (
        sims[first],
        -place[first],
        hits,
        sums(place < _FEW),
        sums(sims >= _TWIN) / twins_B[cells // self.n_labels],
        *(
          sums(part_BK[at]) / part_BK.sum(axis=1)[cells // self.n_labels]
          for part_BK in faded
        ),
      )
      details_XD[:-1] = np.stack(columns, axis=1)
    return details_of(listed_GBM, cells, details_XD, self.n_labels)


def details_of(
  listed_GBM: Int32[np.ndarray, 'G B M'],
  cells: Int64[np.ndarray, ' X'],  # document * L + label, ascending
  details_XD: Float32[np.ndarray, 'X_and_1 D'],  # the last are NaN, of others
  n_labels: int,
) -> Float32[np.ndarray, 'G B M D']:
  """Looks up the details of listed labels."""
  n = listed_GBM.shape[1]
  rows = np.arange(n, dtype=np.int64)[:, None] * n_labels
  wanted_GBM = np.where(listed_GBM == PAD, PAD, rows + listed_GBM)
  return details_XD[places_of(cells, wanted_GBM)]


@dataclasses.dataclass
class NeighboursModel(FeaturesModel):
  """Scores labels by the votes of the most similar training documents (kNN).

  The similarity is the cosine of features: TF-IDF, features from files, or
  vectors of a pretrained encoder. A neighbour votes for all its
  labels. The score of a label is the sum of its votes over the sum of all
  votes of one label, which is from 0 to 1.
  """

  neighbours: int = field(
    30, 'Number of training documents that vote.', AT_LEAST_1
  )
  power: float = field(
    3.0,
    'A vote counts as the similarity to this power. With 0, all neighbours '
    'count equally.',
    AMOUNT,
  )
  dated: bool = field(
    False,
    'Whether a stack also sees votes that fade with the time between documents '
    '(to 37 % in a year, or in four). The date of a document is the first full '
    'date in its text (`2003-03-05`, `5 March 2003`, `March 5, 2003`), or else '
    'the first year.',
  )

  @property
  def detail_names(self) -> tuple[str, ...]:
    return (*_DETAILS, *(_FADING if self.dated else ()))

  @property
  def knows_dates(self) -> bool:
    return self.dated

  def token_faults(self, config: Any) -> Iterator[str]:
    yield from super().token_faults(config)
    if self.dated and config.data.tokens.sparse:
      yield (
        'config.model.dated=True: features have no text in which a date could '
        'be found; set dated=False'
      )

  def fit(self, corpus: Corpus, run: Run) -> None:
    split = corpus.splits[TRAIN]

    def build() -> Callable[[pathlib.Path], None]:
      documents = Documents.of(split.documents)
      featuriser = fit_featuriser(split, run)
      rows = featuriser.in_chunks(documents, f'features of {split.name}')
      n_labels = corpus.label_space.n_trained
      days_N = featuriser.days(documents) if self.dated else None
      gold = corpus.trained_gold
      return VotingDocuments(rows, gold, n_labels, days_N).save

    run.once(_file(run), build, lambda _: None)  # `open` reads the file

  def open(self, run: Run) -> NeighboursScorer:
    path, space = _file(run), run.label_space()
    with Progress('reading the training documents'):
      trained = run.read(path, VotingDocuments.load)
    n_documents, n_features = trained.rows.shape
    featuriser = open_featuriser(run, n_features)
    wanted = {
      'document': space.n_train,
      'feature': featuriser.n_features,
      'label': space.n_trained,
    }
    sizes = n_documents, n_features, trained.n_labels
    check_sizes(path, dict(zip(wanted, sizes)), wanted)
    return NeighboursScorer(
      self,
      trained,
      featuriser,
      run.folder.digests().get(TRAIN),
      block=run.config.eval.batch_size,
      threads=max(1, run.config.data.workers),
    )


def _file(run: Run) -> pathlib.Path:
  return run.folder.model / 'neighbours.npz'
