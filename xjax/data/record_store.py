"""Records on disk by random access: what is read need not stay in memory."""

from array import array
from collections.abc import Sequence
import json
import os
import pathlib
import tempfile
from typing import Any
import weakref

from xjax.core.errors import UserError


def to_bytes(record: Any) -> bytes:
  """A JSON value as UTF-8, the same for the same value."""
  return json.dumps(record, ensure_ascii=False).encode('utf-8')


class RecordStore(Sequence):
  """JSON values in a temporary file, which goes when the store goes.

  Args:
    folder: where the temporary file is made; None: the system's place.

  Raises:
    UserError: it cannot be made there.
  """

  def __init__(self, folder: pathlib.Path | None = None):
    try:
      if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
      # Without a name in the folder, so that not even a killed run leaves it.
      self._file = tempfile.TemporaryFile(dir=folder)
    except OSError as error:
      raise UserError(
        f'{folder}: no file can be made here ({error.strerror}); give another '
        'folder as --config.data.cache_dir'
      ) from error
    self._ends = array('q')
    self._written = True
    weakref.finalize(self, self._file.close)

  def append(self, record: Any) -> bytes:
    """Adds a JSON value; returns its bytes."""
    data = to_bytes(record)
    self._file.write(data)
    self._ends.append((self._ends[-1] if self._ends else 0) + len(data))
    self._written = False
    return data

  def __len__(self) -> int:
    return len(self._ends)

  def __getitem__(self, row: int) -> Any:
    row = range(len(self))[row]
    if not self._written:
      self._file.flush()
      self._written = True
    start = self._ends[row - 1] if row else 0
    # pread moves no file position, so that threads can read at once.
    data = os.pread(self._file.fileno(), self._ends[row] - start, start)
    return json.loads(data)
