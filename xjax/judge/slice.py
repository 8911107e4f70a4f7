"""Prepares the lists and gold of one slice for computing metrics."""

from collections.abc import Iterator, Sequence
import dataclasses

import numpy as np

from xjax.core.allocation import power_of_two
from xjax.core.types import PAD, Ragged
from xjax.data.hierarchy import Hierarchy
from xjax.judge.label_lists import LabelLists
from xjax.judge.metrics.label_sums import LabelTable
from xjax.judge.metrics.ranking import Weights
from xjax.judge.metrics.slices import ALL, cut_gold
from xjax.judge.metrics.sums import DocumentBlock
from xjax.judge.predictions import Predictions

ROWS = 8192  # a block has at most this many documents
# Blocks are padded to at least _FEWEST_ROWS rows, and rows to at least
# _FEWEST_GOLD gold labels, because few different shapes mean few traces.
_FEWEST_ROWS, _FEWEST_GOLD = 64, 8
_ENTRIES = 1 << 19  # a block has at most this many gold labels, with padding
_NONE = np.float32(-np.inf)
# A slice is small if its lists and gold have at most this many entries. With
# lists of 50 labels, slices of up to 75,000 documents are small.
_NUMPY_UP_TO = 1 << 22


@dataclasses.dataclass(frozen=True)
class Slice:
  lists: LabelLists
  # float32 [N], bounds scores outside the list; -inf if it is whole.
  floor: np.ndarray
  is_cut: bool  # whether the lists are cut from other slices' lists
  is_all: bool  # whether the slice has all judged labels
  gold: Ragged  # cut to the slice
  mask: np.ndarray  # bool [L], the labels of the slice
  train_counts: np.ndarray  # int32 [L], per label of the label space
  n_scored: int  # only labels below it can be listed
  hierarchy: Hierarchy | None  # None if no label has a parent
  left_out: Sequence[str]  # ids left out of judging, also Predictions.dropped

  @classmethod
  def of(cls, predictions: Predictions, name: str, mask: np.ndarray) -> 'Slice':
    """Makes a slice of predictions, which need gold."""
    n_listable = int(mask[: predictions.n_scored].sum())
    own = predictions.own_lists(name, mask)
    if own is None:
      lists, floor = _cut_lists(predictions, mask)
      floor = np.where(lists.lengths >= n_listable, _NONE, floor)
    else:
      # Labels that the search for this slice does not list are not predicted.
      lists, floor = own, own.floor(n_listable)
    return cls(
      lists=lists,
      floor=floor,
      is_cut=own is None,
      is_all=np.array_equal(mask, predictions.masks[ALL]),
      gold=cut_gold(predictions.gold, mask),
      mask=mask,
      train_counts=predictions.train_counts,
      n_scored=predictions.n_scored,
      hierarchy=predictions.hierarchy,
      left_out=predictions.all_left_out,
    )

  def __len__(self) -> int:
    return len(self.gold)

  @property
  def n_labels(self) -> int:
    return int(self.mask.sum())

  @property
  def n_with_gold(self) -> int:
    return int((self.gold.lengths > 0).sum())

  @property
  def depth(self) -> int:
    return self.lists.ids.shape[1]

  @property
  def is_small(self) -> bool:
    """Returns whether NumPy computes sums sooner than XLA compiles them."""
    return self.lists.ids.size + len(self.gold.values) <= _NUMPY_UP_TO

  def n_short_above(self, threshold: float) -> int:
    """Counts the lists that may lack labels with scores above a threshold."""
    return int((self.floor.astype(np.float64) > threshold).sum())

  @property
  def listable(self) -> np.ndarray:
    """Returns the labels of the slice that can be listed, bool [L]."""
    return self.mask & (np.arange(len(self.mask)) < self.n_scored)

  def n_short(self, k: int) -> int:
    """Counts the lists with fewer than k labels, but not those with all."""
    return int(((self.lists.lengths < k) & (self.floor > _NONE)).sum())

  def blocks(self) -> Iterator[tuple[np.ndarray, DocumentBlock]]:
    """Yields the rows and documents of blocks; each document is in one block.

    Documents are sorted by number of gold labels, so that few rows of a block
    need much padding. In a block, padding rows come last.
    """
    order = np.argsort(self.gold.lengths, kind='stable')
    most = min(ROWS, max(_FEWEST_ROWS, power_of_two(len(order))))
    start = 0
    while start < len(order):
      size = most
      # If documents have very many gold labels, the block has fewer rows.
      while size > 1 and size * self._width(order[start:][:size]) > _ENTRIES:
        size //= 2
      rows = order[start : start + size]
      yield rows, self._block(rows, size)
      start += size

  def _width(self, rows: np.ndarray) -> int:
    """Returns the padded number of gold labels; the last row has the most."""
    return max(_FEWEST_GOLD, power_of_two(int(self.gold.lengths[rows[-1]])))

  def _block(self, rows: np.ndarray, size: int) -> DocumentBlock:
    padded = np.append(rows, np.full(size - len(rows), PAD))
    lists_B = np.maximum(padded, 0)
    return DocumentBlock(
      ids_BK=self.lists.ids[lists_B],
      gold_BP=self.gold.padded(padded, self._width(rows), PAD),
      mask_B=padded != PAD,
      floor_B=self.floor[lists_B],
      scores_BK=self.lists.scores[lists_B],
    )

  def best_threshold(self) -> float:
    """Returns the threshold with the best micro-F1, in the unit of the scores.

    If a list does not have all labels, micro-F1 is not known at thresholds
    below its last score; these are not tried.
    """
    ids, scores = self.lists.ids, self.lists.scores.astype(np.float64)
    hit, real = self.lists.hits(self.gold, len(self.mask)), ids != PAD
    order = np.argsort(-scores[real], kind='stable')
    ranked, correct = scores[real][order], np.cumsum(hit[real][order])
    if not len(ranked):
      return 0.0  # nothing is predicted at any threshold
    micro = (
      2 * correct / (np.arange(1, len(ranked) + 1) + len(self.gold.values))
    )
    # A threshold is halfway between a score and the next lower score. The last
    # threshold is just below the lowest score.
    below = np.append(ranked[1:], -np.inf)
    floor = self.floor.max(initial=_NONE)
    micro[(below == ranked) | (below < floor)] = -1
    best = int(np.argmax(micro))
    if micro[best] < 0:
      return float(floor)
    if best == len(ranked) - 1:
      return float(np.nextafter(ranked[-1], -np.inf))
    return float((ranked[best] + below[best]) / 2)


def _cut_lists(
  predictions: Predictions, mask: np.ndarray
) -> tuple[LabelLists, np.ndarray]:
  """Cuts a slice's lists from the saved lists, and computes the floors."""
  lists, floor = predictions.lists[ALL], _floor(predictions, ALL)
  if predictions.strategy or predictions.has_shortlists:
    # A strategy chose and ordered the labels in the lists of `all`, so these
    # lists are not used. The lists of other slices are ordered by score.
    lists = lists.cut(np.zeros_like(mask))
    floor = np.full_like(floor, np.inf)
  if predictions.has_shortlists:
    return lists, floor
  others = {
    name: predictions.lists[name]
    for name, other in predictions.masks.items()
    if name in predictions.lists and name != ALL and (mask & other).any()
  }
  if not others:
    return lists.cut(mask), floor
  # Some labels of this slice may be in none of the slices in `others`.
  covered = np.zeros_like(mask)
  for name in others:
    covered |= predictions.masks[name]
  inside = [_floor(predictions, name) for name in others]
  floors = [floor] if (mask & ~covered).any() else inside
  floor = np.minimum(floor, np.max(floors, axis=0))
  # Entries at or below the floor are left out, because a label that is in no
  # list may have a higher score.
  merged = LabelLists.merge([lists, *others.values()]).cut(mask).above(floor)
  # If a strategy chose the lists of `all`, these lists may be shorter than the
  # lists of other slices.
  deep = list(others.values()) if predictions.strategy and others else [lists]
  short = merged.first(max(part.ids.shape[1] for part in deep))
  return short, np.where(
    merged.lengths > short.lengths, short.scores[:, -1], floor
  )


def _floor(predictions: Predictions, name: str) -> np.ndarray:
  """Returns an upper bound of scores outside the saved lists of a slice.

  The lists are cut to other slices. If the search was not exact, its lists do
  not end with the last label: a search for another slice may list more labels.
  """
  mask, lists = predictions.masks[name], predictions.lists[name]
  n_listable = int(mask[: predictions.n_scored].sum())
  if predictions.is_approximate:
    return lists.last_score(n_listable)
  return lists.floor(n_listable)


# If the label space has at most this many labels, each label has a place in the
# count arrays, so all slices have arrays of the same size and share compiled
# programs. In a larger label space, places for all labels would take too much
# memory: hundreds of bytes per label.
_COUNT_ALL_UP_TO = 1 << 16


@dataclasses.dataclass(frozen=True, eq=False)
class SeenLabels:
  """Assigns a place in the count arrays to each label that is listed or gold.

  Other labels add 0 to every sum.
  """

  # int [H], ascending, then 0; None: a label's place is its index.
  labels_H: np.ndarray | None
  # int32 [L], any number for a label without a place.
  places_L: np.ndarray | None
  n_places: int  # H

  @classmethod
  def all_labels(cls, part: Slice) -> 'SeenLabels':
    """Gives a place to every label of the label space."""
    return cls(None, None, len(part.mask))

  @classmethod
  def of(cls, part: Slice) -> 'SeenLabels':
    """Gives places to labels that occur, or to all labels if they are few."""
    whole = cls.all_labels(part)
    if whole.n_places <= _COUNT_ALL_UP_TO:
      return whole
    seen_L = np.zeros(len(part.mask), bool)
    for ids in (*part.lists.ids.T, part.gold.values):
      seen_L[ids[ids != PAD]] = True
    labels = np.flatnonzero(seen_L)
    size = power_of_two(len(labels))  # few sizes mean few compiled programs
    if size >= whole.n_places:
      return whole
    filled_H = np.append(labels, np.zeros(size - len(labels), labels.dtype))
    return cls(filled_H, np.cumsum(seen_L, dtype=np.int32) - 1, size)

  def documents(self, documents: DocumentBlock) -> DocumentBlock:
    return dataclasses.replace(
      documents,
      ids_BK=self._places(documents.ids_BK),
      gold_BP=self._places(documents.gold_BP),
    )

  def _places(self, labels: np.ndarray) -> np.ndarray:
    if self.places_L is None:
      return labels
    return np.where(labels == PAD, np.int32(PAD), self.places_L[labels])

  def weights(self, weights: Weights) -> Weights:
    """Returns weights with an entry per place instead of per label."""
    if self.labels_H is None:
      return weights
    arrays = weights.labels_L, weights.ranks_LK
    return Weights(*(x if x is None else x[self.labels_H] for x in arrays))

  def table(self, table: LabelTable) -> LabelTable:
    return table if self.labels_H is None else table.take(self.labels_H)
