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


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike, mode: str = 'w') -> Iterator[IO[Any]]:
  """Opens a temporary file beside path; renamed onto it on success."""
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  handle, name = tempfile.mkstemp(prefix=f'.{path.name}.', dir=path.parent)
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


def write_npz(path: str | os.PathLike, arrays: dict[str, np.ndarray]) -> None:
  """Writes arrays as an uncompressed .npz (never pickled objects)."""
  for name, array in arrays.items():
    if np.asarray(array).dtype.hasobject:
      raise TypeError(f'{name}: object arrays cannot be saved')
  with atomic_write(path, 'wb') as file:
    np.savez(file, allow_pickle=False, **arrays)


def build_folder(
  path: str | os.PathLike, build: Callable[[pathlib.Path], None]
) -> None:
  """Fills a temporary folder with build(folder), then renames it to path.

  Should another process have put the folder there meanwhile, theirs stays.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = pathlib.Path(
    tempfile.mkdtemp(prefix=f'.{path.name}.', dir=path.parent)
  )
  try:
    build(temporary)
    os.chmod(temporary, 0o755)
    try:
      temporary.rename(path)
    except OSError:
      if not path.is_dir():
        raise
  finally:
    shutil.rmtree(temporary, ignore_errors=True)
