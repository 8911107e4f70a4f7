"""Holds the top-k lists of documents."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from xjax.core.types import PAD, Ragged

_SHORT = 64  # lists of at most this length are never cut


def list_length(depth: int, n_labels: int) -> int:
  """Returns the length K of lists; no long list has more places than labels."""
  return min(depth, max(n_labels, _SHORT))


@dataclasses.dataclass(frozen=True, eq=False)
class LabelLists:
  """Holds the top-k lists of N documents, in descending order of score.

  Labels with equal scores are in ascending order of index.
  """

  ids: np.ndarray  # int32 [N, K] label indices; PAD after the last
  scores: np.ndarray  # float32 [N, K], -inf where ids are PAD

  @property
  def lengths(self) -> np.ndarray:
    """Returns the number of labels in each list, int64 [N]."""
    return (self.ids != PAD).sum(-1)

  def floor(self, n_listable: int) -> np.ndarray:
    """Returns an upper bound, float32, of scores of labels outside each list.

    It is -inf for a list that ends in PAD or has all `n_listable` labels.
    """
    ended = self.ids[:, -1] == PAD
    whole = ended | (self.ids.shape[1] >= n_listable)
    return np.where(whole, np.float32(-np.inf), self.scores[:, -1])

  def last_score(self, n_listable: int) -> np.ndarray:
    """Returns the score below which a search may have missed labels.

    A search that is not exact may end a list, by PAD, before all labels are
    listed. The score is inf for an empty list, and -inf for a full one.
    """
    lengths = self.lengths
    last = np.maximum(lengths - 1, 0)[:, None]
    scores = np.take_along_axis(self.scores, last, 1)[:, 0]
    scores = np.where(lengths == 0, np.float32(np.inf), scores)
    return np.where(lengths >= n_listable, np.float32(-np.inf), scores)

  def hits(self, gold: Ragged, n_labels: int) -> np.ndarray:
    """Returns which entries are gold, bool [N, K]."""
    # A pair of document and label is one integer. With a width of n_labels + 1,
    # no PAD is such a pair. np.isin would sort the lists, which takes longer.
    width = np.int64(n_labels + 1)
    pairs = np.sort(gold.cells(width))
    cells_NK = np.arange(len(gold))[:, None] * width + self.ids
    found_NK = np.append(pairs, -2)[np.searchsorted(pairs, cells_NK)]
    return found_NK == cells_NK  # cells are at least -1

  def cut(self, mask: np.ndarray) -> 'LabelLists':
    """Keeps the entries whose labels are in a mask [L]; PAD and -inf follow."""
    kept = self.ids != PAD
    kept[kept] = mask[self.ids[kept]]
    return self.keep(kept)

  def at_least(
    self, threshold: float, scores_NK: np.ndarray | None = None
  ) -> np.ndarray:
    """Returns which entries are assigned, bool [N, K]: one rule everywhere.

    A label is assigned if its score, or its entry in `scores_NK`, is at least
    the threshold.
    """
    scores_NK = self.scores if scores_NK is None else scores_NK
    # NumPy rounds a Python float to float32, which may cross a score.
    return (self.ids != PAD) & (scores_NK >= np.float64(threshold))

  def above(self, floor: np.ndarray) -> 'LabelLists':
    """Keeps the entries with scores above the floor [N] of their document."""
    return self.keep((self.ids != PAD) & (self.scores > floor[:, None]))

  def of_rows(self, rows: np.ndarray | slice) -> 'LabelLists':
    return LabelLists(self.ids[rows], self.scores[rows])

  def first(self, k: int | None) -> 'LabelLists':
    """Keeps the first k entries of each list, or all entries if k is None."""
    return LabelLists(self.ids[:, :k], self.scores[:, :k])

  @classmethod
  def merge(cls, parts: Sequence['LabelLists']) -> 'LabelLists':
    """Merges lists of the same documents; a label keeps its highest score."""
    ids = np.concatenate([part.ids for part in parts], axis=1)
    scores = np.concatenate([part.scores for part in parts], axis=1)
    order = np.lexsort((ids, -scores), axis=-1)
    ids = np.take_along_axis(ids, order, -1)
    scores = np.take_along_axis(scores, order, -1)
    # The sort is stable, so the first entry of a label has its highest score.
    by_label = np.argsort(ids, axis=-1, kind='stable')
    in_order = np.take_along_axis(ids, by_label, -1)
    kept_in_order = in_order != PAD
    kept_in_order[:, 1:] &= in_order[:, 1:] != in_order[:, :-1]
    kept = np.zeros(ids.shape, bool)
    np.put_along_axis(kept, by_label, kept_in_order, -1)
    return cls(ids, scores).keep(kept)

  def shortened(self, kept: np.ndarray) -> 'LabelLists':
    """Keeps some entries, and cuts all lists where the first list is unknown.

    If a full list, one without PAD, loses a label, the document's next label is
    not known. So all lists are cut to the length of the shortest list that was
    full before.
    """
    is_full = self.ids[:, -1] != PAD
    if not (is_full & ~kept.all(-1)).any():
      return self.keep(kept)
    depth = int(kept.sum(-1)[is_full].min())
    return self.keep(kept).first(depth)

  def keep(self, kept: np.ndarray) -> 'LabelLists':
    """Keeps the entries where `kept` is True; PAD and -inf follow."""
    ids = np.where(kept, self.ids, PAD)
    scores = np.where(kept, self.scores, np.float32(-np.inf))
    order = np.argsort(~kept, axis=-1, kind='stable')
    return LabelLists(ids, scores).take(order)

  def take(self, order_NK: np.ndarray) -> 'LabelLists':
    """Returns the entries at these places of each list."""
    return LabelLists(
      np.take_along_axis(self.ids, order_NK, -1),
      np.take_along_axis(self.scores, order_NK, -1),
    )
