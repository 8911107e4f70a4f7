"""Parses JSON strictly: one object, or a file that is no JSON lines."""

from collections.abc import Callable, Generator, Iterator
import contextlib
import json
import re
from typing import Any

from xjax.data.files.faults import Fault

_WRAPPERS = ('data', 'documents')  # fields of an object that holds all others
_SPACE = re.compile(r'[ \t\r\n]*')
_TYPES = {
  type(None): 'null',
  bool: 'true or false',
  int: 'a number',
  float: 'a decimal number',
  str: 'text',
  list: 'a list',
}


def json_type(value: Any) -> str:
  """Returns what a value is, for messages."""
  return _TYPES.get(type(value), 'an object')


class NotUtf8(Fault):
  """Reports text in another encoding."""


def decode_utf8(data: bytes, other: str = '') -> str:
  """Decodes UTF-8, or else the `other` encoding, or raises a Fault."""
  try:
    return data.decode('utf-8')
  except UnicodeDecodeError as error:
    with contextlib.suppress(UnicodeError):
      if other:
        return data.decode(other)
    raise NotUtf8(
      f'not UTF-8{f" or {other}" if other else ""}: {error.reason} at byte '
      f'{error.start + 1}',
      1 + data.count(b'\n', 0, error.start),
    ) from error


def parse_object(text: bytes | str) -> dict[str, Any]:
  """Reads one JSON object; a Fault for everything that is not strict JSON.

  Not allowed are NaN, infinity, numbers that are too long, deep nesting, and
  bytes that are not UTF-8.
  """
  if isinstance(text, bytes):
    text = decode_utf8(text)
  row = _parsed(_DECODER.decode, text)
  if not isinstance(row, dict):
    raise Fault(f'{json_type(row)}, not a JSON object {{...}}')
  return row


def are_lines(first: bytes, following: Callable[[], bytes]) -> bool:
  """Returns whether JSON is in lines, by the first line that is not blank.

  If this line does not tell, the `following` one is asked for.
  """
  text = first.decode('utf-8', 'replace').strip()
  try:
    row = json.loads(text)
  except json.JSONDecodeError as error:
    if text.startswith('['):
      return False
    if not text.startswith('{') or error.pos < len(text):
      return True
    second = following().strip()
    return not second or second.startswith(b'{')
  except (ValueError, RecursionError):
    return True
  if isinstance(row, dict):
    return not _wrapper(row) or bool(following())
  return not isinstance(row, list) or bool(following())


def parse_values(text: str) -> Iterator[tuple[int, Any]]:
  """Yields the lines and values of a JSON array, or of objects in a row.

  An only object {"data": [...]} or {"documents": [...]} stands for its list. A
  Fault tells where the JSON ends to be correct.
  """
  at, line = 0, 1
  for start, value in _values(text):
    line += text.count('\n', at, start)
    at = start
    yield line, value


def _values(text: str) -> Iterator[tuple[int, Any]]:
  at = _after_space(text, 0)
  if text.startswith('[', at):
    end = yield from _items(text, at)
    if end < len(text):
      raise _fault(json.JSONDecodeError('Extra data', text, end))
    return
  value, end = _parsed(_DECODER.raw_decode, text, at)
  end = _after_space(text, end)
  if end == len(text) and (field := _wrapper(value)):
    # Another object in it may have such a field.
    lists = re.finditer(rf'"{field}"\s*:\s*(?=\[)', text)
    starts = (found.end() for found in lists)
    parse = _DECODER.raw_decode
    at = next(at for at in starts if parse(text, at)[0] == value[field])
    yield from _items(text, at)
    return
  yield at, value
  while end < len(text):
    at = end
    value, end = _parsed(_DECODER.raw_decode, text, at)
    yield at, value
    end = _after_space(text, end)


def _items(text: str, at: int) -> Generator[tuple[int, Any], None, int]:
  """Yields the items of the array that begins at `at`; returns its end."""
  at = _after_space(text, at + 1)
  is_end = text.startswith(']', at)
  while not is_end:
    value, end = _parsed(_DECODER.raw_decode, text, at)
    yield at, value
    end = _after_space(text, end)
    is_end = text.startswith(']', end)
    if not is_end and not text.startswith(',', end):
      raise _fault(json.JSONDecodeError("Expecting ',' delimiter", text, end))
    at = end if is_end else _after_space(text, end + 1)
  return _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
  return _SPACE.match(text, at).end()


def _wrapper(row: Any) -> str:
  """Returns the field of an object that holds all others, or ''."""
  if not isinstance(row, dict) or 'text' in row or 'zones' in row:
    return ''
  for field in _WRAPPERS:
    items = row.get(field)
    if isinstance(items, list) and items and isinstance(items[0], dict):
      return field
  return ''


def _parsed(parse: Callable[..., Any], *arguments: Any) -> Any:
  """Parses JSON, and turns errors into Faults."""
  try:
    return parse(*arguments)
  except json.JSONDecodeError as error:
    raise _fault(error) from error
  except RecursionError as error:
    raise Fault('not JSON: nested too deeply') from error
  except Fault:
    raise
  except ValueError as error:
    # Python reads no integers of more than some thousand digits.
    raise Fault('not JSON: a number is too long') from error


def _fault(error: json.JSONDecodeError) -> Fault:
  return Fault(f'not JSON: {error.msg} at column {error.colno}', error.lineno)


def _no_constant(name: str) -> None:
  """Raises a Fault for NaN and infinity, which json.loads would accept."""
  raise Fault(f'not JSON: {name}; write a finite number')


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
