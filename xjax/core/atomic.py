"""Writes files so that a killed run never leaves an incomplete file behind."""

from collections.abc import Callable, Iterator
import contextlib
import errno
import json
import os
import pathlib
import re
import shutil
import tempfile
from typing import IO, Any

import numpy as np

from xjax.core.errors import UserError

_TEMPORARY = re.compile(r'\..*\.xjax-(\d+)-\w+\.tmp', re.S)


class WriteError(UserError, OSError):
  """Reports that a file or folder cannot be written; contains its path."""

  @property
  def is_refused(self) -> bool:
    """Returns whether the folder is read-only, at least for this user."""
    refused = errno.EROFS, errno.EACCES, errno.EPERM
    return getattr(self.__cause__, 'errno', None) in refused


@contextlib.contextmanager
def writing(path: str | os.PathLike) -> Iterator[None]:
  """Turns every OSError in this context into a WriteError with the path."""
  try:
    yield
  except WriteError:
    raise
  except OSError as error:
    why = error.strerror or error
    raise WriteError(f'{path}: cannot be written: {why}') from error


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike, mode: str = 'w') -> Iterator[IO[Any]]:
  """Opens a temporary file next to `path`; renames it to `path` on success."""
  # Errors of this file are WriteErrors; others in the block stay as they are.
  path = pathlib.Path(path)
  with writing(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(**_temporary(path))
  try:
    encoding = None if 'b' in mode else 'utf-8'
    with os.fdopen(handle, mode, encoding=encoding) as file:
      yield file
      file.flush()
      os.fsync(file.fileno())
    os.chmod(name, 0o644)
    os.replace(name, path)
  except BaseException as error:
    pathlib.Path(name).unlink(missing_ok=True)
    own = None, name, str(path)
    if isinstance(error, OSError) and error.filename in own:
      with writing(path):  # names the path in the error
        raise
    raise


def write_json(path: str | os.PathLike, value: Any) -> None:
  """Writes indented JSON; NaN and infinity raise a ValueError."""
  with atomic_write(path) as file:
    json.dump(value, file, indent=2, allow_nan=False, ensure_ascii=False)
    file.write('\n')


def write_npz(
  path: str | os.PathLike, arrays: dict[str, np.ndarray], packed: bool = False
) -> None:
  """Writes an .npz file, compressed if `packed`; objects are a TypeError."""
  for name, array in arrays.items():
    if np.asarray(array).dtype.hasobject:
      raise TypeError(f'{name}: object arrays cannot be saved')
  with atomic_write(path, 'wb') as file:
    save = np.savez_compressed if packed else np.savez
    save(file, allow_pickle=False, **arrays)


@contextlib.contextmanager
def temporary_folder(path: str | os.PathLike) -> Iterator[pathlib.Path]:
  """Makes a folder beside `path`, which is removed at the context's end."""
  path = pathlib.Path(path)
  with writing(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = pathlib.Path(tempfile.mkdtemp(**_temporary(path)))
  try:
    yield temporary
  finally:
    shutil.rmtree(temporary, ignore_errors=True)


def check_new_folder(path: pathlib.Path) -> None:
  """Raises WriteError unless the path is free, or an empty folder."""
  with writing(path):
    if os.path.lexists(path) and not (path.is_dir() and not os.listdir(path)):
      raise WriteError(f'{path}: exists already; choose a new folder')


def build_folder(
  path: str | os.PathLike, build: Callable[[pathlib.Path], None]
) -> None:
  """Lets `build` fill a temporary folder, and renames it to `path`."""
  # A folder that another process has created in the meantime stays.
  path = pathlib.Path(path)
  with temporary_folder(path) as temporary:
    build(temporary)
    os.chmod(temporary, 0o755)
    try:
      with writing(path):
        temporary.rename(path)
    except WriteError:
      # An empty folder is no other process's: it may be a mount point.
      if not path.is_dir() or not any(path.iterdir()):
        raise


def _temporary(path: pathlib.Path) -> dict[str, Any]:
  """Returns arguments of tempfile for the name `.NAME.xjax-PID-RANDOM.tmp`."""
  return {
    'prefix': f'.{path.name}.xjax-{os.getpid()}-',
    'suffix': '.tmp',
    'dir': path.parent,
  }


def remove_temporaries(folder: str | os.PathLike, files: str = '**/*') -> None:
  """Removes what killed processes have left of atomic_write and build_folder.

  The files of processes that are alive on this machine stay, and so do all
  files with other names. The caller must have locked the folder, or must be the
  only one who writes these files. `files` is the glob pattern of the paths that
  the killed processes were writing.
  """
  where, slash, name = files.rpartition('/')
  pattern = f'{where}{slash}.{name}.xjax-*.tmp'
  for path in list(pathlib.Path(folder).glob(pattern)):
    match = _TEMPORARY.fullmatch(path.name)
    if not match or _is_another(int(match[1])):
      continue
    with writing(path):
      if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
      else:
        path.unlink(missing_ok=True)


def _is_another(pid: int) -> bool:
  """Returns whether a process id is that of another living process."""
  # In containers, a process often has the id of the killed one before it.
  if pid == os.getpid():
    return False
  try:
    os.kill(pid, 0)
  except (ProcessLookupError, OverflowError):
    return False
  except PermissionError:  # the process of another user
    return True
  return True
