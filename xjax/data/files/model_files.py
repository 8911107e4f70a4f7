"""Single files of a model's folder, which anyone may have made."""

import json
import os
import pathlib
import re
from typing import Any

from xjax.core.errors import DataError
from xjax.data.files.faults import Fault
from xjax.data.files.json_lines import parse_object

_PLAIN = re.compile(r'[\w-][\w.-]*', re.ASCII)
_LARGEST = 2**26  # bytes; a tokenizer of 250,000 pieces has 2**24


def has_file(folder: pathlib.Path, name: str) -> bool:
  """Whether anything of that name is in the folder, a broken link as well."""
  return os.path.lexists(folder / name)


def safe_path(folder: pathlib.Path, name: str) -> pathlib.Path:
  """The file of a name that a model's folder has, or that its index lists.

  Links must stay within the folder; in Hugging Face's cache, where a folder's
  files are links to blobs/, within the model's part of the cache.

  Raises:
    DataError: the name leads elsewhere, or there is no such file.
  """
  if not _PLAIN.fullmatch(name):
    raise DataError(
      f'{folder}: {json.dumps(name)[:200]} is not the name of a file in this '
      'folder; files elsewhere are not read'
    )
  path = folder / name
  try:
    real, home = path.resolve(strict=True), folder.resolve(strict=True)
  except (OSError, RuntimeError) as error:
    raise DataError(f'{path}: there is no such file') from error
  if not any(real.is_relative_to(place) for place in _places(home)):
    raise DataError(
      f'{path}: is a link to {real}, outside the folder; put the file itself '
      'there'
    )
  if not real.is_file():
    raise DataError(f'{path}: is not a file')
  return path


def safe_small_path(folder: pathlib.Path, name: str) -> pathlib.Path:
  """As file_of, of a file that is not weights.

  Raises:
    DataError: as file_of, or it is too large to be one.
  """
  path = safe_path(folder, name)
  size = path.stat().st_size
  if size > _LARGEST:
    raise DataError(f'{path}: {size} bytes are too many for such a file')
  return path


def read_small_file(folder: pathlib.Path, name: str) -> bytes:
  """What is in a file that is not weights.

  Raises:
    DataError: as small_file, or it cannot be read.
  """
  path = safe_small_path(folder, name)
  try:
    return path.read_bytes()
  except OSError as error:
    raise DataError(f'{path}: cannot be read: {error.strerror}') from error


def read_object(folder: pathlib.Path, name: str) -> dict[str, Any]:
  """The JSON object in a file of the folder.

  Raises:
    DataError: as read_small, or it holds anything else, or what cannot be
      written again.
  """
  try:
    found = parse_object(read_small_file(folder, name))
    _check_written(found)
  except Fault as fault:
    raise DataError(f'{folder / name}: {fault}; get the file anew') from fault
  return found


def _check_written(found: dict[str, Any]) -> None:
  """Workdirs keep such an object: not all that is read can be written."""
  try:
    json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
  except UnicodeEncodeError as error:
    raise Fault('holds half of a surrogate pair') from error
  except ValueError as error:
    raise Fault('holds a number beyond float64') from error


def shown(value: Any) -> str:
  """A value of a file, as messages show it: no control characters, not long."""
  return 'missing' if value is None else json.dumps(value)[:200]


def _places(home: pathlib.Path) -> list[pathlib.Path]:
  """Where the files of a folder may really lie."""
  # models--NAME/snapshots/COMMIT/config.json -> ../../blobs/HASH
  in_cache = home.parent.name == 'snapshots' and home.parent.parent.name
  if in_cache and in_cache.startswith('models--'):
    return [home, home.parent.parent / 'blobs']
  return [home]
