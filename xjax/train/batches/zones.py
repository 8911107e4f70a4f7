"""Pads the token ids of documents whose zones are kept apart."""

import dataclasses
import functools

import numpy as np

from xjax.core.types import PAD, Ragged
from xjax.data.text.words import PAD_ID


@dataclasses.dataclass(frozen=True, eq=False)
class Zones:
  """Holds the token ids of N documents by zone; empty zones are left out."""

  values: np.ndarray  # int32, token ids of all documents, concatenated
  starts: np.ndarray  # int64 [zones], where each zone starts in values
  ends: np.ndarray  # int64 [zones], where it ends
  firsts: np.ndarray  # int64 [N + 1], where the zones of each document start

  @classmethod
  def of(cls, tokens: Ragged) -> 'Zones':
    """Splits each document at the PAD_ID between two zones."""
    # A zone starts at its document's start or after a PAD_ID, and ends before
    # the next one; after sorting, start i belongs to end i.
    between = np.flatnonzero(tokens.values == PAD_ID)
    full = tokens.lengths > 0
    starts = np.concatenate([tokens.indptr[:-1][full], between + 1])
    ends = np.concatenate([tokens.indptr[1:][full], between])
    starts.sort()
    ends.sort()
    firsts = np.searchsorted(starts, tokens.indptr)
    return cls(tokens.values, starts, ends, firsts)

  def __len__(self) -> int:
    return len(self.firsts) - 1

  @property
  def counts(self) -> np.ndarray:
    return np.diff(self.firsts)

  @functools.cached_property
  def lengths(self) -> np.ndarray:
    longest = np.zeros(len(self), np.int64)
    documents = np.repeat(np.arange(len(self)), self.counts)
    np.maximum.at(longest, documents, self.ends - self.starts)
    return longest

  def padded(
    self, rows: np.ndarray, count: int, width: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns tokens [B, Z, T], then PAD_ID, and lengths of zones [B, Z]."""
    firsts = np.where(rows == PAD, 0, self.firsts[rows])
    ends = np.where(rows == PAD, 0, self.firsts[rows + 1])
    zones_BZ = firsts[:, None] + np.arange(count)
    real_BZ = zones_BZ < ends[:, None]
    starts = self.starts[zones_BZ[real_BZ]]
    lengths_BZ = np.zeros(zones_BZ.shape, np.int32)
    lengths_BZ[real_BZ] = self.ends[zones_BZ[real_BZ]] - starts
    # One gather fills all documents: token t of a zone is values[start + t].
    # Places outside a zone are never read, so their start may be 0.
    at_BZ = np.zeros(zones_BZ.shape, np.int64)
    at_BZ[real_BZ] = starts
    steps_T = np.arange(width)
    inside = steps_T < lengths_BZ[..., None]
    tokens_BZT = np.full(inside.shape, PAD_ID, np.int32)
    tokens_BZT[inside] = self.values[(at_BZ[..., None] + steps_T)[inside]]
    return tokens_BZT, lengths_BZ
