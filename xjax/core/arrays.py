"""Arrays of a file that is not believed before it is checked."""

import dataclasses
import os
from typing import NoReturn
import zipfile

import numpy as np

from xjax.core.errors import DAMAGE, DataError
from xjax.core.texts import Texts


@dataclasses.dataclass
class Arrays:
  """The arrays of one .npz file, each taken once.

  Every method raises DataError naming the file and the array.

  Attributes:
    path: of the file, for messages.
    left: arrays not yet taken.
  """

  path: str | os.PathLike
  left: dict[str, np.ndarray]

  @classmethod
  def read(cls, path: str | os.PathLike) -> 'Arrays':
    """Reads all arrays; pickled objects are refused."""
    name = None
    try:
      with zipfile.ZipFile(path) as zipped:
        names = [member.removesuffix('.npy') for member in zipped.namelist()]
      with np.load(path, allow_pickle=False) as file:
        arrays = {}
        for name in names:
          arrays[name] = file[name]
          if not isinstance(arrays[name], np.ndarray):
            raise ValueError('not an array')
        return cls(path, arrays)
    except FileNotFoundError as error:
      raise DataError(f'{path}: no such file') from error
    except DAMAGE as error:
      where = f'{path}: {name}' if name else path
      raise DataError(
        f'{where}: cannot be read ({error}): damaged, or not an .npz file of '
        'arrays; write it again'
      ) from error

  def fail(self, name: str, what: str) -> NoReturn:
    """Raises the error."""
    raise DataError(f'{self.path}: {name}: {what}')

  def check(self, name: str, bad: np.ndarray, what: str) -> None:
    """Fails where any of bad is True, showing the first index of it."""
    if np.any(bad):
      at = ', '.join(map(str, np.argwhere(bad)[0]))
      self.fail(name, f'{what} (at [{at}])')

  def take(
    self, name: str, dtype: type | str, shape: tuple[int | None, ...]
  ) -> np.ndarray:
    """The array, of exactly this type and shape (None: any length)."""
    if name not in self.left:
      self.fail(name, 'missing')
    array = self.left.pop(name)
    fits = len(array.shape) == len(shape) and all(
      want in (None, have)
      for want, have in zip(shape, array.shape, strict=True)
    )
    if array.dtype != dtype or not fits:
      wanted = ', '.join('any' if n is None else str(n) for n in shape)
      self.fail(
        name,
        f'is {array.dtype} {list(array.shape)}, should be {np.dtype(dtype)} '
        f'[{wanted}]',
      )
    return array

  def count(self, name: str) -> int:
    """A non-negative int64."""
    value = int(self.take(name, np.int64, ()))
    if value < 0:
      self.fail(name, f'is {value}, should not be negative')
    return value

  def text(self, name: str) -> str:
    """A scalar string."""
    if name not in self.left:
      self.fail(name, 'missing')
    array = self.left.pop(name)
    if array.shape or array.dtype.kind != 'U':
      self.fail(name, f'is {array.dtype} {list(array.shape)}, should be text')
    return str(array)

  def strings(self, name: str) -> Texts:
    """Strings that differ from each other."""
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
    """Fails unless offsets go from 0 to end and never fall."""
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != end:
      self.fail(name, f'should go from 0 to {end}')
    self.check(name, np.diff(offsets) < 0, 'falls')

  def finish(self) -> None:
    """Fails where an array was not taken."""
    if self.left:
      self.fail(min(self.left), 'unknown array')
