"""Computes the pairs of documents and labels that models propose."""

from collections.abc import Sequence
import dataclasses
import functools

from jaxtyping import Bool, Float32, Int32, Int64
import numpy as np

from xjax.core.ranking import Query, listed_cells
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.data.schema import LabelSpace
from xjax.judge.label_lists import list_length
from xjax.models.scorer import Scorer, documents_for
from xjax.models.stack.pair_features import (
  LabelFacts,
  PairFeatures,
  ScoreLists,
  feature_names,
  pair_features,
)

# Number of labels that each proposer adds for a slice. Proposers that read
# names add as many labels without training documents to all lists.
DEPTH_OF_SLICES = 10


@dataclasses.dataclass(frozen=True, eq=False)
class StackMember:
  """Holds a model that proposes labels."""

  scorer: Scorer | None  # None if its lists are given (StackPairs.of_lists)
  depth: int  # number of labels that it proposes for a document
  scored: int  # number of labels whose scores the ranker sees, at least depth
  describes: bool  # whether it scores labels without documents by name
  name: str = ''


@dataclasses.dataclass(frozen=True, eq=False)
class ProposedPairs:
  """Holds the pairs of some documents that proposers propose, and features.

  Usual pairs are proposed among all labels, among the labels without training
  documents, or among all allowed labels. The others are only on lists of
  slices.
  """

  keys: np.ndarray  # int64 [X], document * L + label, ascending
  usual: np.ndarray  # bool [X]
  features: np.ndarray  # float32 [X, F]


@dataclasses.dataclass(frozen=True, eq=False)
class StackPairs:
  """Computes the pairs of documents, and what the ranker sees of them."""

  proposers: Sequence[StackMember]  # all give the same numbers to labels
  labels: LabelFacts  # facts of the L labels
  chosen: PairFeatures
  listed_L: np.ndarray | None = None  # bool [L or more]; None lists all

  @property
  def n_labels(self) -> int:
    return len(self.labels.words)

  @property
  def names(self) -> tuple[str, ...]:
    return feature_names(self.chosen, [x.name for x in self.proposers])

  def with_labels(self, space: LabelSpace) -> 'StackPairs':
    proposers = [
      dataclasses.replace(x, scorer=x.scorer.with_labels(space))
      if x.describes
      else x
      for x in self.proposers
    ]
    return StackPairs.over(proposers, space, self.chosen)

  @classmethod
  def over(
    cls,
    proposers: Sequence[StackMember],
    space: LabelSpace,
    chosen: PairFeatures,
  ) -> 'StackPairs':
    """Returns the pairs of proposers that know some first labels of a space."""
    n_labels = max(x.scorer.n_labels for x in proposers)
    labels = LabelFacts.of(space, n_labels)
    return cls(proposers, labels, chosen, space.allowed)

  def of(
    self,
    documents: Documents,
    slices: Sequence[Bool[np.ndarray, ' L_or_more']] = (),
    allowed: Bool[np.ndarray, '*documents L_or_more'] | None = None,
  ) -> ProposedPairs:
    """Returns the pairs of a block of documents.

    A pair that is proposed among all labels has features that depend only on
    the lists over all labels. So it has one score. Slices do not change the
    features of pairs that are proposed among all allowed labels either. The
    best labels of each slice, a mask, are proposed too, and so are the best
    allowed labels.
    """
    lists = self._all_lists(documents, tuple(slices), allowed)
    return self.of_lists(lists, 2 if allowed is None else 3)

  def features_of(
    self, documents: Documents, keys: Int64[np.ndarray, ' X']
  ) -> Float32[np.ndarray, 'X F']:
    """Returns the features of some pairs of documents, proposed or not."""
    return self._features(keys, self._all_lists(documents, (), None))

  def query(
    self,
    proposer: StackMember,
    slices: Sequence[np.ndarray] = (),
    allowed: np.ndarray | None = None,
    unseen: bool = True,
  ) -> Query:
    """Returns a query, whose first slice may be labels without documents."""
    size = list_length(proposer.scored, proposer.scorer.n_labels)
    if unseen and proposer.describes:
      slices = self._unseen_L, *slices
    return Query(size, tuple(slices), allowed).only(self.listed_L)

  def _all_lists(
    self,
    documents: Documents,
    slices: tuple[np.ndarray, ...],
    allowed: np.ndarray | None,
  ) -> list[tuple[np.ndarray, np.ndarray]]:
    return [
      self._lists(proposer, documents, slices, allowed)
      for proposer in self.proposers
    ]

  def of_lists(
    self, lists: Sequence[tuple[np.ndarray, np.ndarray]], n_usual: int = 2
  ) -> ProposedPairs:
    """Returns the pairs that the lists of the proposers propose.

    Each proposer has ids_GNK and scores_GNK. List 0 is over all labels, and
    list 1 over the labels without training documents. List 2 may be over all
    allowed labels; n_usual is 3 then. The other lists are of slices.
    """
    unseen = self._proposed(lists, slice(1, 2), DEPTH_OF_SLICES)
    groups = [
      np.union1d(self._proposed(lists, slice(0, 1)), unseen),
      self._proposed(lists, slice(2, n_usual)),
      self._proposed(lists, slice(n_usual, None), DEPTH_OF_SLICES),
    ]
    known = np.zeros(0, np.int64)
    keys, features = [], []
    for group, n_lists in zip(groups, (2, n_usual, None)):
      # A pair belongs to the first group that has it, and its features come
      # only from the lists up to this group: so its score does not depend on
      # later lists.
      new = np.setdiff1d(group, known, assume_unique=True)
      known = np.union1d(known, new)
      keys.append(new)
      seen = [(ids[:n_lists], scores[:n_lists]) for ids, scores in lists]
      features.append(self._features(new, seen))
    order = np.argsort(np.concatenate(keys))
    is_usual = np.arange(len(order)) < len(keys[0]) + len(keys[1])
    return ProposedPairs(
      np.concatenate(keys)[order],
      is_usual[order],
      np.concatenate(features)[order],
    )

  def _lists(
    self,
    proposer: StackMember,
    documents: Documents,
    slices: tuple[np.ndarray, ...],
    allowed: np.ndarray | None,
  ) -> tuple[Int32[np.ndarray, 'G N K'], Float32[np.ndarray, 'G N K']]:
    queries = [self.query(proposer, slices)]
    if allowed is not None:
      permitted = self.query(proposer, slices, allowed, unseen=False)
      # Two queries: lists over all labels must not change with a filter.
      queries = [self.query(proposer), permitted]
    scorer = proposer.scorer
    documents = documents_for(scorer, documents)
    lists = [scorer.rank(documents, query) for query in queries]
    ids = np.concatenate([part.ids_GNK for part in lists])
    scores = np.concatenate([part.scores_GNK for part in lists])
    return (ids, scores) if proposer.describes else with_empty_list(ids, scores)

  @functools.cached_property
  def _unseen_L(self) -> Bool[np.ndarray, ' L']:
    return self.labels.documents == 0

  def _proposed(
    self,
    lists: Sequence[tuple[np.ndarray, np.ndarray]],
    which: slice,  # the lists that propose
    most: int | None = None,  # of each list; None for `depth`
  ) -> Int64[np.ndarray, ' X']:
    """Returns the pairs that some lists propose, ascending."""
    parts = []
    for proposer, (ids_GNK, _) in zip(self.proposers, lists, strict=True):
      depth = min(proposer.depth, most or proposer.depth)
      ids = ids_GNK[which, :, :depth]
      parts.append(listed_cells(ids, self.n_labels)[0])
    return np.unique(np.concatenate(parts))

  def _features(
    self, keys: np.ndarray, lists: Sequence[tuple[np.ndarray, np.ndarray]]
  ) -> Float32[np.ndarray, 'X F']:
    if not len(keys):  # to read the lists would take time for nothing
      return np.zeros((0, len(self.names)), np.float32)
    scores = [ScoreLists.of(*part, self.n_labels) for part in lists]
    return pair_features(keys, scores, self.labels, self.chosen)


def with_empty_list(
  ids_GNK: Int32[np.ndarray, 'G N K'], scores_GNK: Float32[np.ndarray, 'G N K']
) -> tuple[Int32[np.ndarray, 'H N K'], Float32[np.ndarray, 'H N K']]:
  """Inserts an empty list 1, for labels without training documents."""
  ids = np.insert(ids_GNK, 1, PAD, axis=0)
  return ids, np.insert(scores_GNK, 1, -np.inf, axis=0)
