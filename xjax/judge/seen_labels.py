"""The labels that are counted: those that a list has, or that are gold."""

import dataclasses

import numpy as np

from xjax.core.types import PAD
from xjax.judge.metrics.label_sums import LabelTable
from xjax.judge.metrics.sums import Documents, Weights
from xjax.judge.slice import Slice, power_of_two

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

  def documents(self, documents: Documents) -> Documents:
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
