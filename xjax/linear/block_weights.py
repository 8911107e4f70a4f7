"""Sparse linear classifiers in blocks, laid out for scoring by block.

A block is what is scored together: the children of a node of a label tree, or
all labels. Its weights are kept by feature: of each feature that any of its
classifiers uses, the classifiers and their weights. A document meets only the
features that it has, whatever else the block knows (the layout of the masked
products of Etter et al. 2022, "Accelerating Inference for Sparse Extreme
Multi-Label Ranking Trees").
"""

from collections.abc import Sequence
import dataclasses
from typing import Self

import numpy as np

from xjax.core.errors import DataError

NARROW = 2**16  # classifiers of a block that 16 bits can tell apart


@dataclasses.dataclass(frozen=True, eq=False)
class Classifiers:
  """Sparse classifiers as they are trained: entries in no layout yet.

  Attributes:
    features: int32 [entries].
    columns: int32 [entries], the classifier of each.
    values: float32 [entries].
    bias: float32 [C].
  """

  features: np.ndarray
  columns: np.ndarray
  values: np.ndarray
  bias: np.ndarray

  @classmethod
  def of(
    cls, weights: np.ndarray, bias: np.ndarray, width: int, threshold: float
  ) -> Self:
    """The first width columns, without weights of a size below threshold."""
    kept = np.abs(weights[:, :width]) >= max(threshold, np.float32(1e-30))
    features, columns = np.nonzero(kept)
    return cls(
      features.astype(np.int32),
      columns.astype(np.int32),
      weights[features, columns],
      bias[:width].copy(),
    )

  @classmethod
  def joined(cls, parts: Sequence['Classifiers']) -> Self:
    """The columns of all parts, one after the other."""
    starts = np.cumsum([0, *(len(part.bias) for part in parts)])
    columns = [
      part.columns + np.int32(start) for part, start in zip(parts, starts)
    ]
    return cls(
      np.concatenate([part.features for part in parts]),
      np.concatenate(columns),
      np.concatenate([part.values for part in parts]),
      np.concatenate([part.bias for part in parts]),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class BlockWeights:
  """Classifiers in blocks, by block and feature.

  Attributes:
    n_features: D; the features of documents are below it.
    columns: int64 [blocks + 1], the first classifier of each block.
    rows: int64 [blocks + 1], the first row of each block.
    features: int32 [rows], ascending within a block.
    entries: int64 [rows + 1], the first entry of each row.
    places: uint16 or int32 [entries], which classifier of the block.
    values: float32 [entries].
    bias: float32 [classifiers].
  """

  n_features: int
  columns: np.ndarray
  rows: np.ndarray
  features: np.ndarray
  entries: np.ndarray
  places: np.ndarray
  values: np.ndarray
  bias: np.ndarray

  @classmethod
  def of(
    cls, classifiers: Classifiers, columns: np.ndarray, n_features: int
  ) -> Self:
    """Lays classifiers out.

    Args:
      classifiers: of all blocks.
      columns: int64 [blocks + 1], the first classifier of each block.
      n_features: D.
    """
    block = np.searchsorted(columns, classifiers.columns, 'right') - 1
    order = np.lexsort((classifiers.columns, classifiers.features, block))
    block, features = block[order], classifiers.features[order]
    new = np.ones(len(order), bool)
    new[1:] = (features[1:] != features[:-1]) | (block[1:] != block[:-1])
    first = np.flatnonzero(new)
    widest = int(np.diff(columns).max(initial=0))
    places = classifiers.columns[order] - columns[block]
    return cls(
      n_features=n_features,
      columns=np.asarray(columns, np.int64),
      rows=np.searchsorted(block[first], np.arange(len(columns))),
      features=features[first],
      entries=np.append(first, len(order)).astype(np.int64),
      places=places.astype(np.uint16 if widest <= NARROW else np.int32),
      values=classifiers.values[order],
      bias=np.asarray(classifiers.bias, np.float32),
    )

  @property
  def nbytes(self) -> int:
    """Bytes of all arrays."""
    return sum(array.nbytes for array in self.arrays().values())

  def arrays(self) -> dict[str, np.ndarray]:
    """All there is, as arrays of a file."""
    return {
      field.name: np.asarray(getattr(self, field.name))
      for field in dataclasses.fields(self)
    }

  @classmethod
  def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Self:
    """What arrays gave.

    Raises:
      DataError: these cannot be the weights of blocks.
    """
    made = cls(
      **{
        field.name: arrays[field.name]
        for field in dataclasses.fields(cls)
        if field.name != 'n_features'
      },
      n_features=int(arrays['n_features']),
    )
    made.check()
    return made

  def check(self) -> None:
    """Refuses arrays that scoring would read beyond.

    Raises:
      DataError: that is so.
    """
    bounds = (
      (self.columns, len(self.bias)),
      (self.rows, len(self.features)),
      (self.entries, len(self.values)),
    )
    whole = all(
      len(ends) and ends[0] == 0 and ends[-1] == n and (np.diff(ends) >= 0).all()
      for ends, n in bounds
    )
    if (
      not whole
      or len(self.columns) != len(self.rows)
      or len(self.entries) != len(self.features) + 1
      or len(self.places) != len(self.values)
      or not _below(self.features, self.n_features)
    ):
      raise DataError('the weights of a model do not fit together')
    widths = np.repeat(
      np.diff(self.columns), np.diff(self.entries[self.rows])
    )
    if not (self.places < widths).all() or (self.places < 0).any():
      raise DataError('the weights of a model name classifiers that are not')


def _below(values: np.ndarray, limit: int) -> bool:
  return not len(values) or (values.min() >= 0 and values.max() < limit)
