"""Results of a long computation, kept part by part so that it can go on."""

import dataclasses
import enum
import hashlib
import os
import pathlib

from absl import logging
import numpy as np
from scipy import sparse

from xjax.core.atomic import write_npz
from xjax.core.errors import DAMAGE

_SUFFIX = '.part.npz'
_KEY, _DIGEST = 'part_key', 'part_digest'  # arrays of ours in every file


@dataclasses.dataclass(frozen=True)
class PartFiles:
  """One .npz file for each part that is done.

  Attributes:
    folder: of the files; made when the first is saved.
    key: digest of all that decides the parts: a file of another is redone.
  """

  folder: pathlib.Path
  key: str = ''

  def of(self, *values: object) -> 'PartFiles':
    """Those of parts that these values decide as well (digest)."""
    return dataclasses.replace(self, key=digest(self.key, *values))

  def load(self, name: str) -> dict[str, np.ndarray] | None:
    """A part's arrays; None where it is to be computed.

    A file that is damaged, or of another key, counts as none; the log says so.
    """
    path = self._path(name)
    if not os.path.lexists(path):
      return None
    try:
      with open(path, 'rb') as raw, np.load(raw, allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
      key, said = (str(arrays.pop(x)) for x in (_KEY, _DIGEST))
      # Of the zip's checksums not every byte of a file is part.
      whole = said == digest(key, arrays)
    except DAMAGE:
      whole = False
    if not whole:
      logging.warning('%s: damaged; it is computed again', path)
      return None
    if key != self.key:
      logging.warning('%s: of other data or settings; computed again', path)
      return None
    return arrays

  def save(self, name: str, arrays: dict[str, np.ndarray]) -> None:
    """Keeps a part, wholly or not at all.

    Raises:
      WriteError: it cannot be written.
    """
    said = digest(self.key, arrays)
    own = {_KEY: np.array(self.key), _DIGEST: np.array(said)}
    write_npz(self._path(name), {**arrays, **own})

  def _path(self, name: str) -> pathlib.Path:
    return self.folder / f'{name}{_SUFFIX}'


def digest(*values: object) -> str:
  """SHA-256 of arrays (sparse ones too), numbers, strings, enums, None.

  Dicts, sequences and dataclasses of such are taken apart.

  Raises:
    TypeError: a value is none of these: its bytes might differ between runs.
  """
  found = hashlib.sha256()
  for value in values:
    _add(found, value)
  return found.hexdigest()


def _add(found: 'hashlib._Hash', value: object) -> None:
  """Adds a value in a form that no other value has."""
  match value:
    case np.ndarray() | np.generic():
      if value.dtype.hasobject:
        raise TypeError('arrays of objects have no digest')
      found.update(f'array {value.dtype.str} {value.shape} '.encode())
      found.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
    case enum.Enum():
      found.update(f'{type(value).__name__}.{value.name} '.encode())
    case None | bool() | int() | float() | str():
      found.update(f'{value!r} '.encode())
    case list() | tuple():
      found.update(f'{len(value)} values '.encode())
      for each in value:
        _add(found, each)
    case dict():
      _add(found, sorted(value.items()))
    case _ if sparse.issparse(value):
      rows = sparse.csr_array(value)
      _add(found, [*map(int, rows.shape), rows.indptr, rows.indices, rows.data])
    case _ if dataclasses.is_dataclass(value):
      fields = dataclasses.fields(value)
      _add(found, [(x.name, getattr(value, x.name)) for x in fields])
    case _:
      raise TypeError(f'{type(value).__name__} has no digest')
