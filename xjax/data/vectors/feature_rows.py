"""Gives random access to vectors of documents."""

from collections.abc import Sequence
import dataclasses
import hashlib

import numpy as np

from xjax.core.errors import DataError
from xjax.core.progress import Progress
from xjax.core.types import PAD

_HASHED = 64  # documents whose vectors are in memory while they are hashed


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureRows:
  """Holds the vectors of N documents, for random access."""

  source: str  # name of the file or encoder, for messages
  ids: Sequence[str]  # N document ids, for messages
  vectors: np.ndarray  # float32 or float16 [all tokens, D], maybe mapped
  starts: np.ndarray  # int64 [N], index of each document's first vector
  lengths: np.ndarray  # int64 [N], number of vectors of each document

  @classmethod
  def of(
    cls,
    source: str,
    ids: Sequence[str],
    vectors: np.ndarray,
    lengths: np.ndarray,
  ) -> 'FeatureRows':
    """Makes FeatureRows from the vectors of all documents, concatenated."""
    lengths = np.asarray(lengths, np.int64)
    return cls(source, ids, vectors, np.cumsum(lengths) - lengths, lengths)

  @classmethod
  def from_arrays(
    cls, source: str, ids: Sequence[str], arrays: Sequence[np.ndarray], dim: int
  ) -> 'FeatureRows':
    """Makes FeatureRows of N arrays, [D] or [tokens, D]; else a DataError."""
    if len(arrays) != len(ids):
      raise DataError(
        f'{source}: {len(arrays)} array(s) for {len(ids)} documents'
      )
    parts = [np.zeros((0, dim), np.float32)]
    for id_, array in zip(ids, arrays):
      array = np.asarray(array, np.float32)
      if array.ndim not in (1, 2) or array.shape[-1] != dim:
        raise DataError(
          f'{source}: the array of document {id_!a} has the shape '
          f'{array.shape}, not [{dim}] or [tokens, {dim}]'
        )
      parts.append(np.atleast_2d(array))
    lengths = [len(array) for array in parts[1:]]
    return cls.of(source, ids, np.concatenate(parts), lengths)

  def __len__(self) -> int:
    return len(self.starts)

  @property
  def dim(self) -> int:
    return self.vectors.shape[1]

  def select(self, rows: np.ndarray, ids: Sequence[str]) -> 'FeatureRows':
    starts, lengths = self.starts[rows], self.lengths[rows]
    return dataclasses.replace(self, ids=ids, starts=starts, lengths=lengths)

  def first(self, max_tokens: int) -> 'FeatureRows':
    """Returns at most the first max_tokens vectors of each document."""
    lengths = np.minimum(self.lengths, max_tokens)
    return dataclasses.replace(self, lengths=lengths)

  def padded(self, rows: np.ndarray, width: int) -> np.ndarray:
    """Returns padded vectors, float32 [len(rows), width, D], 0 for PAD."""
    # Vectors must be finite, and so must be their squared lengths.
    starts = np.where(rows == PAD, 0, self.starts[rows])
    lengths = np.where(rows == PAD, 0, self.lengths[rows])
    inside = np.arange(width) < lengths[:, None]
    at = starts[:, None] + np.arange(width)
    out = np.zeros((len(rows), width, self.dim), np.float32)
    out[inside] = self.vectors[at[inside]]
    fits_BT = np.isfinite(np.einsum('btd,btd->bt', out, out))
    if not fits_BT.all():
      row = int(np.argmin(fits_BT.all(axis=1)))
      raise DataError(
        f'{self.source}: document {self.ids[rows[row]]!a} has values that are '
        'NaN, infinite or too large; the squared length of a vector must be '
        'below 3.4e38'
      )
    return out

  def digest(self) -> str:
    kind = f'{self.vectors.dtype} {self.dim} '
    digest = hashlib.sha256(kind.encode() + self.lengths.tobytes())
    with Progress(f'checking {self.source}', len(self)) as shown:
      for first in range(0, len(self), _HASHED):
        starts = self.starts[first : first + _HASHED]
        lengths = self.lengths[first : first + _HASHED]
        shift = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        at = np.arange(len(shift)) + shift
        digest.update(np.ascontiguousarray(self.vectors[at]))
        shown.update(len(starts))
    return digest.hexdigest()
