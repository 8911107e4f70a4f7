"""Computes the pairs of documents and labels that models propose."""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
from typing import NamedTuple

from jaxtyping import Bool, Float32, Int64
import numpy as np
from scipy import sparse

from xjax.core.ranking import Lists, Query, listed_cells, places_of
from xjax.data.documents import Documents
from xjax.data.schema import LabelSpace
from xjax.judge.label_lists import list_length
from xjax.models.linear.listed import ListedClassifiers
from xjax.models.scorer import Scorer, documents_for
from xjax.models.stack.label_use import LabelUse
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
LISTED = 'listed'  # names the features of the linear classifiers


@dataclasses.dataclass(frozen=True, eq=False)
class StackMember:
  """Holds a model that proposes labels."""

  scorer: Scorer | None  # None if its lists are given (StackPairs.of_lists)
  depth: int  # number of labels that it proposes for a document
  scored: int  # number of labels whose scores the ranker sees, at least depth
  describes: bool  # whether it scores labels without documents by name
  name: str = ''
  details: tuple[str, ...] = ()  # what it says beside the score
  is_read: bool = False  # whether the linear classifiers read its features
  dated: bool = False  # whether it knows the dates of documents


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


class RowsAndDates(NamedTuple):
  """Holds what is read of N documents, if it is needed."""

  rows: sparse.csr_array | None = None  # float32 [N, D], of `linear`
  days_N: np.ndarray | None = None  # float32, their dates; NaN: unknown


@dataclasses.dataclass(frozen=True, eq=False)
class KnownScores:
  """Stands for linear classifiers whose scores of some pairs are known."""

  keys: np.ndarray  # int64 [X], document * L + label, ascending
  scores_X: np.ndarray  # float32 [X]
  first: int = 0  # the document that is document 0 of a block

  def scores(
    self, rows: None, keys: Int64[np.ndarray, ' X'], n_labels: int
  ) -> Float32[np.ndarray, ' X']:
    at = places_of(self.keys, keys + np.int64(self.first) * n_labels)
    return np.append(self.scores_X, np.float32(np.nan))[at]


@dataclasses.dataclass(frozen=True, eq=False)
class StackPairs:
  """Computes the pairs of documents, and what the ranker sees of them."""

  proposers: Sequence[StackMember]  # all give the same numbers to labels
  labels: LabelFacts  # facts of the L labels
  chosen: PairFeatures
  linear: ListedClassifiers | KnownScores | None = None
  use: LabelUse | None = None  # if a proposer knows dates
  listed_L: np.ndarray | None = None  # bool [L or more]; None lists all

  @property
  def n_labels(self) -> int:
    return len(self.labels.words)

  @property
  def names(self) -> tuple[str, ...]:
    details = {x.name: x.details for x in self.proposers}
    if self.linear is not None:
      details[LISTED] = ()
    return feature_names(self.chosen, details, self.use is not None)

  def with_labels(self, space: LabelSpace) -> 'StackPairs':
    proposers = [
      dataclasses.replace(x, scorer=x.scorer.with_labels(space))
      if x.describes
      else x
      for x in self.proposers
    ]
    return StackPairs.over(proposers, space, self.chosen, self.linear, self.use)

  @classmethod
  def over(
    cls,
    proposers: Sequence[StackMember],
    space: LabelSpace,
    chosen: PairFeatures,
    linear: ListedClassifiers | None = None,
    use: LabelUse | None = None,
  ) -> 'StackPairs':
    """Returns the pairs of proposers that know some first labels of a space."""
    n_labels = max(x.scorer.n_labels for x in proposers)
    labels = LabelFacts.of(space, n_labels)
    return cls(proposers, labels, chosen, linear, use, space.allowed)

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
    read = self.read(documents)
    return self.of_lists(lists, 2 if allowed is None else 3, read)

  def features_of(
    self, documents: Documents, keys: Int64[np.ndarray, ' X']
  ) -> Float32[np.ndarray, 'X F']:
    """Returns the features of some pairs of documents, proposed or not."""
    lists = self._all_lists(documents, (), None)
    usual = self.usual_keys(lists)
    return self._features(keys, usual, lists, self.read(documents))

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
    details = len(proposer.details) * self.chosen.details
    query = Query(size, tuple(slices), allowed, details=details)
    return query.only(self.listed_L)

  def read(self, documents: Documents) -> 'RowsAndDates':
    """Reads what the features of pairs need beside lists."""
    rows = days = None
    if self.linear is not None:
      readers = {x.name: x.scorer for x in self.proposers if x.is_read}
      rows = read_features(readers, documents)
    if self.use is not None:
      scorer = next(x.scorer for x in self.proposers if x.dated)
      days = scorer.days(documents)
    return RowsAndDates(rows, days)

  def _all_lists(
    self,
    documents: Documents,
    slices: tuple[np.ndarray, ...],
    allowed: np.ndarray | None,
  ) -> list[Lists]:
    return [
      self._lists(proposer, documents, slices, allowed)
      for proposer in self.proposers
    ]

  def usual_keys(self, lists: Sequence[Lists]) -> Int64[np.ndarray, ' X']:
    """Returns the pairs on lists over all, and over unseen, labels."""
    unseen = self._proposed(lists, slice(1, 2), DEPTH_OF_SLICES)
    return np.union1d(self._proposed(lists, slice(0, 1)), unseen)

  def of_lists(
    self,
    lists: Sequence[Lists],
    n_usual: int = 2,
    read: 'RowsAndDates | None' = None,
  ) -> ProposedPairs:
    """Returns the pairs that the lists of the proposers propose.

    List 0 of a proposer is over all labels, and list 1 over the labels without
    training documents. List 2 may be over all allowed labels; n_usual is 3
    then. The other lists are of slices.
    """
    read = read or RowsAndDates()
    groups = [
      self.usual_keys(lists),
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
      seen = [part.part(slice(n_lists)) for part in lists]
      features.append(self._features(new, keys[0], seen, read))
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
  ) -> Lists:
    queries = [self.query(proposer, slices)]
    if allowed is not None:
      permitted = self.query(proposer, slices, allowed, unseen=False)
      # Two queries: lists over all labels must not change with a filter.
      queries = [self.query(proposer), permitted]
    scorer = proposer.scorer
    documents = documents_for(scorer, documents)
    lists = joined([scorer.rank(documents, query) for query in queries])
    return lists if proposer.describes else with_empty_list(lists)

  @functools.cached_property
  def _unseen_L(self) -> Bool[np.ndarray, ' L']:
    return self.labels.documents == 0

  def _proposed(
    self,
    lists: Sequence[Lists],
    which: slice,  # the lists that propose
    most: int | None = None,  # of each list; None for `depth`
  ) -> Int64[np.ndarray, ' X']:
    """Returns the pairs that some lists propose, ascending."""
    parts = []
    for proposer, own in zip(self.proposers, lists, strict=True):
      depth = min(proposer.depth, most or proposer.depth)
      ids = own.ids_GNK[which, :, :depth]
      parts.append(listed_cells(ids, self.n_labels)[0])
    return np.unique(np.concatenate(parts))

  def _features(
    self,
    keys: np.ndarray,
    usual: np.ndarray,  # the keys that have ranks among the linear classifiers
    lists: Sequence[Lists],
    read: 'RowsAndDates',
  ) -> Float32[np.ndarray, 'X F']:
    if not len(keys):  # to read the lists would take time for nothing
      return np.zeros((0, len(self.names)), np.float32)
    scores = [ScoreLists.of(part, self.n_labels) for part in lists]
    if self.linear is not None:
      every = np.union1d(usual, keys)
      listed = self.linear.scores(read.rows, every, self.n_labels)
      is_usual = np.isin(every, usual, assume_unique=True)
      n = lists[0].ids_GNK.shape[1]
      scores.append(
        ScoreLists.of_pairs(every, listed, is_usual, n, self.n_labels)
      )
    return pair_features(
      keys, scores, self.labels, self.chosen, self.use, read.days_N
    )


def with_empty_list(lists: Lists) -> Lists:
  """Inserts an empty list 1, for labels without training documents."""
  details = lists.details_GNKD
  empty = Lists.none(
    1, *lists.ids_GNK.shape[1:], 0 if details is None else details.shape[3]
  )
  return joined([lists.part(slice(1)), empty, lists.part(slice(1, None))])


def joined(parts: Sequence[Lists]) -> Lists:
  """Returns lists one after another, without `kept`."""
  ids, scores, details = (
    None if arrays[0] is None else np.concatenate(arrays)
    for arrays in zip(
      *((x.ids_GNK, x.scores_GNK, x.details_GNKD) for x in parts)
    )
  )
  return Lists(ids, scores, {}, details)


def read_features(
  scorers: Mapping[str, Scorer], documents: Documents
) -> sparse.csr_array:
  """Returns the features of documents that some proposers read, side by side.

  Args:
    scorers: at least one, each with a featuriser.
  """
  parts = [
    scorer.featuriser(documents_for(scorer, documents))
    for scorer in scorers.values()
  ]
  return sparse.hstack(parts, format='csr')
