"""Reads single files of a model's folder, and rejects unsafe files."""

import json
import os
import pathlib
import re
from typing import Any

from xjax.core.errors import DataError
from xjax.data.files.faults import Fault
from xjax.data.files.json_lines import parse_object

_PLAIN = re.compile(r'[\w-][\w.-]*', re.ASCII)
_LARGEST = 2**26  # bytes; a tokenizer with 250,000 pieces has 2**24 bytes


def has_file(folder: pathlib.Path, name: str) -> bool:
  """Returns whether a file or link of this name exists, even a broken link."""
  return os.path.lexists(folder / name)


def safe_path(folder: pathlib.Path, name: str) -> pathlib.Path:
  """Checks that a file is inside a model's folder, and returns its path."""
  # Links must stay inside, or lead to `blobs` in Hugging Face's cache.
  if not _PLAIN.fullmatch(name):
    raise DataError(
      f'{folder}: {json.dumps(name)[:200]} is not the name of a file in this '
      'folder; files outside the folder are not read'
    )
  path = folder / name
  try:
    real, home = path.resolve(strict=True), folder.resolve(strict=True)
  except (OSError, RuntimeError) as error:
    raise DataError(f'{path}: there is no such file') from error
  if not any(real.is_relative_to(root) for root in _allowed_roots(home)):
    raise DataError(
      f'{path}: is a link to {real}, outside the folder; replace the link by '
      'the file itself'
    )
  if not real.is_file():
    raise DataError(f'{path}: is not a file')
  return path


def safe_small_path(folder: pathlib.Path, name: str) -> pathlib.Path:
  """Checks a file as safe_path does, and that it has at most 2**26 bytes."""
  path = safe_path(folder, name)
  size = path.stat().st_size
  if size > _LARGEST:
    raise DataError(
      f'{path}: the file has {size} bytes; at most {_LARGEST} are allowed'
    )
  return path


def read_small_file(folder: pathlib.Path, name: str) -> bytes:
  """Reads a small file of a model's folder, such as a config."""
  path = safe_small_path(folder, name)
  try:
    return path.read_bytes()
  except OSError as error:
    raise DataError(f'{path}: cannot be read: {error.strerror}') from error


def read_object(folder: pathlib.Path, name: str) -> dict[str, Any]:
  """Reads a small file with a JSON object that can be saved as JSON again."""
  try:
    content = parse_object(read_small_file(folder, name))
    _check_can_be_saved(content)
  except Fault as fault:
    raise DataError(f'{folder / name}: {fault}; get the file again') from fault
  return content


def _check_can_be_saved(content: dict[str, Any]) -> None:
  try:
    json.dumps(content, allow_nan=False, ensure_ascii=False).encode()
  except UnicodeEncodeError as error:
    raise Fault(
      'holds a broken Unicode character (half of a surrogate pair)'
    ) from error
  except ValueError as error:
    raise Fault('holds a number too large for float64') from error


def shown(value: Any) -> str:
  """Returns a value as a short text without control characters."""
  return 'missing' if value is None else json.dumps(value)[:200]


def _allowed_roots(home: pathlib.Path) -> list[pathlib.Path]:
  # In the cache, files link to blobs, for example
  # models--NAME/snapshots/COMMIT/config.json -> ../../blobs/HASH
  in_cache = home.parent.name == 'snapshots' and home.parent.parent.name
  if in_cache and in_cache.startswith('models--'):
    return [home, home.parent.parent / 'blobs']
  return [home]
