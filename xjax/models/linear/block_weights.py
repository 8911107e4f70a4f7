"""Lays out sparse linear classifiers for scoring in blocks.

A block is a set of classifiers that are scored together: the children of a node
of a label tree, or all labels. The weights of a block are grouped by feature,
so that only those of a document's own features are read to score it (Etter et
al. 2022).
"""

from collections.abc import Iterable
import dataclasses

from jaxtyping import Float32, Int, Int32, Int64, UInt16
import numpy as np
from scipy import sparse

from xjax.core.arrays import Arrays
from xjax.core.types import Ragged, offsets_of
from xjax.models.linear.classifiers import Classifiers, FileArrays

NARROW = 2**16  # number of classifiers that 16 bits can number


@dataclasses.dataclass(frozen=True, eq=False)
class BlockWeights:
  """Holds the weights of classifiers, grouped by block and feature.

  A row is a feature of a block, with the weights that the block's classifiers
  have for this feature. An entry is one of these weights. Block b has the
  classifiers columns[b], ..., columns[b + 1] - 1, and the rows rows[b], ...,
  rows[b + 1] - 1. Row r has the entries entries[r], ..., entries[r + 1] - 1.
  The place of an entry is its classifier, counted from the first classifier of
  the block.
  """

  n_features: int
  columns: Int64[np.ndarray, ' block_bounds']
  rows: Int64[np.ndarray, ' block_bounds']
  features: Int32[np.ndarray, ' rows']  # of each row, ascending in a block
  entries: Int64[np.ndarray, ' rows+1']
  places: UInt16[np.ndarray, ' entries'] | Int32[np.ndarray, ' entries']
  values: Float32[np.ndarray, ' entries']
  bias: Float32[np.ndarray, ' classifiers']

  @classmethod
  def of(
    cls,
    parts: Iterable[Classifiers],
    columns: Int[np.ndarray, ' block_bounds'],
    n_weights: int,  # of all parts
  ) -> 'BlockWeights':
    """Lays out parts, in order and each of whole blocks, that are read once."""
    # The two largest arrays are filled in place, so that memory never holds
    # them twice.
    places = np.empty(n_weights, _place_dtype(columns))
    values = np.empty(n_weights, np.float32)
    counts, features, lengths, bias = [], [], [], []
    done = first = 0
    for part in parts:
      end = columns[first] + part.n_labels
      last = int(np.searchsorted(columns, end))
      assert columns[last] == end, 'a part ends within a block'
      span = slice(done, done + part.weights.nnz)
      own = columns[first : last + 1] - columns[first]
      places[span], values[span], *rows = _laid_out(part, own)
      for whole, of_part in zip((counts, features, lengths), rows):
        whole.append(of_part)
      done = span.stop
      bias.append(part.bias)
      first, n_features = last, part.n_features
    # The lists are large. So one list is concatenated and its parts are freed
    # before the next list is concatenated.
    features = np.concatenate(features)
    lengths = np.concatenate(lengths)
    return cls(
      n_features=n_features,
      columns=np.asarray(columns, np.int64),
      rows=np.cumsum(np.concatenate([[0], *counts]), dtype=np.int64),
      features=features,
      entries=offsets_of(lengths),
      places=places,
      values=values,
      bias=np.concatenate(bias),
    )

  def arrays(self) -> FileArrays:
    """Returns all attributes except `columns`, as arrays that compress well."""
    # Features ascend in a block, so differences are small numbers, which
    # compress better.
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
  def take(
    cls,
    arrays: Arrays,
    prefix: str,
    columns: Int64[np.ndarray, ' block_bounds'],
  ) -> 'BlockWeights':
    """Rebuilds block weights from arrays named prefix/..., and checks them."""
    rows = arrays.take(f'{prefix}/rows', np.int64, (len(columns),))
    steps = arrays.take(f'{prefix}/feature_steps', np.int32, (None,))
    lengths = arrays.take(f'{prefix}/row_lengths', np.int32, (len(steps),))
    values = arrays.take(f'{prefix}/values', np.float32, (None,))
    dtype = _place_dtype(columns)
    blocks = cls(
      n_features=arrays.count(f'{prefix}/n_features'),
      columns=columns,
      rows=rows,
      features=steps,
      entries=offsets_of(lengths),
      places=arrays.take(f'{prefix}/places', dtype, (len(values),)),
      values=values,
      bias=arrays.take(f'{prefix}/bias', np.float32, (int(columns[-1]),)),
    )
    # Offsets are checked before they are used as indices. The numbers come from
    # a file.
    arrays.check_offsets(f'{prefix}/rows', rows, len(steps))
    arrays.check_offsets(f'{prefix}/row_lengths', blocks.entries, len(values))
    blocks = dataclasses.replace(blocks, features=_features(steps, rows))
    if fault := blocks._fault():
      arrays.fail(prefix, fault)
    return blocks

  def lookup(
    self,
    features: Int[np.ndarray, ' features'],
    classifiers: Int[np.ndarray, ' C'],
  ) -> Float32[np.ndarray, 'features C']:
    """Returns the weights of features in a few classifiers of any blocks."""
    weights = np.zeros((len(features), len(classifiers)), np.float32)
    blocks = np.searchsorted(self.columns, classifiers, 'right') - 1
    for block in np.unique(blocks):
      first, last = self.rows[block : block + 2]
      block_features = self.features[first:last]
      row = np.searchsorted(block_features, features)
      known = np.flatnonzero(row < last - first)
      # searchsorted also returns a row for features that the block does not
      # have.
      known = known[block_features[row[known]] == features[known]]
      own = np.flatnonzero(blocks == block)
      places = classifiers[own] - self.columns[block]
      bounds = self.entries[first : last + 1]
      values = Ragged(bounds, self.values).take(row[known]).values
      columns = Ragged(bounds, self.places).take(row[known])
      width = self.columns[block + 1] - self.columns[block]
      stored = sparse.csr_array(
        (values, columns.values, columns.indptr), (len(known), width)
      )
      weights[np.ix_(known, own)] = stored[:, places].toarray()
    return weights

  def _fault(self) -> str | None:
    """Returns a fault that would break scoring, or None if there is none."""
    widths = np.repeat(np.diff(self.columns), np.diff(self.entries[self.rows]))
    if (self.places >= widths).any() or (self.places < 0).any():
      return 'a weight of a block belongs to a classifier outside of the block'
    block = np.repeat(np.arange(len(self.rows) - 1), np.diff(self.rows))
    falls = (np.diff(self.features) <= 0) & (np.diff(block) == 0)
    inside = (self.features >= 0) & (self.features < self.n_features)
    if falls.any() or not inside.all():
      return 'features of a block do not ascend, or are not in [0, n_features)'
    if not np.isfinite(self.values).all() or not np.isfinite(self.bias).all():
      return 'a weight is not finite'
    return None


def _place_dtype(columns: Int[np.ndarray, ' block_bounds']) -> type:
  """Returns the smallest dtype that numbers the classifiers of any block."""
  widest = int(np.diff(columns).max(initial=0))
  return np.uint16 if widest <= NARROW else np.int32


def _laid_out(
  part: Classifiers, columns: Int[np.ndarray, ' block_bounds']
) -> tuple[np.ndarray, ...]:
  """Returns places and values, and of each block its rows.

  They are the number of rows of each block, and the feature and the number of
  entries of each row.
  """
  weights, n_features = part.weights, np.int64(part.n_features)
  column = np.repeat(np.arange(part.n_labels), np.diff(weights.indptr))
  block = np.searchsorted(columns, column, 'right') - 1
  # The sort is stable, so that the columns of a feature stay in ascending
  # order.
  cell = block * n_features + weights.indices
  order = np.argsort(cell, kind='stable')
  # A cell is a row, numbered by block and feature; equal cells are entries of
  # one row.
  cell = cell[order]
  starts = np.flatnonzero(np.diff(cell, prepend=-1))
  row_block, row_feature = np.divmod(cell[starts], n_features)
  return (
    (column - columns[block])[order],
    weights.data[order],
    np.bincount(row_block, minlength=len(columns) - 1),
    row_feature.astype(np.int32),
    np.diff(starts, append=len(cell)).astype(np.int32),
  )


def _features(
  steps: Int32[np.ndarray, ' rows'], rows: Int64[np.ndarray, ' block_bounds']
) -> Int32[np.ndarray, ' rows']:
  """Computes the features from the steps between the features of a block."""
  # One running sum over all blocks, minus its value before the block. int64,
  # because the sum over all blocks can be more than 2^31.
  sums = np.append(np.int64(0), np.cumsum(steps, dtype=np.int64))
  before = sums[rows[:-1]]
  return (sums[1:] - np.repeat(before, np.diff(rows))).astype(np.int32)
