"""Defines what a scorer is asked, and the lists that it answers with."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import itertools
from typing import NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from scipy import sparse

from xjax.core.allocation import check_memory
from xjax.core.distributed import gather_rows
from xjax.core.types import AS_LOGITS, PAD, Ragged, ScoreKind


class RankWeights(NamedTuple):
  """Holds label weights; labels are ranked by weight times probability."""

  # The probability of a score z is sigmoid(a z + b) with a > 0 if `sigmoid` is
  # (a, b). Only margins need others than AS_LOGITS.

  values: np.ndarray  # float [L or more], at least 0; 0: never listed
  sigmoid: tuple[float, float] = AS_LOGITS

  def weighted(self, labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Returns log(weight times probability), float64, from raw scores."""
    a, b = self.sigmoid
    with np.errstate(divide='ignore'):  # weight 0: never selected
      logs = np.log(np.asarray(self.values, np.float64)[labels])
    # log sigmoid(x) is -log(1 + exp(-x)); logaddexp does not overflow.
    return logs - np.logaddexp(0, -(a * scores + b))


@dataclasses.dataclass(frozen=True, eq=False)
class Query:
  """Asks for the best labels of documents, among all labels and per slice."""

  k: int  # length of the lists
  # bool [L or more] masks: each adds a list of the best of its labels.
  slices: tuple[np.ndarray, ...] = ()
  # bool [L or more] or [N, L or more], the labels that may be listed.
  allowed: np.ndarray | None = None
  weights: RankWeights | None = None  # None ranks labels by their scores
  # If there are gold labels, those that the steps of a search lose are counted
  # for all labels and for so many slices (Lists.kept); None counts nothing.
  measured: int | None = None
  # Number of Lists.details_GNKD that are wanted; a scorer has a fixed number.
  details: int = 0
  # Is called with the number of documents that have been ranked. An exception
  # that it raises stops the ranking.
  on_block: Callable[[int], None] | None = None

  @property
  def n_lists(self) -> int:
    """Returns the number G of lists of a document: all labels, and slices."""
    return 1 + len(self.slices)

  def measures(self, gold: Ragged | None) -> bool:
    """Returns whether gold labels that steps lose are searched for."""
    return self.measured is not None and gold is not None

  def for_labels(self, n: int) -> Self:
    """Returns the query with arrays cut to n labels; none may be shorter."""

    def cut(array: np.ndarray) -> np.ndarray:
      array = np.asarray(array)
      if array.shape[-1] < n:
        raise ValueError(
          f'a filter has the length {array.shape[-1]}, which is less than the '
          f'number of labels, {n}'
        )
      return array[..., :n]

    weights, allowed = self.weights, self.allowed
    if weights is not None:
      weights = RankWeights(cut(weights.values), weights.sigmoid)
    return dataclasses.replace(
      self,
      slices=tuple(map(cut, self.slices)),
      allowed=None if allowed is None else cut(allowed),
      weights=weights,
    )

  def for_rows(self, rows: np.ndarray) -> Self:
    allowed = self.allowed
    if allowed is not None and allowed.ndim == 2:
      allowed = allowed[rows]
    return dataclasses.replace(self, allowed=allowed, on_block=None)

  def only(self, allowed_L: np.ndarray | None) -> Self:
    """Returns the query without the labels that a mask [L or more] excludes."""
    if allowed_L is None:
      return self
    if self.allowed is not None:
      n = min(self.allowed.shape[-1], len(allowed_L))
      allowed_L = self.allowed[..., :n] & allowed_L[:n]
    return dataclasses.replace(self, allowed=allowed_L)


@dataclasses.dataclass(frozen=True, eq=False)
class Lists:
  """Holds the top-k lists of N documents, for G slices; the first has all."""

  # int32 label indices by falling score, ties by ascending index, then PAD.
  ids_GNK: np.ndarray
  # float32, -inf where ids are PAD. With weights: weight times probability if
  # scores are probabilities, else the logarithm of this product.
  scores_GNK: np.ndarray
  # Step of the search -> int32 [measured slices and all labels, N], how many
  # gold labels of a document the step keeps; {} if nothing is measured.
  kept: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
  # float32, what else the scorer says of a listed label; NaN where ids are PAD.
  details_GNKD: np.ndarray | None = None

  @classmethod
  def none(cls, n_lists: int, n: int, k: int, details: int = 0) -> Self:
    """Returns empty lists; raises a ConfigError if memory cannot hold them."""
    check_memory(
      (8 + 4 * details) * n_lists * n * k,
      f'{n_lists} lists of {k} labels for {n} documents',
      'choose a smaller eval.depth, or a smaller --k',
    )
    shape = n_lists, n, k
    return cls(
      np.full(shape, PAD, np.int32),
      np.full(shape, -np.inf, np.float32),
      {},
      np.full((*shape, details), np.nan, np.float32) if details else None,
    )

  def put(self, rows: np.ndarray, part: 'Lists') -> None:
    """Writes the lists of some documents of each process into these lists.

    All processes must call this method, with the same number of rows. `rows`
    are the documents of `part`, PAD for lists of no document. `part` has at
    least as many labels; further labels are left out.
    """
    k, steps = self.ids_GNK.shape[2], list(part.kept)
    rows, (ids_GBK, scores_GBK, *kept) = gather_rows(
      rows,
      part.ids_GNK[:, :, :k],
      part.scores_GNK[:, :, :k],
      *part.kept.values(),
    )
    real = rows != PAD
    self.ids_GNK[:, rows[real]] = ids_GBK[:, real]
    self.scores_GNK[:, rows[real]] = scores_GBK[:, real]
    if self.details_GNKD is not None:  # only asked in one process
      self.details_GNKD[:, rows[real]] = part.details_GNKD[:, real, :k]
    for step, kept_MB in zip(steps, kept, strict=True):
      if step not in self.kept:
        shape = len(kept_MB), self.ids_GNK.shape[1]
        self.kept[step] = np.zeros(shape, np.int32)
      self.kept[step][:, rows[real]] = kept_MB[:, real]

  def measured(self, step: str, gold: Ragged | None, query: Query) -> Self:
    """Returns the lists with the gold labels that are in them, as a step."""
    if not query.measures(gold):
      return self
    masks = measured_masks(query)
    kept = kept_gold(gold, self.ids_GNK[: len(masks)], masks)
    return dataclasses.replace(self, kept={**self.kept, step: kept})

  def first(self, k: int) -> Self:
    return dataclasses.replace(self.part(k=k), kept=self.kept)

  def part(
    self,
    lists: slice = slice(None),
    rows: np.ndarray | slice = slice(None),
    k: int | None = None,
  ) -> Self:
    """Returns the first k labels of some lists of documents, without `kept`."""
    arrays = self.ids_GNK, self.scores_GNK, self.details_GNKD
    ids, scores, details = (
      None if array is None else array[lists][:, rows, :k] for array in arrays
    )
    return Lists(ids, scores, {}, details)


@runtime_checkable
class RanksDocuments(Protocol):
  """Describes what judging needs of a scorer; see models.scorer.Scorer."""

  n_labels: int
  score_kind: ScoreKind
  assigned_above: float | None
  selected_by: str
  ranks_unseen: bool

  def rank(self, documents: Sequence, query: Query) -> Lists:
    """Returns the lists of documents."""


def kept_gold(
  gold: Ragged, ids_GNK: np.ndarray, masks: Sequence[np.ndarray | None]
) -> np.ndarray:
  """Counts the gold labels in their documents' lists, int32, with repeats."""
  # Each of the G lists has a mask, bool [L], of the labels to count.
  n = len(gold)
  width = 1 + max(gold.values.max(initial=0), ids_GNK.max(initial=0))
  owners = gold.owners
  cells, rows = gold.cells(width), np.arange(n)[:, None] * width
  counts = []
  for ids_NK, mask in zip(ids_GNK, masks, strict=True):
    inside = np.isin(cells, (rows + ids_NK)[ids_NK != PAD])
    if mask is not None:
      inside &= mask_of(gold.values, mask)
    counts.append(np.bincount(owners[inside], minlength=n))
  return np.array(counts, np.int32).reshape(len(counts), n)


def listed_cells(
  ids_GNK: np.ndarray, n_labels: int
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
  """Returns the distinct pairs of lists, and where each is listed first.

  A pair is a cell, as in best_cells, and cells ascend. The place is an index of
  ids_GNK. Earlier lists come first, and ids may be PAD.
  """
  at = _, document, _ = np.nonzero(ids_GNK != PAD)
  # int64, since documents times labels can be more than 2^31.
  cells = document * np.int64(n_labels) + ids_GNK[at]
  cells, first = np.unique(cells, return_index=True)
  return cells, tuple(axis[first] for axis in at)


def places_of(ascending: np.ndarray, cells: np.ndarray) -> np.ndarray:
  """Returns where cells are in ascending ones; PAD, the last, for others."""
  at = np.searchsorted(ascending, cells)
  return np.where(np.append(ascending, PAD)[at] == cells, at, PAD)


def best_cells(
  cells: np.ndarray, scores: np.ndarray, n_labels: int, n: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the k best labels of each document, from scored pairs.

  A cell is the number document * n_labels + label, int64; no cell occurs twice.
  Cells with score -inf are never selected. If scores are equal, the lower label
  comes first. The results are ids_NK and scores_NK, PAD and -inf after the last
  label of a list.
  """
  listed = scores != -np.inf  # a list with NaN is refused later
  document, label = np.divmod(cells[listed], n_labels)
  scores = scores[listed]
  # The last key counts most: by document, then best score, then lower label.
  order = np.lexsort((label, -scores, document))
  document = document[order]
  rank = np.arange(len(order)) - np.searchsorted(document, document)
  top = rank < k
  places, order = (document[top], rank[top]), order[top]
  ids_NK = np.full((n, k), PAD, np.int32)
  scores_NK = np.full((n, k), -np.inf, scores.dtype)
  ids_NK[places], scores_NK[places] = label[order], scores[order]
  return ids_NK, scores_NK


def lists_of(scores: sparse.csr_array, query: Query) -> Lists:
  """Returns lists from scores, float32 [N, L], of some of the labels."""
  # A label without an entry is in no list. With weights, labels are ranked by
  # log weight + log sigmoid(a score + b).
  ids, keys, n = scores.indices, scores.data, scores.shape[0]
  rows = np.repeat(np.arange(n), np.diff(scores.indptr))
  if query.weights is not None:
    keys = query.weights.weighted(ids, keys).astype(np.float32)
  listed = np.ones(len(ids), bool)
  if query.allowed is not None:
    own = query.allowed
    listed = own[ids] if own.ndim == 1 else own[rows, ids]
  lists, n_labels = Lists.none(query.n_lists, n, query.k), scores.shape[1]
  cells = rows * np.int64(n_labels) + ids
  masks = [listed, *(listed & mask[ids] for mask in query.slices)]
  for ids_NK, scores_NK, mask in zip(lists.ids_GNK, lists.scores_GNK, masks):
    best = best_cells(cells[mask], keys[mask], n_labels, n, query.k)
    ids_NK[:], scores_NK[:] = best
  return lists


def mask_of(labels: np.ndarray, mask: np.ndarray) -> np.ndarray:
  """Returns whether labels are in a mask [L]; PAD and labels beyond are not."""
  known = (labels != PAD) & (labels < len(mask))
  return known & mask[np.where(known, labels, 0)]


def measured_masks(query: Query) -> list[np.ndarray | None]:
  """Returns the labels whose recall is measured, for all labels and slices."""
  masks = [None, *itertools.islice(query.slices, query.measured or 0)]
  if query.allowed is not None:
    own = query.allowed
    masks = [own if mask is None else mask & own for mask in masks]
  return masks
