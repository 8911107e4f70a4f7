"""Sparse linear classifiers in blocks, laid out for scoring by block.

A block is what is scored together: the children of a node of a label tree, or
all labels. Its weights are kept by feature: of each feature that any of its
classifiers uses, the classifiers and their weights. A document meets only the
features that it has, whatever else the block knows (the layout of the masked
products of Etter et al. 2022, "Accelerating Inference for Sparse Extreme
Multi-Label Ranking Trees").
"""

from collections.abc import Iterable, Iterator
import dataclasses
from typing import Self

import numpy as np

from xjax.core.arrays import Arrays
from xjax.score.linear.classifiers import Classifiers

_GROUP = 2**18  # weights that are laid out at once
NARROW = 2**16  # classifiers of a block that 16 bits can tell apart


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
    cls, parts: Iterable[Classifiers], columns: np.ndarray, n_weights: int
  ) -> Self:
    """Lays classifiers out.

    Args:
      parts: of one or more whole blocks each, all in order; none is looked at
        twice.
      columns: int64 [blocks + 1], the first classifier of each block.
      n_weights: of all parts.
    """
    widest = int(np.diff(columns).max(initial=0))
    kind = np.uint16 if widest <= NARROW else np.int32
    places, values = np.empty(n_weights, kind), np.empty(n_weights, np.float32)
    counts, features, lengths, bias = [], [], [], []
    done = first = 0
    for part in parts:
      end = columns[first] + part.n_labels
      last = int(np.searchsorted(columns, end))
      assert columns[last] == end, 'a part ends within a block'
      for group in _groups(part, columns[first : last + 1] - columns[first]):
        own = slice(done, done + len(group.values))
        places[own], values[own], done = group.places, group.values, own.stop
        counts.append(group.counts)
        features.append(group.features)
        lengths.append(group.lengths)
      bias.append(part.bias)
      first, d = last, part.n_features
    # One after the other: there are many, and what is joined goes.
    features = np.concatenate(features)
    lengths = np.concatenate(lengths)
    return cls(
      n_features=d,
      columns=np.asarray(columns, np.int64),
      rows=np.cumsum(np.concatenate([[0], *counts]), dtype=np.int64),
      features=features,
      entries=_ends(lengths),
      places=places,
      values=values,
      bias=np.concatenate(bias),
    )

  def arrays(self) -> dict[str, np.ndarray]:
    """All there is but columns, as arrays of a file that pack well."""
    steps = np.diff(self.features, prepend=0)
    starts = self.rows[:-1][np.diff(self.rows) > 0]
    steps[starts] = self.features[starts]
    return {
      'n_features': np.int64(self.n_features),
      'rows': self.rows,
      'feature_steps': steps.astype(np.int32),
      'row_lengths': np.diff(self.entries).astype(np.int32),
      'places': self.places,
      'values': self.values,
      'bias': self.bias,
    }

  @classmethod
  def take(cls, arrays: Arrays, prefix: str, columns: np.ndarray) -> Self:
    """What arrays gave, of a file.

    Args:
      arrays: of the file.
      prefix: of their names there.
      columns: as the attribute.

    Raises:
      DataError: they cannot be the weights of these blocks.
    """
    widest = int(np.diff(columns).max(initial=0))
    kind = np.uint16 if widest <= NARROW else np.int32
    rows = arrays.take(f'{prefix}/rows', np.int64, (len(columns),))
    steps = arrays.take(f'{prefix}/feature_steps', np.int32, (None,))
    lengths = arrays.take(f'{prefix}/row_lengths', np.int32, (len(steps),))
    values = arrays.take(f'{prefix}/values', np.float32, (None,))
    made = cls(
      n_features=arrays.count(f'{prefix}/n_features'),
      columns=columns,
      rows=rows,
      features=steps,
      entries=_ends(lengths),
      places=arrays.take(f'{prefix}/places', kind, (len(values),)),
      values=values,
      bias=arrays.take(f'{prefix}/bias', np.float32, (int(columns[-1]),)),
    )
    arrays.check_offsets(f'{prefix}/rows', rows, len(steps))
    arrays.check_offsets(f'{prefix}/row_lengths', made.entries, len(values))
    made = dataclasses.replace(made, features=_summed(steps, rows))
    if fault := made._fault():
      arrays.fail(prefix, fault)
    return made

  def _fault(self) -> str | None:
    """What scoring would read beyond the arrays for."""
    widths = np.repeat(np.diff(self.columns), np.diff(self.entries[self.rows]))
    if (self.places >= widths).any() or (self.places < 0).any():
      return 'a weight of a classifier that is not in its block'
    block = np.repeat(np.arange(len(self.rows) - 1), np.diff(self.rows))
    falls = (np.diff(self.features) <= 0) & (np.diff(block) == 0)
    inside = (self.features >= 0) & (self.features < self.n_features)
    if falls.any() or not inside.all():
      return 'features of a block do not ascend from 0'
    if not np.isfinite(self.values).all() or not np.isfinite(self.bias).all():
      return 'a weight is not finite'
    return None


@dataclasses.dataclass(frozen=True, eq=False)
class _Group:
  """Some whole blocks: rows of each, and of each row the length; else alike."""

  counts: np.ndarray
  features: np.ndarray
  lengths: np.ndarray
  places: np.ndarray
  values: np.ndarray


def _groups(part: Classifiers, columns: np.ndarray) -> Iterator[_Group]:
  """Yields blocks with about _GROUP weights together, laid out."""
  bounds, first = part.weights.indptr[columns], 0
  while first < len(columns) - 1:
    last = int(np.searchsorted(bounds, bounds[first] + _GROUP, 'right')) - 1
    last = max(first + 1, last)
    yield _laid_out(part, columns[first : last + 1])
    first = last


def _laid_out(part: Classifiers, columns: np.ndarray) -> _Group:
  """Blocks that are side by side."""
  given, d = part.weights, np.int64(part.n_features)
  sizes = np.diff(given.indptr[columns[0] : columns[-1] + 1])
  own = slice(given.indptr[columns[0]], given.indptr[columns[-1]])
  column = np.repeat(np.arange(columns[0], columns[-1]), sizes)
  block = np.searchsorted(columns, column, 'right') - 1
  # A stable sort, since columns of a feature ascend as they are.
  cell = block * d + given.indices[own]
  order = np.argsort(cell, kind='stable')
  cell = cell[order]
  starts = np.flatnonzero(np.diff(cell, prepend=-1))
  row_block, row_feature = np.divmod(cell[starts], d)
  return _Group(
    counts=np.bincount(row_block, minlength=len(columns) - 1),
    features=row_feature.astype(np.int32),
    lengths=np.diff(starts, append=len(cell)).astype(np.int32),
    places=(column - columns[block])[order],
    values=given.data[own][order],
  )


def _ends(lengths: np.ndarray) -> np.ndarray:
  """int64, where each begins, and the end."""
  ends = np.zeros(len(lengths) + 1, np.int64)
  np.cumsum(lengths, out=ends[1:])
  return ends


def _summed(steps: np.ndarray, rows: np.ndarray) -> np.ndarray:
  """int32, sums of steps that begin anew with each block of rows."""
  sums = np.append(np.int64(0), np.cumsum(steps, dtype=np.int64))
  before = sums[rows[:-1]]
  return (sums[1:] - np.repeat(before, np.diff(rows))).astype(np.int32)
