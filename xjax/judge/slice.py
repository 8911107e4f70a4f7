"""Prepares the lists and gold of one slice for computing metrics."""

from collections.abc import Iterator, Sequence
import dataclasses
import functools

import numpy as np

from xjax.core.allocation import power_of_two
from xjax.core.types import PAD, Ragged
from xjax.data.hierarchy import Hierarchy
from xjax.judge.label_lists import LabelLists
from xjax.judge.metrics.slices import ALL, cut_gold
from xjax.judge.predictions import Predictions

_ROWS = 8192  # a block has at most this many documents
# The order in which NumPy sums numbers depends on the shape of an array. So
# that figures stay the same to the last bit, blocks are padded to at least
# _FEWEST_ROWS rows, and rows to at least _FEWEST_GOLD gold labels.
_FEWEST_ROWS, _FEWEST_GOLD = 64, 8
_PAIRS = 1 << 25  # of a listed and a gold label in a block, with padding
_NONE = np.float32(-np.inf)


@dataclasses.dataclass(frozen=True, eq=False)
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
  unknown: str = ''  # why the system cannot tell the labels apart, if it cannot

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
      unknown=_why_unknown(predictions, mask),
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

  @functools.cached_property
  def is_whole(self) -> np.ndarray:
    """Returns which lists have all labels that can be listed, bool [N]."""
    return np.isneginf(self.floor)

  def hides_from(self, threshold: float) -> np.ndarray:
    """Returns which lists may lack labels with at least a score."""
    return self.floor.astype(np.float64) >= threshold

  def hides_up_to(self, k: int) -> np.ndarray:
    """Returns which lists have fewer than k labels, but not all."""
    return (self.lists.lengths < k) & ~self.is_whole

  @property
  def listable(self) -> np.ndarray:
    """Returns the labels of the slice that can be listed, bool [L]."""
    return self.mask & (np.arange(len(self.mask)) < self.n_scored)

  def blocks(self) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yields blocks of documents: their rows, and the padded shape of the gold.

    Documents are sorted by number of gold labels, so that few rows of a block
    need much padding. Both sizes are padded to a power of two.
    """
    order = np.argsort(self.gold.lengths, kind='stable')
    most = min(_ROWS, max(_FEWEST_ROWS, power_of_two(len(order))))
    start, entries = 0, _PAIRS // max(self.depth, 64)
    while start < len(order):
      size = most
      # With very many gold labels, or long lists, the block has fewer rows.
      while size > 1 and size * self._width(order[start:][:size]) > entries:
        size //= 2
      rows = order[start : start + size]
      yield rows, size, self._width(rows)
      start += size

  def _width(self, rows: np.ndarray) -> int:
    """Returns the padded number of gold labels; the last row has the most."""
    return max(_FEWEST_GOLD, power_of_two(int(self.gold.lengths[rows[-1]])))

  def best_threshold(self) -> float:
    """Returns the threshold with the best micro-F1; see tune_threshold."""
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
    # threshold is the lowest score.
    below = np.append(ranked[1:], -np.inf)
    floor = self.floor.max(initial=_NONE)
    micro[(below == ranked) | (below < floor)] = -1
    best = int(np.argmax(micro))
    if micro[best] < 0:
      return float(np.nextafter(floor, np.float32(np.inf)))
    if best == len(ranked) - 1:
      return float(ranked[-1])
    return float((ranked[best] + below[best]) / 2)


def _why_unknown(predictions: Predictions, mask: np.ndarray) -> str:
  """Says why a system cannot rank labels without training documents, or ''.

  Their places would be the order of the labels: chance, which is no skill.
  """
  counts = predictions.train_counts[mask]
  if not predictions.n_train or not len(counts) or counts.any():
    return ''
  if not mask[: predictions.n_scored].any():
    return 'the system cannot predict any of these labels'
  if predictions.ranks_unseen is False:
    return (
      'the system has learned nothing about labels without training documents'
    )
  return ''


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
