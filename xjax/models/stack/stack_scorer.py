"""Ranks the labels that several models propose, and explains their scores."""

from collections.abc import Mapping, Sequence
import dataclasses

import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.progress import Progress
from xjax.core.ranking import Lists, Query, best_cells
from xjax.core.types import PAD, ScoreKind
from xjax.data.documents import Documents
from xjax.data.formats.data_config import DataConfig
from xjax.data.load import read_zones
from xjax.data.schema import Document, LabelSpace
from xjax.data.text.words import WordPlace, document_words
from xjax.judge.label_lists import list_length
from xjax.models.explanations import BEYOND, FeatureShares, LabelExplanations
from xjax.models.features import RowFeaturiser
from xjax.models.scorer import Scorer, documents_for, rank_blocks
from xjax.models.stack.pair_features import NONE
from xjax.models.stack.ranker import TrainedRanker
from xjax.models.stack.stack_pairs import DEPTH_OF_SLICES, StackPairs


@dataclasses.dataclass(frozen=True)
class RunWords:
  """Reads the words of the zones that a run reads (explanations.WordReader)."""

  data: DataConfig

  def document(self, document: str | Document) -> Document:
    return read_zones(document, self.data)

  def words(self, document: str | Document) -> list[WordPlace]:
    return document_words(self.document(document))


class StackScorer(Scorer):
  """Ranks proposed labels by a ranker; weights do not change the proposals."""

  def __init__(
    self,
    pairs: StackPairs,
    ranker: TrainedRanker,
    reader: RunWords,
    block: int = 512,
    score_kind: ScoreKind = ScoreKind.LOGIT,
  ):
    self.pairs, self.ranker = pairs, ranker
    self.reader, self.block, self.score_kind = reader, block, score_kind
    self.n_labels = pairs.n_labels
    self.selected_by = f'proposers={len(pairs.proposers)}'
    stages = self.stages.values()
    self.reads_vectors = any(scorer.reads_vectors for scorer in stages)

  @property
  def stages(self) -> dict[str, Scorer]:
    return {x.name: x.scorer for x in self.pairs.proposers}

  @property
  def unexplained(self) -> str:
    return RowFeaturiser.unexplained if self.reader.data.sparse else ''

  @property
  def fixed_labels(self) -> str:
    if any(x.describes for x in self.pairs.proposers):
      return ''
    return (
      'this stack cannot score new labels: none of its proposers reads label '
      'names; add a proposer with NamesModel or PrototypesModel'
    )

  @property
  def union_size(self) -> int:
    """Returns the largest number of labels that are proposed together."""
    size, documents = 0, self.pairs.labels.documents
    for proposer in self.pairs.proposers:
      n_labels = proposer.scorer.n_labels
      unseen = int((documents[:n_labels] == 0).sum()) * proposer.describes
      size += list_length(proposer.depth, n_labels)
      size += min(unseen, proposer.depth, DEPTH_OF_SLICES)
    return size

  def rank(self, documents: Documents, query: Query) -> Lists:
    query = query.for_labels(self.n_labels)
    return rank_blocks(documents, query, self.block, self._rank)

  def _rank(self, documents: Documents, query: Query) -> Lists:
    allowed, k = query.allowed, query.k
    if query.measures(documents.gold):
      k = max(k, self.union_size)
    pairs = self.pairs.of(documents, query.slices, allowed)
    keys = self.ranker.scores(pairs.features)
    document, label = np.divmod(pairs.keys, self.n_labels)
    if query.weights is not None:
      keys = query.weights.weighted(label, keys).astype(np.float32)
    permitted = np.ones(len(label), bool)
    if allowed is not None:
      at = label if allowed.ndim == 1 else (document, label)
      permitted = allowed[at]
    inside = [pairs.usual, *(mask[label] for mask in query.slices)]
    lists = [
      best_cells(pairs.keys[kept], keys[kept], self.n_labels, len(documents), k)
      for kept in (permitted & part for part in inside)
    ]
    ids_GNK, scores_GNK = (np.stack(arrays) for arrays in zip(*lists))
    step = f'union recall@{self.union_size}'
    return Lists(ids_GNK, scores_GNK).measured(step, documents.gold, query)

  def explain(
    self, documents: Documents, ids_NK: np.ndarray, words: int, n_first: int = 0
  ) -> LabelExplanations:
    """Finds which proposers, features and words explain labels."""
    if self.unexplained:
      raise ConfigError(self.unexplained)
    shares = self._shares(documents, ids_NK)
    readers = {x: y for x, y in self.stages.items() if not y.unexplained}
    return by_best_proposer(
      readers, shares, self.reader, documents, ids_NK, words, n_first
    )

  def _shares(self, documents: Documents, ids_NK: np.ndarray) -> FeatureShares:
    names = self.pairs.names
    values = np.full((*ids_NK.shape, len(names)), np.nan, np.float32)
    is_rank = np.array([name.endswith(':rank') for name in names])
    weights = np.zeros(values.shape, np.float32)
    base = 0.0
    with Progress('explaining', len(documents)) as shown:
      for rows, part in documents.blocks(self.block):
        ids_BK = ids_NK[rows]
        listed = document, _ = np.nonzero(ids_BK != PAD)
        keys = document * np.int64(self.n_labels) + ids_BK[listed]
        features = self.pairs.features_of(part, keys)
        shares = self.ranker.contributions(features)
        at = rows[document], listed[1]
        # Readers count the places of a list from 1.
        readable = np.where(is_rank, 1 - features, features)
        values[at] = np.where(features == NONE, np.nan, readable)
        weights[at] = shares[:, :-1]
        if len(shares):
          base = float(shares[0, -1])
        shown.update(len(rows))
    return FeatureShares(names, values, weights, base)

  def with_labels(self, space: LabelSpace) -> 'StackScorer':
    if self.fixed_labels:
      raise ConfigError(self.fixed_labels)
    pairs = self.pairs.with_labels(space)
    settings = self.reader, self.block, self.score_kind
    return StackScorer(pairs, self.ranker, *settings)

  def warmup(self, query: Query, explain: bool = False) -> None:
    for proposer in self.pairs.proposers:
      explains = explain and not proposer.scorer.unexplained
      proposer.scorer.warmup(self.pairs.query(proposer), explains)
    if not (self.reader.data.sparse or self.reads_vectors):
      self.rank(Documents(['']), query)  # with the second query, if any


def by_best_proposer(
  members: Mapping[str, Scorer],  # by name, those that words can explain
  shares: FeatureShares,  # of all features
  reader: RunWords,
  documents: Documents,
  ids_NK: np.ndarray,
  words: int,
  n_first: int,
) -> LabelExplanations:
  """Finds the words that explain labels, in the proposer that adds most."""
  read_words = list(map(reader.words, documents))
  at_NKW = np.full((*ids_NK.shape, words), BEYOND, np.int32)
  weights_NKW = np.zeros(at_NKW.shape, np.float32)
  first = [
    np.zeros((ids_NK.shape[1], len(places)), np.float32)
    for places in read_words[:n_first]
  ]
  adds = []
  for name in members:
    own_F = [x.startswith(f'{name}:') for x in shares.names]
    adds.append(shares.weights_NKF[:, :, own_F].sum(axis=2))
  chosen_NK = np.argmax(adds, axis=0) if adds else None
  for number, member in enumerate(members.values()):
    # Each proposer explains only the labels to which it adds most.
    is_own = (chosen_NK == number) & (ids_NK < member.n_labels)
    own_NK = np.where(is_own, ids_NK, PAD)
    read = documents_for(member, documents)
    by_member = member.explain(read, own_NK, words, n_first)
    for row in np.flatnonzero((own_NK != PAD).any(axis=1)):
      # A proposer reads other zones, or fewer words. Its places become those of
      # all words of the document.
      number_of = _numbers(by_member, row, read_words[row])
      for column in np.flatnonzero(own_NK[row] != PAD):
        at = row, column
        listed = by_member.at_NKW[at], by_member.weights_NKW[at]
        at_W, weights_W = _known(*listed, number_of)
        at_NKW[at][: len(at_W)] = at_W
        weights_NKW[at][: len(at_W)] = weights_W
        if row < len(first):
          weights_T = by_member.first[row][column]
          every = np.arange(len(weights_T))
          at_T, weights_T = _known(every, weights_T, number_of)
          first[row][column][at_T] = weights_T
  return LabelExplanations(
    documents, reader, at_NKW, weights_NKW, words, first, shares
  )


def _numbers(
  explained: LabelExplanations, row: int, places: Sequence[WordPlace]
) -> np.ndarray:
  """Returns the number of each word that a proposer reads, PAD if unknown."""
  # A proposer may read parts of words, such as letters.
  numbers = {
    (place.zone, at): number
    for number, place in enumerate(places)
    for at in range(place.start, place.end)
  }
  _, words = explained.read(row)
  return np.array(
    [numbers.get((word.zone, word.start), PAD) for word in words], np.int64
  )


def _known(
  at_W: np.ndarray, weights_W: np.ndarray, number_of: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the numbers and weights of listed words, largest weights first."""
  # The weights of the parts of a word are added.
  inside = at_W < len(number_of)
  at_W, weights_W = number_of[at_W[inside]], weights_W[inside]
  at_W, which = np.unique(at_W, return_inverse=True)
  weights_W = np.bincount(which, weights_W, len(at_W))
  order = np.argsort(-weights_W, kind='stable')
  order = order[at_W[order] != PAD]
  return at_W[order], weights_W[order]
