"""Ranks labels by the average of several models: an ensemble."""

from collections.abc import Sequence
import dataclasses
import functools
from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float, Float32, Float64, Int32, Int64
import numpy as np

from xjax.core.types import AS_LOGITS, PAD, Batch, ScoreKind, Scorer
from xjax.judge.predictions import list_length
from xjax.models.model_configs import Averaging
from xjax.models.staged.joined_lists import best_cells, member_lists

# Mean probabilities stay this far from 0 and 1, because the logits of 0 and 1
# are infinite.
_LEAST, _MOST = 1e-45, 1 - 1e-16


@runtime_checkable
class Member(Scorer, Protocol):
  """Describes a model of an ensemble."""

  def readable(self, ids: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Returns the probabilities of listed labels, float64 of the same shape.

    Args:
      ids: int32 labels, PAD after the last label of a list.
      scores: the scores that topk returned for these labels.
    """
    ...


class EnsembleScorer:
  """Ranks labels by the average of several models (a core.types.Scorer).

  Each model lists its best labels, and the lists are joined. A label that a
  model does not list counts 0 for this model. A batch has no arrays of its own:
  entry m of its field `proposed` is a Batch whose field `proposed` has the
  batches of model m (see proposed_to).

  A label has one average for a document, whichever list it is in. If a model
  lists it among all labels, the average comes only from the lists over all
  labels. If not, the average comes from the lists that have it, which are for
  slices or for other filters.

  Attributes:
    score_kind: LOGIT if probabilities are averaged: the score is the logit of
      their mean. Otherwise MARGIN: the score is the mean itself, from 0 to 1.
    n_labels: the largest number of labels of a model.
    assigned_above: None for logits, and 0.5 for other means.
    selected_by: as in core.types.Scorer.
  """

  def __init__(
    self,
    members: Sequence[Member],
    averaging: Averaging,
    depth: int,
    weights: Sequence[float] = (),
  ):
    """Makes a scorer.

    Args:
      members: the models. They give the same numbers to the same labels.
      averaging: what is averaged. SIGMOID needs models whose scores can become
        probabilities.
      depth: number of labels that each model lists.
      weights: the weight of each model; () stands for equal weights.
    """
    weights_M = np.array(weights or [1] * len(members), np.float64)
    self._members = tuple(members)
    self._shares = tuple(weights_M / weights_M.sum())
    self._averaging, self._depth = averaging, depth
    is_logit = averaging is Averaging.SIGMOID
    self.score_kind = ScoreKind.LOGIT if is_logit else ScoreKind.MARGIN
    self.assigned_above = None if is_logit else 0.5
    self.n_labels = max(member.n_labels for member in members)
    self.selected_by = f'runs={len(members)}'

  @property
  def union_size(self) -> int:
    """Returns the largest number of labels that the joined lists have."""
    return sum(list_length(self._depth, x.n_labels) for x in self._members)

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

    Args:
      batch: documents, as the class says.
      k, weights, slices, allowed, sigmoid: as in core.types.Scorer. Lists have
        at most the labels that the models list.
    """
    rows = len(batch.doc_B)
    ask = functools.partial(self._ask, rows, weights, tuple(slices), allowed)
    lists = [
      ask(member, part.proposed)
      for member, part in zip(self._members, batch.proposed, strict=True)
    ]
    rank = functools.partial(self._best, rows, k, weights, sigmoid)
    means = self._means(lists, slice(0, 1))
    filtered = weights is not None or allowed is not None
    if filtered:
      means = means.with_missing(self._means(lists, slice(1, 2)))
    best = [rank(means, [allowed])]
    if slices:
      others = self._means(lists, slice(1 + filtered, None))
      means = means.with_missing(others)
      best += [rank(means, [allowed, mask]) for mask in slices]
    ids_GBK, scores_GBK = (np.stack(arrays) for arrays in zip(*best))
    return ids_GBK, scores_GBK

  def _ask(
    self,
    rows: int,
    weights: np.ndarray | None,
    slices: tuple[np.ndarray, ...],
    allowed: np.ndarray | None,
    member: Member,
    batches: Sequence[Batch],
  ) -> '_MemberLists':
    """Returns the lists of a model, with what it adds to each average.

    List 0 is over all labels, without weights and `allowed`. With any of these
    two, list 1 is over all labels too. The other lists are those of slices.
    """
    depth = list_length(self._depth, member.n_labels)

    asked = member, batches, rows, depth
    if weights is None and allowed is None:
      ids, scores = member_lists(*asked, slices)
    else:
      ids, scores = member_lists(*asked)
      more, others = member_lists(
        *asked, slices, weights=weights, allowed=allowed
      )
      if weights is not None:
        others = _unweighted(more, others, weights, member.score_kind)
      ids = np.concatenate([ids, more])
      scores = np.concatenate([scores, others])
    return _MemberLists(ids, self._values(member, ids, scores))

  def _values(
    self,
    member: Member,
    ids_GBK: np.ndarray,
    scores_GBK: np.ndarray,
  ) -> Float64[np.ndarray, 'G B K']:
    """Returns what listed labels add to an average, before its weight.

    List 0 is over all labels. A label that is only in other lists comes after
    all labels of list 0.
    """
    real = ids_GBK != PAD
    match self._averaging:
      case Averaging.SIGMOID:
        return member.readable(ids_GBK, np.where(real, scores_GBK, 0))
      case Averaging.SOFTMAX:
        z = np.where(real, scores_GBK, 1).astype(np.float64)
        if member.score_kind is ScoreKind.PROBABILITY:
          z = np.log(np.maximum(z, _LEAST))
        z = np.where(real, z, -np.inf)
        total_B = np.logaddexp.reduce(z[0], axis=1)
        total_B = np.where(total_B == -np.inf, 0, total_B)
        return np.exp(z - total_B[:, None])
      case Averaging.RANK:
        order = np.argsort(-scores_GBK, axis=2, kind='stable')
        ranks = np.argsort(order, axis=2, kind='stable') + 1
        ranks[1:] += self._depth
        return 1 / ranks

  def _means(self, lists: Sequence['_MemberLists'], which: slice) -> '_Means':
    parts = [part.cells(which, self.n_labels) for part in lists]
    return _Means.of(parts, self._shares)

  def _best(
    self,
    rows: int,
    k: int,
    weights: np.ndarray | None,
    sigmoid: tuple[float, float],
    means: '_Means',
    masks: Sequence[np.ndarray | None],
  ) -> tuple[Int32[np.ndarray, 'B K'], Float32[np.ndarray, 'B K']]:
    """Returns the k best labels of each document inside all masks."""
    document, label = np.divmod(means.cells, self.n_labels)
    keys = means.values
    if self.score_kind is ScoreKind.LOGIT:
      keys = np.clip(keys, _LEAST, _MOST)
      keys = np.log(keys) - np.log1p(-keys)
    if weights is not None:
      a, b = sigmoid
      with np.errstate(divide='ignore'):  # weight 0: never selected
        logs = np.log(np.asarray(weights, np.float64)[label])
      keys = logs - np.logaddexp(0, -(a * keys + b))
    # The order of equal means must not depend on how they were rounded.
    keys = keys.astype(np.float32)
    inside = keys > -np.inf
    for mask in masks:
      if mask is not None:
        inside &= mask[label] if mask.ndim == 1 else mask[document, label]
    cells = means.cells[inside]
    return best_cells(cells, keys[inside], self.n_labels, rows, k)


@dataclasses.dataclass(frozen=True, eq=False)
class _MemberLists:
  """Holds the lists of one model.

  Attributes:
    ids: int32 [G, B, K], PAD after the last label of a list.
    values: float64 [G, B, K], what a label adds to an average.
  """

  ids: np.ndarray
  values: np.ndarray

  def cells(
    self, which: slice, n_labels: int
  ) -> tuple[Int64[np.ndarray, ' cells'], Float64[np.ndarray, ' cells']]:
    """Returns the distinct cells of some lists, and the values of the cells.

    A cell is a pair of a document and a label, as the number document *
    n_labels + label. Its value is that of the first list that has it.
    """
    ids, values = self.ids[which], self.values[which]
    at = list_, document, place = np.nonzero(ids != PAD)
    cells = document * np.int64(n_labels) + ids[at]
    cells, first = np.unique(cells, return_index=True)
    return cells, values[list_[first], document[first], place[first]]


@dataclasses.dataclass(frozen=True, eq=False)
class _Means:
  """Holds averages over models.

  Attributes:
    cells: int64 [cells], in any order; see _MemberLists.cells.
    values: float64 [cells], the average of each cell.
  """

  cells: np.ndarray
  values: np.ndarray

  @classmethod
  def of(
    cls,
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
    shares: Sequence[float],
  ) -> '_Means':
    """Averages the cells and values of models.

    Args:
      parts: cells and values of each model.
      shares: the weight of each model; the sum is 1.
    """
    cells = np.concatenate([cells for cells, _ in parts])
    terms = [share * values for share, (_, values) in zip(shares, parts)]
    cells, at = np.unique(cells, return_inverse=True)
    return cls(cells, np.bincount(at, np.concatenate(terms), len(cells)))

  def with_missing(self, others: '_Means') -> '_Means':
    """Adds the averages of `others` for cells that have no average here."""
    new = ~np.isin(others.cells, self.cells)
    return _Means(
      np.append(self.cells, others.cells[new]),
      np.append(self.values, others.values[new]),
    )


def _unweighted(
  ids: np.ndarray, scores: np.ndarray, weights: np.ndarray, kind: ScoreKind
) -> Float64[np.ndarray, '*shape']:
  """Returns scores without the label weights that topk was called with.

  Args:
    ids: int32 labels, PAD after the last label of a list.
    scores: scores with weights, of the same shape.
    weights: label weights, above 0 for listed labels.
    kind: kind of the scores without weights.
  """
  real = ids != PAD
  weights = np.where(real, weights[np.where(real, ids, 0)], 1)
  scores = np.where(real, scores, 0).astype(np.float64)
  if kind is ScoreKind.PROBABILITY:
    scores = scores / weights
  else:  # logarithms of weight times sigmoid of a score
    logs = np.minimum(scores - np.log(weights), -1e-30)
    scores = logs - np.log(-np.expm1(logs))
  return np.where(real, scores, -np.inf)
