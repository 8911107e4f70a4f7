"""Reads single files of a model's folder, and no others."""

import json
import pathlib
import re
from typing import Any

from xjax.core.errors import DataError
from xjax.data.files.faults import Fault
from xjax.data.files.json_lines import parse_object

_PLAIN = re.compile(r'[\w-][\w.-]*', re.ASCII)


def safe_path(folder: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the path of a file, which must be directly in a model's folder."""
  if not _PLAIN.fullmatch(name):
    raise DataError(
      f'{folder}: {json.dumps(name)[:200]} is not the name of a file in this '
      'folder; files outside the folder are not read'
    )
  path = folder / name
  if not path.is_file():
    raise DataError(f'{path}: there is no such file')
  return path


def read_file(folder: pathlib.Path, name: str) -> bytes:
  """Reads a small file of a model's folder, such as a config."""
  path = safe_path(folder, name)
  try:
    return path.read_bytes()
  except OSError as error:
    raise DataError(f'{path}: cannot be read: {error.strerror}') from error


def read_object(folder: pathlib.Path, name: str) -> dict[str, Any]:
  """Reads a file with a JSON object that can be saved as JSON again."""
  try:
    content = parse_object(read_file(folder, name))
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
