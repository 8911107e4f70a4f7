"""Ranks the labels that several models propose by a ranker of pairs."""

import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.ranking import Lists, Query, best_cells
from xjax.core.types import ScoreKind
from xjax.data.documents import Documents
from xjax.data.schema import LabelSpace
from xjax.judge.label_lists import list_length
from xjax.models.explanations import LabelExplanations
from xjax.models.features import RowFeaturiser
from xjax.models.scorer import Scorer, rank_blocks
from xjax.models.stack.boosted import BoostedRanker
from xjax.models.stack.stack_explanations import (
  RunWords,
  StackWords,
  feature_shares,
)
from xjax.models.stack.stack_pairs import DEPTH_OF_SLICES, StackPairs


class StackScorer(Scorer):
  """Ranks proposed labels by a ranker; weights do not change the proposals."""

  score_kind = ScoreKind.LOGIT

  def __init__(
    self,
    pairs: StackPairs,
    ranker: BoostedRanker,
    reader: RunWords,
    block: int = 512,
  ):
    self.pairs, self.ranker = pairs, ranker
    self.reader, self.block = reader, block
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
    self,
    documents: Documents,
    ids_NK: np.ndarray,
    words: int,
    n_first: int = 0,
  ) -> LabelExplanations:
    """Finds which proposers, features and words explain labels.

    The words of a label are those of the proposer that adds most to its score
    and reads words.
    """
    if self.unexplained:
      raise ConfigError(self.unexplained)
    shares = feature_shares(
      self.pairs, self.ranker, documents, ids_NK, self.block
    )
    readers = {x: y for x, y in self.stages.items() if not y.unexplained}
    found = StackWords(readers, shares, self.reader)
    return found.explanations(documents, ids_NK, words, n_first)

  def with_labels(self, space: LabelSpace) -> 'StackScorer':
    if self.fixed_labels:
      raise ConfigError(self.fixed_labels)
    pairs = self.pairs.with_labels(space)
    return StackScorer(pairs, self.ranker, self.reader, self.block)

  def warmup(self, query: Query, explain: bool = False) -> None:
    for proposer in self.pairs.proposers:
      explains = explain and not proposer.scorer.unexplained
      proposer.scorer.warmup(self.pairs.query(proposer), explains)
    if not (self.reader.data.sparse or self.reads_vectors):
      self.rank(Documents(['']), query)  # with the second query, if any
