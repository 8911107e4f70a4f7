"""Defines the letters of array axes, and the types that all packages share.

Array names end in the letters of their axes; einsum strings use the same
letters:

  B  documents of a batch          L  labels
  T  tokens of a document          C  labels of one chunk
  D  features                      K  entries of a top-k list
  P  padded positives of a document
  S  tokens of a label descriptor  G  slices of the label space
  N  documents of a split          Z  zones of a document
  E  features of a descriptor      A  entries of a shortlist
  U  units of a layer: hidden units of a GRU or an MLP, filters of a convolution
  V  gates of a recurrent layer: three per unit of a GRU, four of an LSTM
  W  words that explain a label
  X  several axes flattened into one, such as B and T
  Y  distinct labels of the shortlists of a batch

The metrics also use these letters:

  J  cut-offs k                    M  sums over documents
  F  frequency bins of labels      H  labels that are counted one by one
  R  bootstrap replicates
  Q  sets of decisions: the first k labels, or the labels above a threshold

An axis without a letter is spelled out, as in `new_by_block`.
"""

from collections.abc import Sequence
import dataclasses
import enum

import numpy as np

PAD = -1  # fills padded ids: positives_BP, short top-k lists, doc_B
MOST_RANKS = 1_000_000  # the largest k; metrics have arrays of this size
AS_LOGITS = (1.0, 0.0)  # a and b of sigmoid(a z + b) if scores z are logits


def offsets_of(lengths: np.ndarray | Sequence[int]) -> np.ndarray:
  """Returns the start of each of N rows, and the end, int64 [N + 1]."""
  return np.append(np.int64(0), np.cumsum(lengths, dtype=np.int64))


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
  """Holds rows of integers; row i is values[indptr[i]:indptr[i + 1]]."""

  indptr: np.ndarray  # int64 [N + 1]
  values: np.ndarray  # int32, all rows, concatenated

  @classmethod
  def of(cls, rows: Sequence[Sequence[int]]) -> 'Ragged':
    offsets = offsets_of([len(row) for row in rows])
    parts = [np.asarray(row, np.int32) for row in rows]
    return cls(offsets, np.concatenate([np.zeros(0, np.int32), *parts]))

  @classmethod
  def of_cells(cls, cells: np.ndarray, n: int, width: int) -> 'Ragged':
    """Returns the n rows with these cells, which ascend (see cells)."""
    rows, values = np.divmod(cells, max(width, 1))
    indptr = np.searchsorted(rows, np.arange(n + 1))
    return cls(indptr.astype(np.int64), values.astype(np.int32))

  def __len__(self) -> int:
    return len(self.indptr) - 1

  def __getitem__(self, row: int) -> np.ndarray:
    return self.values[self.indptr[row] : self.indptr[row + 1]]

  @property
  def lengths(self) -> np.ndarray:
    """Returns the number of entries of each row, int64 [N]."""
    return np.diff(self.indptr)

  @property
  def owners(self) -> np.ndarray:
    """Returns the row of each value, int64."""
    return np.repeat(np.arange(len(self)), self.lengths)

  def cells(self, width: int) -> np.ndarray:
    """Returns row * width + value for each value, int64; values < width."""
    # Rows times values can be more than 2^31.
    return self.owners * np.int64(width) + self.values

  def inverse(self, n: int) -> 'Ragged':
    """Returns for each value from 0 to n - 1 the rows that have it."""
    order = np.argsort(self.values, kind='stable')
    counts = np.bincount(self.values, minlength=n)
    return Ragged(offsets_of(counts), self.owners[order].astype(np.int32))

  def descends(self) -> np.ndarray:
    """Returns for each value whether the one before in its row is no less."""
    descends = np.zeros(len(self.values), bool)
    descends[1:] = self.values[1:] <= self.values[:-1]  # also if unsigned
    descends[self.indptr[:-1][self.lengths > 0]] = False
    return descends

  def ascending(self) -> 'Ragged':
    """Returns the rows with ascending values."""
    if not self.descends().any():
      return self
    order = np.lexsort((self.values, self.owners))
    return Ragged(self.indptr, self.values[order])

  def keep(self, kept: np.ndarray) -> 'Ragged':
    """Returns the rows with only the values for which `kept` (bool) is True."""
    return Ragged(offsets_of(kept)[self.indptr], self.values[kept])

  def take(self, rows: np.ndarray) -> 'Ragged':
    starts, ends = self.indptr[:-1][rows], self.indptr[1:][rows]
    indptr = offsets_of(ends - starts)
    shift = np.repeat(starts - indptr[:-1], ends - starts)
    return Ragged(indptr, self.values[np.arange(indptr[-1]) + shift])

  def padded(self, rows: np.ndarray, width: int, fill: int) -> np.ndarray:
    """Returns rows as int32 [len(rows), width]; PAD is an empty row."""
    # Nothing is truncated: a row longer than `width` is a ValueError.
    rows = np.asarray(rows)
    starts = np.where(rows == PAD, 0, self.indptr[rows])
    ends = np.where(rows == PAD, 0, self.indptr[rows + 1])
    if len(rows) and (ends - starts).max() > width:
      raise ValueError(f'a row has more than {width} entries')
    at = starts[:, None] + np.arange(width)
    inside = at < ends[:, None]
    out = np.full((len(rows), width), fill, np.int32)
    out[inside] = self.values[at[inside]]
    return out


class ScoreKind(enum.Enum):
  """Says what a scorer's scores mean."""

  # Labels are ranked by these scores, never by a sigmoid of them: a sigmoid
  # rounds different high scores to 1.

  LOGIT = 'logit'
  PROBABILITY = 'probability'
  MARGIN = 'margin'
