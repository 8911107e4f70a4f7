"""Writing files so that a killed run never leaves half of one in place."""

from collections.abc import Callable, Iterator
import contextlib
import json
import os
import pathlib
import shutil
import tempfile
from typing import IO, Any

import numpy as np

from xjax.core.errors import UserError


class WriteError(UserError, OSError):
  """A file or folder that cannot be written; the message names it."""


@contextlib.contextmanager
def writing(path: str | os.PathLike) -> Iterator[None]:
  """Makes every OSError within a WriteError that names path."""
  try:
    yield
  except WriteError:
    raise
  except OSError as error:
    why = error.strerror or error
    raise WriteError(f'{path}: cannot be written: {why}') from error


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike, mode: str = 'w') -> Iterator[IO[Any]]:
  """Opens a temporary file beside path; renamed onto it on success.

  Raises:
    WriteError: it cannot be written.
  """
  path = pathlib.Path(path)
  with writing(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f'.{path.name}.', dir=path.parent)
    with _renamed(handle, name, path, mode) as file:
      yield file


@contextlib.contextmanager
def _renamed(
  handle: int, name: str, path: pathlib.Path, mode: str
) -> Iterator[IO[Any]]:
  encoding = None if 'b' in mode else 'utf-8'
  try:
    with os.fdopen(handle, mode, encoding=encoding) as file:
      yield file
      file.flush()
      os.fsync(file.fileno())
    os.chmod(name, 0o644)
    os.replace(name, path)
  except BaseException:
    pathlib.Path(name).unlink(missing_ok=True)
    raise


def write_json(path: str | os.PathLike, value: Any) -> None:
  """Writes indented JSON; NaN and infinity are refused."""
  with atomic_write(path) as file:
    json.dump(value, file, indent=2, allow_nan=False, ensure_ascii=False)
    file.write('\n')


def write_npz(
  path: str | os.PathLike, arrays: dict[str, np.ndarray], packed: bool = False
) -> None:
  """Writes arrays as an .npz (never pickled objects), packed or not."""
  for name, array in arrays.items():
    if np.asarray(array).dtype.hasobject:
      raise TypeError(f'{name}: object arrays cannot be saved')
  with atomic_write(path, 'wb') as file:
    save = np.savez_compressed if packed else np.savez
    save(file, allow_pickle=False, **arrays)


def build_folder(
  path: str | os.PathLike, build: Callable[[pathlib.Path], None]
) -> None:
  """Fills a temporary folder with build(folder), then renames it to path.

  Should another process have put the folder there meanwhile, theirs stays.

  Raises:
    WriteError: it cannot be made.
  """
  path = pathlib.Path(path)
  with writing(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = pathlib.Path(
      tempfile.mkdtemp(prefix=f'.{path.name}.', dir=path.parent)
    )
  try:
    build(temporary)
    os.chmod(temporary, 0o755)
    try:
      with writing(path):
        temporary.rename(path)
    except WriteError:
      if not path.is_dir():
        raise
  finally:
    shutil.rmtree(temporary, ignore_errors=True)
