"""Saves a long computation part by part, so that a killed run can continue."""

from collections.abc import Mapping
import dataclasses
import enum
import hashlib
import os
import pathlib

from absl import logging
from jaxtyping import Shaped
import numpy as np
from scipy import sparse

from xjax.core.atomic import write_npz
from xjax.core.errors import DAMAGE

_SUFFIX = '.part.npz'
_KEY, _DIGEST = 'part_key', 'part_digest'  # arrays in every file

# Maps names to the arrays of a file. A value may also be a NumPy scalar instead
# of a 0-d array.
FileArrays = Mapping[str, Shaped[np.ndarray, '...'] | np.generic]


@dataclasses.dataclass(frozen=True)
class PartFiles:
  """Reads and writes one .npz file for each finished part of a computation."""

  folder: pathlib.Path  # save() creates it
  key: str = ''  # a digest of everything that the parts depend on

  def of(self, *values: object) -> 'PartFiles':
    """Returns PartFiles whose key also depends on values; see `digest`."""
    return dataclasses.replace(self, key=digest(self.key, *values))

  def load(self, name: str) -> FileArrays | None:
    """Returns a part; None if its file is absent, damaged or of another key."""
    path = self._path(name)
    if not os.path.lexists(path):
      return None
    try:
      with open(path, 'rb') as raw, np.load(raw, allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
      key, saved_digest = (str(arrays.pop(x)) for x in (_KEY, _DIGEST))
      # The zip file's checksums do not cover every byte of the file.
      intact = saved_digest == digest(key, arrays)
    except DAMAGE:
      intact = False
    if not intact:
      logging.warning('%s: is damaged; this part is computed again', path)
      return None
    if key != self.key:
      logging.warning(
        '%s: was made from other data or settings; this part is computed again',
        path,
      )
      return None
    return arrays

  def save(self, name: str, arrays: FileArrays) -> None:
    """Writes the file of a part; an error leaves no partial file."""
    added = {
      _KEY: np.array(self.key),
      _DIGEST: np.array(digest(self.key, arrays)),
    }
    write_npz(self._path(name), {**arrays, **added})

  def _path(self, name: str) -> pathlib.Path:
    return self.folder / f'{name}{_SUFFIX}'


def digest(*values: object) -> str:
  """Returns a SHA-256 digest of values, the same in every run.

  Values are arrays (also sparse ones), numbers, strings, enum members, None;
  and dicts, lists, tuples and dataclasses of these. Another type is a
  TypeError, since its bytes might differ between runs.
  """
  hasher = hashlib.sha256()
  for value in values:
    _add(hasher, value)
  return hasher.hexdigest()


def _add(hasher: 'hashlib._Hash', value: object) -> None:
  """Adds a value to the hash. Different values add different bytes."""
  match value:
    case np.ndarray() | np.generic():
      if value.dtype.hasobject:
        raise TypeError(
          'an array of Python objects has no digest; use a numeric dtype'
        )
      hasher.update(f'array {value.dtype.str} {value.shape} '.encode())
      hasher.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
    case enum.Enum():
      hasher.update(f'{type(value).__name__}.{value.name} '.encode())
    case None | bool() | int() | float() | str():
      hasher.update(f'{value!r} '.encode())
    case list() | tuple():
      hasher.update(f'{len(value)} values '.encode())
      for item in value:
        _add(hasher, item)
    case dict():
      _add(hasher, sorted(value.items()))
    case _ if sparse.issparse(value):
      rows = sparse.csr_array(value)
      shape = map(int, rows.shape)
      _add(hasher, [*shape, rows.indptr, rows.indices, rows.data])
    case _ if dataclasses.is_dataclass(value):
      fields = dataclasses.fields(value)
      _add(hasher, [(x.name, getattr(value, x.name)) for x in fields])
    case _:
      raise TypeError(
        f'a value of type {type(value).__name__} has no digest; use arrays, '
        'numbers, strings, enum members, dicts, lists or dataclasses'
      )
