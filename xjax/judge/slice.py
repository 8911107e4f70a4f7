"""One slice's lists and gold, and the sums that its metrics are made of."""

from collections.abc import Iterator
import dataclasses

import numpy as np

from xjax.core.types import PAD, Ragged
from xjax.judge.metrics.label_sums import LabelTable
from xjax.judge.metrics.ranking import Weights
from xjax.judge.metrics.slices import ALL, cut
from xjax.judge.metrics.sums import DocumentBlock
from xjax.judge.predictions import Lists, Predictions

ROWS = 8192  # documents of a block, at most
_FEWEST_ROWS, _FEWEST_GOLD = 64, 8  # fewer shapes, so fewer traces
_ENTRIES = 1 << 19  # gold labels of a block, padding and all
_NONE = np.float32(-np.inf)


@dataclasses.dataclass(frozen=True)
class Slice:
  """One slice's lists and gold.

  Attributes:
    lists: of N documents.
    floor: float32 [N], a score that no label of the slice outside the
      document's list is above; -inf where the list has all there are.
    is_cut: whether the lists are what other slices' lists have of this one.
    gold: cut to the slice.
    mask: bool [L], its labels.
    train_counts: int32 [L], training documents per label of the space.
  """

  lists: Lists
  floor: np.ndarray
  is_cut: bool
  gold: Ragged
  mask: np.ndarray
  train_counts: np.ndarray

  @classmethod
  def of(cls, predictions: Predictions, name: str, mask: np.ndarray) -> 'Slice':
    """The named slice, whose labels are where mask, bool [L], is True.

    Without lists of its own it gets what it has of the other lists.
    """
    n_listable = int(mask[: predictions.n_scored].sum())
    own = predictions.masks.get(name) if name in predictions.lists else None
    is_cut = own is None or not np.array_equal(own, mask)
    if is_cut:
      lists, floor = _cut_lists(predictions, mask)
      floor = np.where(lists.lengths >= n_listable, _NONE, floor)
    else:
      lists = predictions.lists[name]
      floor = lists.floor(n_listable)
    return cls(
      lists=lists,
      floor=floor,
      is_cut=is_cut,
      gold=cut(predictions.gold, mask),
      mask=mask,
      train_counts=predictions.train_counts,
    )

  def __len__(self) -> int:
    return len(self.gold)

  @property
  def n_labels(self) -> int:
    """Labels in the slice."""
    return int(self.mask.sum())

  @property
  def n_with_gold(self) -> int:
    """Documents with gold in the slice."""
    return int((self.gold.lengths > 0).sum())

  @property
  def depth(self) -> int:
    """K, the length of the lists."""
    return self.lists.ids.shape[1]

  def n_short(self, k: int) -> int:
    """Documents of which neither k labels nor all there are are listed."""
    return int(((self.lists.lengths < k) & (self.floor > _NONE)).sum())

  def blocks(self) -> Iterator[tuple[np.ndarray, DocumentBlock]]:
    """Yields (row of each document, documents), padded.

    Documents come in the order of how many gold labels they have, so that a
    block is not much wider than most of its rows; padding rows come last.
    """
    order = np.argsort(self.gold.lengths, kind='stable')
    most = min(ROWS, max(_FEWEST_ROWS, power_of_two(len(order))))
    start = 0
    while start < len(order):
      size = most
      # A few documents with very many labels would make a block too large.
      while size > 1 and size * self._width(order[start:][:size]) > _ENTRIES:
        size //= 2
      rows = order[start : start + size]
      yield rows, self._block(rows, size)
      start += size

  def _width(self, rows: np.ndarray) -> int:
    """Places for the gold of documents that come in the order of it."""
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
    """The threshold, in the scores' unit, of best micro-F1.

    Only thresholds at which that F1 is known from the lists are tried: none
    below the last score of a list that ends before all labels are in it.
    """
    ids, scores = self.lists.ids, self.lists.scores.astype(np.float64)
    hit, real = self.lists.hits(self.gold, len(self.mask)), ids != PAD
    order = np.argsort(-scores[real], kind='stable')
    ranked, correct = scores[real][order], np.cumsum(hit[real][order])
    if not len(ranked):
      return 0.0  # whatever it is, nothing is predicted
    micro = (
      2 * correct / (np.arange(1, len(ranked) + 1) + len(self.gold.values))
    )
    # Halfway to the next score; the last one is above all that is lower.
    below = np.append(ranked[1:], -np.inf)
    floor = self.floor.max(initial=_NONE)
    micro[(below == ranked) | (below < floor)] = -1
    best = int(np.argmax(micro))
    if micro[best] < 0:
      return float(floor)
    if best == len(ranked) - 1:
      return float(np.nextafter(ranked[-1], -np.inf))
    return float((ranked[best] + below[best]) / 2)


def power_of_two(n: int) -> int:
  """The smallest that is at least n."""
  return 1 << max(n - 1, 0).bit_length()


def _cut_lists(
  predictions: Predictions, mask: np.ndarray
) -> tuple[Lists, np.ndarray]:
  """The labels of mask in the saved lists, and the floor of what is not."""
  lists, floor = predictions.lists[ALL], _floor(predictions, ALL)
  if predictions.strategy:
    # They are not by score as those of slices are: nothing is taken of them.
    lists = lists.cut(np.zeros_like(mask))
    floor = np.full_like(floor, np.inf)
  others = {
    name: predictions.lists[name]
    for name, other in predictions.masks.items()
    if name in predictions.lists and name != ALL and (mask & other).any()
  }
  if not others:
    return lists.cut(mask), floor
  # The slices of the label space may not cover it, where one has no lists.
  covered = np.zeros_like(mask)
  for name in others:
    covered |= predictions.masks[name]
  inside = [_floor(predictions, name) for name in others]
  floors = [floor] if (mask & ~covered).any() else inside
  floor = np.minimum(floor, np.max(floors, axis=0))
  # What is not above the floor may stand behind labels that no list has.
  merged = Lists.merged([lists, *others.values()]).cut(mask).above(floor)
  # Lists that a strategy chose are as short as it was asked for.
  deep = list(others.values()) if predictions.strategy and others else [lists]
  short = merged.first(max(part.ids.shape[1] for part in deep))
  return short, np.where(
    merged.lengths > short.lengths, short.scores[:, -1], floor
  )


def _floor(predictions: Predictions, name: str) -> np.ndarray:
  """The floor of saved lists, over the labels that they may list."""
  mask = predictions.masks[name]
  n_listable = int(mask[: predictions.n_scored].sum())
  return predictions.lists[name].floor(n_listable)


# Of so many labels all are counted: arrays, and programs, of one size for all
# slices. Of more, counts would take hundreds of bytes per label.
_ALL_OF = 1 << 16


@dataclasses.dataclass(frozen=True, eq=False)
class SeenLabels:
  """Places of a slice's labels in counts and in what these are summed with.

  A label that no list has and that is never gold adds 0 to every sum.

  Attributes:
    labels_H: int [H], the label in each place, ascending; then 0, in places
      where nothing is counted. None: every label is in its own place.
    places_L: int32 [L], label -> place, where there is one. None: the same.
    n_places: H.
  """

  labels_H: np.ndarray | None
  places_L: np.ndarray | None
  n_places: int

  @classmethod
  def every(cls, part: Slice) -> 'SeenLabels':
    """All labels of the space."""
    return cls(None, None, len(part.mask))

  @classmethod
  def of(cls, part: Slice) -> 'SeenLabels':
    """Those of a slice; all, where that takes little."""
    every = cls.every(part)
    if every.n_places <= _ALL_OF:
      return every
    seen_L = np.zeros(len(part.mask), bool)
    for ids in (*part.lists.ids.T, part.gold.values):
      seen_L[ids[ids != PAD]] = True
    labels = np.flatnonzero(seen_L)
    size = power_of_two(len(labels))  # few sizes, so few programs
    if size >= every.n_places:
      return every
    filled_H = np.append(labels, np.zeros(size - len(labels), labels.dtype))
    return cls(filled_H, np.cumsum(seen_L, dtype=np.int32) - 1, size)

  def documents(self, documents: DocumentBlock) -> DocumentBlock:
    """With places instead of labels."""
    return documents.replace(
      ids_BK=self._places(documents.ids_BK),
      gold_BP=self._places(documents.gold_BP),
    )

  def _places(self, labels: np.ndarray) -> np.ndarray:
    if self.places_L is None:
      return labels
    return np.where(labels == PAD, np.int32(PAD), self.places_L[labels])

  def weights(self, weights: Weights) -> Weights:
    """By place."""
    if self.labels_H is None:
      return weights
    each = weights.labels_L, weights.ranks_LK
    return Weights(*(x if x is None else x[self.labels_H] for x in each))

  def table(self, table: LabelTable) -> LabelTable:
    """By place."""
    return table if self.labels_H is None else table.take(self.labels_H)
