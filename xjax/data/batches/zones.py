"""Documents whose zones are kept apart."""

import dataclasses
import functools

import numpy as np

from xjax.core.types import PAD, Ragged
from xjax.data.text.words import PAD_ID


@dataclasses.dataclass(frozen=True, eq=False)
class Zones:
  """The zones of N documents, those with words alone.

  Attributes:
    values: int32 token ids, all documents end to end.
    starts: int64, where each zone begins in values.
    ends: int64, where it ends.
    firsts: int64 [N + 1], document i has zones firsts[i]:firsts[i + 1].
  """

  values: np.ndarray
  starts: np.ndarray
  ends: np.ndarray
  firsts: np.ndarray

  @classmethod
  def of(cls, tokens: Ragged) -> 'Zones':
    """Of rows that have a PAD_ID between zones, as tokenise makes them."""
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
    """int64 [N] zones of each document."""
    return np.diff(self.firsts)

  @functools.cached_property
  def lengths(self) -> np.ndarray:
    """int64 [N] tokens of each document's longest zone."""
    longest = np.zeros(len(self), np.int64)
    documents = np.repeat(np.arange(len(self)), self.counts)
    np.maximum.at(longest, documents, self.ends - self.starts)
    return longest

  def padded(
    self, rows: np.ndarray, count: int, width: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Documents' tokens by zone; a PAD row has no zone.

    Args:
      rows: int [B] documents.
      count: Z, at least the zones of any of them.
      width: T, at least the tokens of any of their zones.

    Returns:
      int32 [B, Z, T], PAD_ID beyond a zone's tokens, and their lengths, int32
      [B, Z], 0 beyond a document's zones.
    """
    firsts = np.where(rows == PAD, 0, self.firsts[rows])
    ends = np.where(rows == PAD, 0, self.firsts[rows + 1])
    zones_BZ = firsts[:, None] + np.arange(count)
    there_BZ = zones_BZ < ends[:, None]
    starts = self.starts[zones_BZ[there_BZ]]
    lengths_BZ = np.zeros(zones_BZ.shape, np.int32)
    lengths_BZ[there_BZ] = self.ends[zones_BZ[there_BZ]] - starts
    at_BZ = np.zeros(zones_BZ.shape, np.int64)
    at_BZ[there_BZ] = starts
    steps_T = np.arange(width)
    inside = steps_T < lengths_BZ[..., None]
    tokens_BZT = np.full(inside.shape, PAD_ID, np.int32)
    tokens_BZT[inside] = self.values[(at_BZ[..., None] + steps_T)[inside]]
    return tokens_BZT, lengths_BZ
