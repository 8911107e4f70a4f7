"""Parses JSON strictly: one object, or a file that is no JSON lines."""

from collections.abc import Callable, Iterator
import contextlib
import json
import re
from typing import Any

from xjax.data.files.faults import Fault, Grouped

_WRAPPERS = ('data', 'documents')  # fields of an object that holds all others
_TO_LINES = "to_json('new.jsonl', orient='records', lines=True)"
NO_OBJECT = 'not a JSON object {...}'
NO_NAMES = (
  f"; pandas.read_json(FILE).set_axis(['text', ...], axis=1).{_TO_LINES} "
  'gives names to columns'
)
# What to do if the error, and what is around its place, are like this.
_HINTS = {
  r'.*: .?(?://|/\*|#)': 'it has no comments: remove them',
  r"E.*: [{\[,:]['‘’]": (
    'single quotes, as Python prints them; json.dumps(ast.literal_eval(line)) '
    'makes JSON of it'
  ),
  r'E.*: [\[,:](?:None|True|False|undefined)': 'write null, true or false',
  r'E.*: [{\[,:][A-Za-z_“”]': 'names and texts stand in double quotes',
  r'E.*: ,[\]}]|Ill': 'no comma stands before a bracket that closes',
  'Extra data: },': 'no comma stands between lines, unless [...] is around all',
  r'Extra data: }\{': 'several objects; `jq -c .` writes each on a line',
}
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


def decode_utf8(data: bytes, other: str = '') -> str:
  """Decodes UTF-8, or else the `other` encoding, or raises a Fault."""
  try:
    return data.decode('utf-8')
  except UnicodeDecodeError as error:
    with contextlib.suppress(UnicodeError):
      if other:
        return data.decode(other)
    raise Fault(
      f'not UTF-8{f" or {other}" if other else ""}: {error.reason} at byte '
      f'{error.start + 1}; save it as UTF-8 (documents of own_* configs may be '
      'in another encoding: --config.data.encoding=cp1252)',
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
    raise Fault(Grouped(f'{json_type(row)}, {NO_OBJECT}'))
  return row


def are_lines(first: bytes, following: Callable[[], bytes]) -> bool:
  """Returns whether JSON is in lines, by the first line that is not blank.

  If this line does not tell, the `following` one is asked for.
  """
  text = first.decode('utf-8', 'replace').strip()
  try:
    row = json.loads(text)
  except json.JSONDecodeError as error:
    extra = error.msg == 'Extra data' and text[error.pos]
    if text.startswith('[') or extra == '{':
      return False
    if not text.startswith('{') or error.pos < len(text):
      return True
    second = following().strip()
    return not second or second.startswith(b'{')
  except (ValueError, RecursionError):
    return True
  if isinstance(row, dict):
    return not _holds_all(row) or bool(following())
  return not isinstance(row, list) or bool(following())


def parse_values(text: str) -> Iterator[tuple[int, Any]]:
  """Yields the lines and values of a JSON array, or of objects in a row.

  An only object {"data": [...]} or {"documents": [...]} stands for its list. A
  Fault tells where the JSON ends to be correct.
  """
  parse = _DECODER.raw_decode
  at, counted, line = _after_space(text, 0), 0, 1
  field, in_list = '', text.startswith('[', at)
  if not in_list:
    value, end = _parsed(parse, text, at)
    is_only = isinstance(value, dict) and _after_space(text, end) == len(text)
    field = _wrapper(value) if is_only else ''
    if is_only and not field and _holds_all(value):
      raise Fault(
        'one JSON object that holds all documents; write each on a line: '
        + _way_out(value)
      )
    if field:
      # Another object in this one may have such a field.
      lists = re.finditer(rf'"{field}"\s*:\s*(?=\[)', text)
      starts = (found.end() for found in lists)
      at = next(at for at in starts if parse(text, at)[0] == value[field])
      in_list = True
  at = _after_space(text, at + 1) if in_list else at
  is_end = in_list and text.startswith(']', at)
  while not is_end:
    value, end = _parsed(parse, text, at)
    line += text.count('\n', counted, at)
    counted = at
    yield line, value
    at = _after_space(text, end)
    is_end = text.startswith(']', at) if in_list else at == len(text)
    if in_list and not is_end:
      if not text.startswith(',', at):
        raise _fault(json.JSONDecodeError("Expecting ',' delimiter", text, at))
      at = _after_space(text, at + 1)
  end = _after_space(text, at + 1)
  if in_list and not field and end < len(text):
    raise _fault(json.JSONDecodeError('Extra data', text, end))


def _after_space(text: str, at: int) -> int:
  return _SPACE.match(text, at).end()


def _wrapper(row: dict[str, Any]) -> str:
  """Returns the field of an object that holds all others, or ''."""
  for field in _WRAPPERS:
    items = row.get(field)
    if isinstance(items, list) and items and isinstance(items[0], dict):
      return field if 'text' not in row and 'zones' not in row else ''
  return ''


def _holds_all(row: dict[str, Any]) -> bool:
  """Returns whether an object may be all documents, and not one of them."""
  # The first item of each list tells what it has.
  values = [x[0] if isinstance(x, list) and x else x for x in row.values()]
  is_one = 'zones' in row or any(isinstance(x, str) for x in row.values())
  nested = any(isinstance(x, list | dict) and x for x in values)
  return bool(_wrapper(row)) or nested and not is_one


def _way_out(row: dict[str, Any]) -> str:
  """Returns what writes the documents of an object on lines."""
  lists = [x for x, y in row.items() if isinstance(y, list) and y]
  lists = [field for field in lists if isinstance(row[field][0], dict)]
  if lists:
    also = f', and so on for {", ".join(lists[1:])}' if lists[1:] else ''
    return f'`jq -c \'.["{lists[0]}"][]\' FILE > {lists[0]}.jsonl`{also}'
  documents = [x for x in row.values() if isinstance(x, dict)]
  if documents and not all(map(str.isdecimal, documents[0])):
    return "`jq -c '.[]' FILE > new.jsonl`"
  orient = ", orient='split'" if 'columns' in row else ''
  return f'pandas.read_json(FILE{orient}).{_TO_LINES}'


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
  before, after = error.doc[: error.pos].rstrip(), error.doc[error.pos :]
  place = f'{error.msg}: {before[-1:]}{after[:9]}'
  for pattern, hint in _HINTS.items():
    if re.match(pattern, place):
      return Fault(Grouped(f'not JSON: {hint}'), error.lineno)
  return Fault(f'not JSON: {error.msg} at column {error.colno}', error.lineno)


def _no_constant(name: str) -> None:
  """Raises a Fault for NaN and infinity, which json.loads would accept."""
  raise Fault(Grouped(f'not JSON: {name}; write null or a finite number'))


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
