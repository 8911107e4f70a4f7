"""Reads and checks the arrays of .npz files, and of sparse matrices."""

import dataclasses
import os
from typing import NoReturn

from jaxtyping import Float32, Int, UInt32
import numpy as np
from scipy import sparse

from xjax.core.errors import DAMAGE, DataError
from xjax.core.texts import Texts
from xjax.core.types import Ragged


@dataclasses.dataclass
class Arrays:
  """Holds an .npz file's arrays; a failed check is a DataError with names."""

  path: str | os.PathLike
  left: dict[str, np.ndarray]  # arrays that were not taken yet, by name

  @classmethod
  def read(cls, path: str | os.PathLike) -> 'Arrays':
    """Reads all arrays of a file; pickled objects raise a DataError."""
    name = None
    try:
      # NumPy leaves a damaged file that it opens itself open.
      with open(path, 'rb') as raw, np.load(raw, allow_pickle=False) as file:
        arrays = {}
        for name in file.files:
          arrays[name] = file[name]
          if not isinstance(arrays[name], np.ndarray):
            raise ValueError('not an array')
        return cls(path, arrays)
    except FileNotFoundError as error:
      raise DataError(f'{path}: no such file') from error
    except DAMAGE as error:
      where = f'{path}: {name}' if name else path
      raise DataError(
        f'{where}: cannot be read ({error}). The file is damaged, or is not an '
        '.npz file of arrays; write the file again'
      ) from error

  def fail(self, name: str, fault: str) -> NoReturn:
    raise DataError(f'{self.path}: {name}: {fault}')

  def check(self, name: str, bad: np.ndarray, fault: str) -> None:
    """Raises a DataError, with the index of the first bad entry, if any."""
    if np.any(bad):
      at = ', '.join(map(str, np.argwhere(bad)[0]))
      self.fail(name, f'{fault} (at [{at}])')

  def take(
    self, name: str, dtype: type | str, shape: tuple[int | None, ...]
  ) -> np.ndarray:
    """Returns an array after checking its type and shape; None: any length."""
    if name not in self.left:
      self.fail(name, 'missing')
    array = self.left.pop(name)
    fits = len(array.shape) == len(shape) and all(
      expected in (None, actual)
      for expected, actual in zip(shape, array.shape, strict=True)
    )
    if array.dtype != dtype or not fits:
      expected = ', '.join('any' if n is None else str(n) for n in shape)
      self.fail(
        name,
        f'is {array.dtype} {list(array.shape)}, should be {np.dtype(dtype)} '
        f'[{expected}]',
      )
    return array

  def count(self, name: str) -> int:
    """Returns a count, which is an int64 scalar in the file."""
    value = int(self.take(name, np.int64, ()))
    if value < 0:
      self.fail(name, f'is {value}, should not be negative')
    return value

  def text(self, name: str) -> str:
    if name not in self.left:
      self.fail(name, 'missing')
    array = self.left.pop(name)
    if array.shape or array.dtype.kind != 'U':
      self.fail(name, f'is {array.dtype} {list(array.shape)}, should be text')
    return str(array)

  def strings(self, name: str) -> Texts:
    """Returns packed strings after checking that no two are equal."""
    packed = self.take(f'{name}/bytes', np.uint8, (None,))
    offsets = self.take(f'{name}/offsets', np.int64, (None,))
    self.check_offsets(f'{name}/offsets', offsets, len(packed))
    strings = Texts(packed, offsets)
    try:
      for _ in strings:
        pass
    except UnicodeDecodeError as error:
      self.fail(f'{name}/bytes', f'not UTF-8: {error}')
    if strings.row_of.repeated():
      self.fail(f'{name}/bytes', 'the same string twice')
    return strings

  def check_offsets(self, name: str, offsets: np.ndarray, end: int) -> None:
    """Raises a DataError unless offsets ascend from 0 to `end`."""
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != end:
      self.fail(name, f'should go from 0 to {end}')
    self.check(name, np.diff(offsets) < 0, 'falls')

  def rows(self, name: str, end: int, n: int | None = None) -> Ragged:
    """Returns `n` rows of ascending int32 numbers below `end` (rows_arrays)."""
    indptr, indices = f'{name}/indptr', f'{name}/indices'
    starts = self.take(indptr, np.int64, (None if n is None else n + 1,))
    numbers = self.take(indices, np.int32, (None,))
    self.check_offsets(indptr, starts, len(numbers))
    outside = (numbers < 0) | (numbers >= end)
    self.check(indices, outside, f'is not in 0..{end - 1}')
    rows = Ragged(starts, numbers)
    self.check(indices, rows.descends(), 'does not ascend')
    return rows

  def matrix(self, name: str, end: int) -> sparse.csr_array:
    """Returns a finite float32 matrix of `end` columns (see matrix_arrays)."""
    rows = self.rows(name, end)
    values = self.take(f'{name}/values', np.float32, (len(rows.values),))
    self.check(f'{name}/values', ~np.isfinite(values), 'is not finite')
    parts = values, rows.values, rows.indptr
    return sparse.csr_array(parts, (len(rows), end))

  def finish(self) -> None:
    """Raises a DataError if the file has an array that was not taken."""
    if self.left:
      self.fail(min(self.left), 'unknown array')


def rows_arrays(name: str, rows: Ragged) -> dict[str, np.ndarray]:
  """Returns the arrays that Arrays.rows reads."""
  return {
    f'{name}/indptr': rows.indptr.astype(np.int64),
    f'{name}/indices': rows.values.astype(np.int32),
  }


def matrix_arrays(name: str, matrix: sparse.csr_array) -> dict[str, np.ndarray]:
  """Returns the arrays that Arrays.matrix reads; columns ascend in each row."""
  if not matrix.has_sorted_indices:
    matrix = matrix.sorted_indices()
  return {
    **rows_arrays(name, Ragged(matrix.indptr, matrix.indices)),
    f'{name}/values': matrix.data.astype(np.float32),
  }


def csr_arrays(
  rows: sparse.csr_array,
) -> tuple[
  Int[np.ndarray, ' row_bounds'],
  UInt32[np.ndarray, ' entries'],
  Float32[np.ndarray, ' entries'],
]:
  """Returns row bounds, columns and values of a matrix, for compiled loops."""
  # Unsigned columns: compiled code need not check whether they are negative.
  columns = rows.indices.astype(np.int32, copy=False).view(np.uint32)
  return rows.indptr, columns, rows.data
