"""Records on disk by random access: what is read need not stay in memory."""

from array import array
from collections.abc import Iterator, Sequence
import contextlib
import json
import os
import pathlib
import tempfile
from typing import IO, Any
import weakref

from xjax.core.errors import UserError


def to_bytes(record: Any) -> bytes:
  """A JSON value as UTF-8, the same for the same value."""
  return json.dumps(record, ensure_ascii=False).encode('utf-8')


class RecordStore(Sequence):
  """JSON values in a temporary file, which goes when the store goes.

  Args:
    folder: where the temporary file is made, once there is a value; None: the
      system's place.
  """

  def __init__(self, folder: pathlib.Path | None = None):
    self._folder = folder
    self._file: IO[bytes] | None = None
    self._ends = array('q')
    self._written = True

  def append(self, record: Any) -> bytes:
    """Adds a JSON value; returns its bytes.

    Raises:
      UserError: the file cannot be made or written.
    """
    data = to_bytes(record)
    with self._told():
      if self._file is None:
        self._file = self._open()
      self._file.write(data)
    self._ends.append((self._ends[-1] if self._ends else 0) + len(data))
    self._written = False
    return data

  def __len__(self) -> int:
    return len(self._ends)

  def __getitem__(self, row: int) -> Any:
    row = range(len(self))[row]
    if not self._written:
      with self._told():
        self._file.flush()
      self._written = True
    start = self._ends[row - 1] if row else 0
    # pread moves no file position, so that threads can read at once.
    data = os.pread(self._file.fileno(), self._ends[row] - start, start)
    return json.loads(data)

  def _open(self) -> IO[bytes]:
    if self._folder is not None:
      self._folder.mkdir(parents=True, exist_ok=True)
    # Without a name in the folder, so that not even a killed run leaves it.
    file = tempfile.TemporaryFile(dir=self._folder)
    weakref.finalize(self, _close, file)
    return file

  @contextlib.contextmanager
  def _told(self) -> Iterator[None]:
    try:
      yield
    except OSError as error:
      raise UserError(self._failure(error)) from error

  def _failure(self, error: OSError) -> str:
    what = f'temporary data cannot be written ({error.strerror})'
    if self._folder is not None:
      return f'{self._folder}: {what}; see --config.data.cache_dir'
    folder = tempfile.tempdir or 'no temporary folder'
    return f'{folder}: {what}; give another folder in the variable TMPDIR'


def _close(file: IO[bytes]) -> None:
  # What a full disk left in the buffer is not wanted any more.
  with contextlib.suppress(OSError):
    file.close()
