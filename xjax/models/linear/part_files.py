"""Saves a long computation part by part, so that a killed run can continue."""

from collections.abc import Mapping
import dataclasses
import os
import pathlib

from absl import logging
from jaxtyping import Shaped
import numpy as np

from xjax.core.atomic import write_npz
from xjax.core.errors import DAMAGE

_COUNT = 'part_count'  # an array with the number of the others
_BEGUN, _SUFFIX = 'begun', '.part.npz'

# Maps names to the arrays of a file. A value may also be a NumPy scalar instead
# of a 0-d array.
FileArrays = Mapping[str, Shaped[np.ndarray, '...'] | np.generic]


@dataclasses.dataclass(frozen=True)
class PartFiles:
  """Reads and writes one .npz file for each finished part of a computation.

  A resumed run has the same config and corpus; `begin` compares the rest.
  """

  folder: pathlib.Path  # save() creates it

  def begin(self, **made_for: np.ndarray) -> None:
    """Removes the parts unless they were made for the same arrays."""
    saved = self.load(_BEGUN) or {}
    if saved.keys() != made_for.keys() or not all(
      np.array_equal(saved[name], made_for[name]) for name in saved
    ):
      for path in self.folder.glob(f'*{_SUFFIX}'):
        path.unlink(missing_ok=True)
      self.save(_BEGUN, made_for)

  def load(self, name: str) -> FileArrays | None:
    """Returns a part; None if its file is absent or damaged."""
    path = self._path(name)
    if not os.path.lexists(path):
      return None
    try:
      # Reading all arrays compares the checksums of the zip file. They do not
      # cover its list of members.
      with open(path, 'rb') as raw, np.load(raw, allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
      if arrays.pop(_COUNT) != len(arrays):
        raise ValueError('arrays are missing')
      return arrays
    # A part is only a shortcut. Training it again is safe, so damage is no
    # error here.
    except DAMAGE:
      logging.warning('%s: is damaged; this part is computed again', path)
      return None

  def save(self, name: str, arrays: FileArrays) -> None:
    """Writes the file of a part; an error leaves no partial file."""
    write_npz(self._path(name), {**arrays, _COUNT: np.int64(len(arrays))})

  def _path(self, name: str) -> pathlib.Path:
    return self.folder / f'{name}{_SUFFIX}'
