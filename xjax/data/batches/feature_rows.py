"""Gives random access to vectors of documents."""

from collections.abc import Sequence
import dataclasses
import hashlib

import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import PAD

# The digest covers the vectors of 64 to 127 documents, or of all documents if
# there are fewer.
_DIGESTED = 64


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureRows:
  """Holds the vectors of N documents, for random access.

  Attributes:
    source: name of the file or encoder, for messages.
    ids: N document ids, for messages.
    vectors: float32 or float16 [all tokens, D], perhaps memory-mapped.
    starts: int64 [N], index of each document's first vector.
    lengths: int64 [N], number of vectors of each document.
  """

  source: str
  ids: Sequence[str]
  vectors: np.ndarray
  starts: np.ndarray
  lengths: np.ndarray

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
    cls,
    source: str,
    ids: Sequence[str],
    arrays: Sequence[np.ndarray],
    dim: int,
  ) -> 'FeatureRows':
    """Makes FeatureRows in memory from one array per document.

    Args:
      source: name of the file or encoder, for messages.
      ids: N document ids.
      arrays: N arrays, float [D] or [tokens, D].
      dim: int, D.

    Raises:
      DataError: an array has another shape, or there are not N arrays.
    """
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
    """Returns the size D of a vector."""
    return self.vectors.shape[1]

  def select(self, rows: np.ndarray, ids: Sequence[str]) -> 'FeatureRows':
    """Returns the vectors of the given documents, in the order of `rows`.

    Args:
      rows: integers, rows of the documents.
      ids: ids of these documents.
    """
    starts, lengths = self.starts[rows], self.lengths[rows]
    return dataclasses.replace(self, ids=ids, starts=starts, lengths=lengths)

  def first(self, max_tokens: int) -> 'FeatureRows':
    """Returns at most the first max_tokens vectors of each document."""
    lengths = np.minimum(self.lengths, max_tokens)
    return dataclasses.replace(self, lengths=lengths)

  def padded(self, rows: np.ndarray, width: int) -> np.ndarray:
    """Returns the padded vectors of documents.

    This method also checks the values of the vectors. An earlier check would
    have to read the vectors of all documents.

    Args:
      rows: integers, rows of the documents, or PAD.
      width: int, number of vectors per document after padding.

    Returns:
      float32 [len(rows), width, D]. Entries are 0 after a document's last
      vector, and for a PAD in `rows`.

    Raises:
      DataError: a value is NaN or infinite.
    """
    starts = np.where(rows == PAD, 0, self.starts[rows])
    lengths = np.where(rows == PAD, 0, self.lengths[rows])
    inside = np.arange(width) < lengths[:, None]
    at = starts[:, None] + np.arange(width)
    out = np.zeros((len(rows), width, self.dim), np.float32)
    out[inside] = self.vectors[at[inside]]
    if not np.isfinite(out).all():
      bad = np.flatnonzero(~np.isfinite(out).all(axis=(1, 2)))
      raise DataError(
        f'{self.source}: document {self.ids[rows[bad[0]]]!a} has values that '
        'are NaN or infinite'
      )
    return out

  def digest(self) -> str:
    """Returns the hex digest of all lengths and some of the vectors."""
    kind = f'{self.vectors.dtype} {self.dim} '
    digest = hashlib.sha256(kind.encode() + self.lengths.tobytes())
    step = max(1, len(self) // _DIGESTED)
    for start, length in zip(self.starts[::step], self.lengths[::step]):
      digest.update(np.ascontiguousarray(self.vectors[start : start + length]))
    return digest.hexdigest()
