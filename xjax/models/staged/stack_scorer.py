"""Ranks the labels that several models propose by a ranker of pairs."""

from collections.abc import Sequence
import dataclasses
import functools

from jaxtyping import Bool, Float, Float32, Int32, Int64
import numpy as np

from xjax.core.types import AS_LOGITS, PAD, Batch, ScoreKind, Scorer
from xjax.judge.predictions import list_length
from xjax.models.staged.joined_lists import best_cells, member_lists
from xjax.models.staged.rankers.pair_features import (
  LabelFacts,
  PairFeatures,
  ScoreLists,
  feature_names,
  pair_features,
)
from xjax.models.staged.rankers.ranker import PairRanker

# Number of labels that each proposer adds for a slice. Proposers that read
# names add as many labels without training documents to all lists.
_DEPTH_OF_SLICES = 10


@dataclasses.dataclass(frozen=True, eq=False)
class Proposer:
  """Holds a model that proposes labels.

  Attributes:
    scorer: the model; None if its lists are given (StackPairs.of_lists).
    depth: number of labels that it proposes for a document.
    scored: number of labels whose scores the ranker sees, at least depth.
    describes: whether it scores labels without training documents by name.
  """

  scorer: Scorer | None
  depth: int
  scored: int
  describes: bool


@dataclasses.dataclass(frozen=True, eq=False)
class ProposedPairs:
  """Holds the pairs of some documents that proposers propose, and features.

  Attributes:
    keys: int64 [X], document * L + label, ascending; see pair_features.
    usual: bool [X], whether the pair is proposed among all labels, among the
      labels without training documents, or among all allowed labels. The other
      pairs are only on lists of slices.
    features: float32 [X, F].
  """

  keys: np.ndarray
  usual: np.ndarray
  features: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class StackPairs:
  """Computes the pairs of a batch, and what the ranker sees of them.

  A batch has no arrays of its own: entry m of its field `proposed` is a Batch
  whose field `proposed` has the batches of proposer m.

  Attributes:
    proposers: the models that propose labels. They give the same numbers to the
      same labels.
    labels: facts of the L labels.
    chosen: the groups of features.
  """

  proposers: Sequence[Proposer]
  labels: LabelFacts
  chosen: PairFeatures

  @property
  def n_labels(self) -> int:
    """Returns the number L of labels."""
    return len(self.labels.words)

  def of(
    self,
    batch: Batch,
    slices: Sequence[Bool[np.ndarray, ' L_or_more']] = (),
    allowed: Bool[np.ndarray, '*documents L_or_more'] | None = None,
  ) -> ProposedPairs:
    """Returns the pairs of a batch.

    A pair that is proposed among all labels has features that depend only on
    the lists over all labels. So it has one score, whatever lists are asked
    for. Slices do not change the features of pairs that are proposed among all
    allowed labels either.

    Args:
      batch: the documents.
      slices: masks of labels. The best labels of each mask are proposed too.
      allowed: labels that may be selected. If it is given, the best allowed
        labels are proposed too.
    """
    lists = self._all_lists(batch, tuple(slices), allowed)
    return self.of_lists(lists, 2 if allowed is None else 3)

  def features_of(
    self, batch: Batch, keys: Int64[np.ndarray, ' X']
  ) -> Float32[np.ndarray, 'X F']:
    """Returns the features of some pairs of a batch, proposed or not."""
    return self._features(keys, self._all_lists(batch, (), None))

  def _all_lists(
    self,
    batch: Batch,
    slices: tuple[np.ndarray, ...],
    allowed: np.ndarray | None,
  ) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns the lists of each proposer; see _lists."""
    return [
      self._lists(proposer, part, len(batch.doc_B), slices, allowed)
      for proposer, part in zip(self.proposers, batch.proposed, strict=True)
    ]

  def of_lists(
    self, lists: Sequence[tuple[np.ndarray, np.ndarray]], n_usual: int = 2
  ) -> ProposedPairs:
    """Returns the pairs that the lists of the proposers propose.

    Args:
      lists: for each proposer, ids_GBK and scores_GBK. List 0 is over all
        labels, and list 1 over the labels without training documents.
      n_usual: the number of lists that are not over slices: 3 if list 2 is over
        all allowed labels, else 2.
    """
    # Scores of labels that a proposer has not learned say nothing.
    lists = [
      part if proposer.describes else _without_unseen(*part)
      for proposer, part in zip(self.proposers, lists, strict=True)
    ]
    unseen = self._proposed(lists, slice(1, 2), _DEPTH_OF_SLICES)
    groups = [
      np.union1d(self._proposed(lists, slice(0, 1)), unseen),
      self._proposed(lists, slice(2, n_usual)),
      self._proposed(lists, slice(n_usual, None), _DEPTH_OF_SLICES),
    ]
    known = np.zeros(0, np.int64)
    keys, features = [], []
    for group, n_lists in zip(groups, (2, n_usual, None)):
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
    proposer: Proposer,
    part: Batch,
    rows: int,
    slices: tuple[np.ndarray, ...],
    allowed: np.ndarray | None,
  ) -> tuple[Int32[np.ndarray, 'G B K'], Float32[np.ndarray, 'G B K']]:
    """Returns the lists of a proposer, in the order of of_lists."""
    scorer = proposer.scorer
    size = list_length(proposer.scored, scorer.n_labels)
    masks = [_resized(mask, scorer.n_labels) for mask in slices]
    unseen = [_resized(self._unseen_L, scorer.n_labels)]
    unseen = unseen if proposer.describes else []
    asked = scorer, part.proposed, rows, size
    if allowed is None:
      ids, scores = member_lists(*asked, [*unseen, *masks])
    else:
      allowed = _resized(allowed, scorer.n_labels)
      first = member_lists(*asked, unseen)
      more = member_lists(*asked, masks, allowed=allowed)
      ids, scores = (np.concatenate(parts) for parts in zip(first, more))
    return (ids, scores) if unseen else with_empty_list(ids, scores)

  @functools.cached_property
  def _unseen_L(self) -> Bool[np.ndarray, ' L']:
    """The labels without training documents."""
    return self.labels.documents == 0

  def _proposed(
    self,
    lists: Sequence[tuple[np.ndarray, np.ndarray]],
    which: slice,
    most: int | None = None,
  ) -> Int64[np.ndarray, ' X']:
    """Returns the pairs that some lists propose, ascending.

    Args:
      lists: the lists of each proposer.
      which: the lists that propose.
      most: the largest number of labels from each list; None for `depth`.
    """
    parts = [np.zeros(0, np.int64)]
    for proposer, (ids_GBK, _) in zip(self.proposers, lists, strict=True):
      depth = min(proposer.depth, most or proposer.depth)
      ids = ids_GBK[which, :, :depth]
      _, document, _ = at = np.nonzero(ids != PAD)
      parts.append(document * np.int64(self.n_labels) + ids[at])
    return np.unique(np.concatenate(parts))

  def _features(
    self, keys: np.ndarray, lists: Sequence[tuple[np.ndarray, np.ndarray]]
  ) -> Float32[np.ndarray, 'X F']:
    if not len(keys):  # to read the lists would take time for nothing
      n_features = len(feature_names(self.chosen, [''] * len(lists)))
      return np.zeros((0, n_features), np.float32)
    scores = [ScoreLists.of(*part, self.n_labels) for part in lists]
    return pair_features(keys, scores, self.labels, self.chosen)


class StackScorer:
  """Ranks proposed labels by a ranker (a core.types.Scorer).

  Attributes:
    score_kind: LOGIT.
    n_labels: number of labels.
    assigned_above: None, as for all logits.
    selected_by: `proposers=3`, for example.
  """

  score_kind = ScoreKind.LOGIT
  assigned_above = None

  def __init__(self, pairs: StackPairs, ranker: PairRanker):
    self.pairs, self.ranker = pairs, ranker
    self.n_labels = pairs.n_labels
    self.selected_by = f'proposers={len(pairs.proposers)}'

  @property
  def union_size(self) -> int:
    """Returns the largest number of labels that are proposed together."""
    size, documents = 0, self.pairs.labels.documents
    for proposer in self.pairs.proposers:
      n_labels = proposer.scorer.n_labels
      unseen = int((documents[:n_labels] == 0).sum()) * proposer.describes
      size += list_length(proposer.depth, n_labels)
      size += min(unseen, proposer.depth, _DEPTH_OF_SLICES)
    return size

  def topk(
    self,
    batch: Batch,
    k: int,
    weights: Float[np.ndarray, ' L_or_more'] | None = None,
    slices: Sequence[Bool[np.ndarray, ' L_or_more']] = (),
    allowed: Bool[np.ndarray, '*documents L_or_more'] | None = None,
    sigmoid: tuple[float, float] = AS_LOGITS,
  ) -> tuple[Int32[np.ndarray, 'G B K'], Float32[np.ndarray, 'G B K']]:
    """Returns the k best labels of each document; see core.types.Scorer.

    Only proposed labels are ranked. Weights do not change which labels are
    proposed.
    """
    pairs = self.pairs.of(batch, slices, allowed)
    keys = self.ranker.scores(pairs.features)
    label = pairs.keys % self.n_labels
    if weights is not None:
      a, b = sigmoid
      with np.errstate(divide='ignore'):  # weight 0: never selected
        logs = np.log(np.asarray(weights, np.float64)[label])
      keys = (logs - np.logaddexp(0, -(a * keys + b))).astype(np.float32)

    def best(inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
      cells, scores = pairs.keys[inside], keys[inside]
      return best_cells(cells, scores, self.n_labels, len(batch.doc_B), k)

    usual = pairs.usual
    if allowed is not None:
      permitted = _inside(allowed, pairs.keys, self.n_labels)
      usual = usual & permitted
    lists = [best(usual)]
    for mask in slices:
      inside = np.asarray(mask)[label]
      if allowed is not None:
        inside &= permitted
      lists.append(best(inside))
    ids_GBK, scores_GBK = (np.stack(arrays) for arrays in zip(*lists))
    return ids_GBK, scores_GBK


def with_empty_list(
  ids_GBK: Int32[np.ndarray, 'G B K'], scores_GBK: Float32[np.ndarray, 'G B K']
) -> tuple[Int32[np.ndarray, 'H B K'], Float32[np.ndarray, 'H B K']]:
  """Inserts an empty list 1, for labels without training documents.

  Args:
    ids_GBK, scores_GBK: the other lists of a proposer.

  Returns:
    ids_HBK, scores_HBK: one list more, with PAD and -inf in list 1.
  """
  ids = np.insert(ids_GBK, 1, PAD, axis=0)
  return ids, np.insert(scores_GBK, 1, -np.inf, axis=0)


def _without_unseen(
  ids_GBK: Int32[np.ndarray, 'G B K'], scores_GBK: Float32[np.ndarray, 'G B K']
) -> tuple[Int32[np.ndarray, 'G B K'], Float32[np.ndarray, 'G B K']]:
  """Returns the lists of a proposer, with list 1 emptied."""
  ids_GBK, scores_GBK = ids_GBK.copy(), scores_GBK.copy()
  ids_GBK[1], scores_GBK[1] = PAD, -np.inf
  return ids_GBK, scores_GBK


def _resized(mask: np.ndarray, n: int) -> Bool[np.ndarray, '*documents n']:
  """Returns a mask of exactly n labels."""
  return np.asarray(mask)[..., :n]


def _inside(
  allowed: np.ndarray, keys: Int64[np.ndarray, ' X'], n_labels: int
) -> Bool[np.ndarray, ' X']:
  """Returns whether the labels of pairs are allowed."""
  document, label = np.divmod(keys, n_labels)
  allowed = np.asarray(allowed)
  return allowed[label] if allowed.ndim == 1 else allowed[document, label]
