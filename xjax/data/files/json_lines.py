"""Reads files of JSON lines, plain or gzipped, and checks their fields."""

import collections
from collections.abc import Iterable, Iterator, Sequence
import contextlib
import functools
import gzip
import io
import json
import os
import pathlib
import re
import stat
from typing import Any, BinaryIO
import zlib

from xjax.core.errors import ConfigError, DataError
from xjax.data.files.faults import Fault, Faults

GZIP_MAGIC = b'\x1f\x8b'
UTF8_MARK = b'\xef\xbb\xbf'
UTF16_MARKS = (b'\xff\xfe', b'\xfe\xff')
# A longer line is no document, and it could fill the memory. The file may be
# damaged or endless, such as /dev/zero.
LONGEST_LINE = 1 << 26  # bytes
_CONTROL = re.compile('[\x00-\x1f\x7f]')


def find_folder(path: str) -> pathlib.Path:
  """Returns the folder of the user's files (data.dir), which must exist."""
  if not path:
    raise ConfigError(
      'data.dir is not set: give the folder with your files as '
      '--config.data.dir=FOLDER'
    )
  folder = pathlib.Path(path).expanduser()
  if not folder.exists():
    raise DataError(f'{path}: no such folder (data.dir)')
  return folder


def find_files(
  folder: pathlib.Path, ending: str = 'jsonl'
) -> dict[str, list[pathlib.Path]]:
  """Returns the files NAME.jsonl and NAME.jsonl.gz of a folder, by name."""
  # Hidden files are ignored. `ending` is a regular expression.
  try:
    paths = sorted(folder.iterdir())
  except OSError as error:
    raise DataError(f'{folder}: not a folder that can be read') from error
  pattern = re.compile(rf'([^.].*)\.(?:{ending})(?:\.gz)?')
  files: dict[str, list[pathlib.Path]] = {}
  for path in paths:
    match = pattern.fullmatch(path.name)
    if match and path.is_file():
      files.setdefault(match[1], []).append(path)
  return files


def only_file(paths: Sequence[pathlib.Path], faults: Faults) -> pathlib.Path:
  """Returns the first path, and adds a fault for every further path."""
  for path in paths[1:]:
    message = f'the folder has {paths[0].name} too; keep one of the two'
    faults.add(path, None, message, fatal=True)
  return paths[0]


@contextlib.contextmanager
def open_lines(path: pathlib.Path, named: bool = True) -> Iterator[BinaryIO]:
  """Opens a file or a pipe, once, and unpacks it if it is gzipped."""
  # If `named`, a name must end in .gz if and only if the file is gzipped. If it
  # does not, or the file cannot be opened, a Fault is raised.
  with contextlib.ExitStack() as stack:
    try:
      file = stack.enter_context(path.open('rb'))
      unpacked = stack.enter_context(unpack(file))
      named = named and stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except OSError as error:
      raise Fault(f'cannot be read: {error.strerror}', None) from error
    zipped = isinstance(unpacked, gzip.GzipFile)
    if named and zipped != (path.suffix == '.gz'):
      raise Fault(
        'the file is gzipped, so its name must end in .gz'
        if zipped
        else 'the name ends in .gz, but the file is not gzipped',
        None,
      )
    yield unpacked


def unpack(file: BinaryIO) -> BinaryIO:
  """Returns the rest of an open file or pipe, unpacked if it is gzipped."""
  start, file = look_ahead(file, len(GZIP_MAGIC))
  if start != GZIP_MAGIC:
    return file
  unpacked = gzip.GzipFile(fileobj=file)
  # A GzipFile says that it is seekable even if it reads from a pipe.
  return unpacked if file.seekable() else _Rejoined.buffered(b'', unpacked)


def look_ahead(file: BinaryIO, size: int) -> tuple[bytes, BinaryIO]:
  """Returns the next bytes of a file or pipe, and a file with them still."""
  start = file.read(size)
  if file.seekable():
    file.seek(-len(start), os.SEEK_CUR)
    return start, file
  return start, _Rejoined.buffered(start, file)


class _Rejoined(io.RawIOBase):
  """Puts the bytes that were read from a pipe back before the rest of it."""

  def __init__(self, start: bytes, rest: BinaryIO):
    super().__init__()
    self._start, self._rest = memoryview(start), rest

  @classmethod
  def buffered(cls, start: bytes, rest: BinaryIO) -> io.BufferedReader:
    return io.BufferedReader(cls(start, rest))

  def readable(self) -> bool:
    return True

  def readinto(self, buffer: memoryview) -> int:
    data = self._start[: len(buffer)] or self._rest.read1(len(buffer))
    buffer[: len(data)] = data
    self._start = self._start[len(data) :]
    return len(data)


def check_rereadable(path: str | os.PathLike) -> None:
  """Raises a DataError if a path is a pipe or a device, not to be reread."""
  if os.path.exists(path) and not os.path.isfile(path):
    if not os.path.isdir(path):
      raise DataError(
        f'{path}: is a pipe or a device, but this file is read several times; '
        'save it as a file first'
      )


@contextlib.contextmanager
def open_text(path: str | os.PathLike) -> Iterator[BinaryIO]:
  """Opens a file of any name, and unpacks it if it is gzipped."""
  with contextlib.ExitStack() as stack:
    try:
      file = stack.enter_context(open_lines(pathlib.Path(path), named=False))
    except Fault as fault:
      raise DataError(f'{path}: {fault}') from fault
    yield file


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
  """Yields line numbers, from 1, and bytes, without a byte order mark."""
  number = 0
  lines = iter(functools.partial(file.readline, LONGEST_LINE + 1), b'')
  try:
    for number, line in enumerate(lines, 1):
      if len(line) > LONGEST_LINE:
        raise Fault(
          f'the line is longer than {LONGEST_LINE >> 20} MiB; the file is '
          'damaged, or is not text in lines',
          number,
        )
      if number == 1:
        line = line.removeprefix(UTF8_MARK)
        if line.startswith(UTF16_MARKS):
          raise Fault('UTF-16 text: save the file as UTF-8')
      yield number, line
  except EOFError as error:
    message = 'the gzip file is cut short: get it again'
    raise Fault(message, number + 1) from error
  except (OSError, zlib.error) as error:
    raise Fault(f'the file is damaged: {error}', number + 1) from error


def numbered_lines(
  file: BinaryIO, path: str | os.PathLike
) -> Iterator[tuple[int, bytes]]:
  """Yields the line number (from 1) and the bytes of each line.

  Blank lines are included, because one may stand for a document. A line that is
  too long, damaged or UTF-16 is a DataError.
  """
  try:
    for number, line in _lines(file):
      yield number, line.rstrip(b'\r\n')
  except Fault as fault:
    raise DataError(f'{path}:{fault.line}: {fault}') from fault


def read_lines(
  source: BinaryIO | pathlib.Path, faults: Faults, name: str = ''
) -> Iterator[tuple[int, bytes]]:
  """Yields the line number and the bytes of each line that is not blank.

  The source is an open file with a `name` for messages, or a path. If a line
  cannot be read, or the path cannot be opened, a fault is added and reading
  ends. The fault is fatal, since the number of lost lines is unknown.
  """
  is_path = isinstance(source, pathlib.Path)
  name = name or str(source)
  opened = open_lines(source) if is_path else contextlib.nullcontext(source)
  try:
    with opened as file:
      for number, line in _lines(file):
        if line := line.strip(b' \t\r\n'):
          yield number, line
  except Fault as fault:
    faults.add(name, fault.line, str(fault), fatal=True)


def read_rows(
  source: BinaryIO | pathlib.Path,
  faults: Faults,
  name: str = '',
  documents: bool = False,
  advice: str = '',
) -> Iterator[tuple[int, dict[str, Any]]]:
  """Yields the line number and the JSON object of each line, as read_lines.

  Faulty lines are left out and their faults are added. If the lines are
  `documents`, one fault says that the file looks like a table. `advice` says
  what to do if the first line is no JSON at all.
  """
  name = name or str(source)
  first = True
  for number, line in read_lines(source, faults, name):
    try:
      row = parse_object(line)
    except Fault as fault:
      start = line[:200].decode('latin-1') if first else ''
      if documents and looks_like_table(start):
        message = (
          f'this looks like the first line of a table, not like JSON: {start!a}'
          '; --config=own_linear reads tables (CSV, TSV, Parquet)'
        )
        faults.add(name, number, message, fatal=True)
        return
      is_other = start and not start.lstrip().startswith(('{', '['))
      more = f'; {advice}' if advice and is_other else ''
      faults.add(name, number, f'{fault}{more}')
      continue
    finally:
      first = False
    yield number, row


def looks_like_table(line: str) -> bool:
  """Returns whether a first line looks like a table's header, not like JSON."""
  names = re.split('[,;\t|]', line)
  return (
    line.startswith('PAR1')
    or len(names) > 1
    and not re.match(r'\s*[\[{]', line)
    and all(len(name) <= 100 for name in names)
  )


def decode_utf8(data: bytes) -> str:
  """Decodes UTF-8, or raises a Fault."""
  try:
    return data.decode('utf-8')
  except UnicodeDecodeError as error:
    raise Fault(
      f'not UTF-8: {error.reason} at byte {error.start + 1}',
      1 + data.count(b'\n', 0, error.start),
    ) from error


def parse_object(text: bytes | str) -> dict[str, Any]:
  """Reads one JSON object; a Fault for everything that is not strict JSON.

  Not allowed are NaN, infinity, numbers that are too long, deep nesting, bytes
  that are not UTF-8, and a field that occurs twice in an object.
  """
  try:
    if isinstance(text, bytes):
      text = decode_utf8(text)
    row = json.loads(
      text, object_pairs_hook=_unique, parse_constant=_no_constant
    )
  except Fault:
    raise
  except json.JSONDecodeError as error:
    raise Fault(
      f'not JSON: {error.msg} at column {error.colno}', error.lineno
    ) from error
  except RecursionError as error:
    raise Fault('not JSON: nested too deeply') from error
  except ValueError as error:
    raise Fault('not JSON: a number is too long') from error
  if not isinstance(row, dict):
    raise Fault(f'{_json_type(row)}, not a JSON object {{...}}')
  return row


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  row = dict(pairs)
  if len(row) < len(pairs):
    twice = next(repeated(name for name, _ in pairs))
    raise Fault(f'field {twice!a} occurs twice in one object')
  return row


def repeated(values: Iterable[Any]) -> Iterator[Any]:
  """Yields each value that occurs several times, in order of first use."""
  counts = collections.Counter(values)
  return (value for value, count in counts.items() if count > 1)


def _no_constant(name: str) -> None:
  """Raises a Fault for NaN and infinity, which json.loads would accept."""
  raise Fault(f'not JSON: {name}; write a finite number')


def _json_type(value: Any) -> str:
  match value:
    case None:
      return 'null'
    case bool():
      return 'true or false'
    case int():
      return 'a number'
    case float():
      return 'a decimal number'
    case str():
      return 'text'
    case list():
      return 'a list'
    case _:
      return 'an object'


class Fields:
  """Reads typed fields of one JSON object; collects `faults` in order."""

  def __init__(self, row: dict[str, Any]):
    self.row = row
    self.faults: list[str] = []

  def __contains__(self, name: str) -> bool:
    return name in self.row

  def text(self, name: str, default: str | None = None) -> str:
    """Reads a text field; without a default the field is required."""
    if not self._has(name, default is None):
      return default or ''
    return self.as_text(self.row[name], name)

  def identifier(self, name: str, default: str | None = None) -> str:
    """Reads a field that holds an id; without a default it is required."""
    if not self._has(name, default is None):
      return default or ''
    return self.as_id(self.row[name], name)

  def texts(
    self, name: str, default: tuple[str, ...] | None = None
  ) -> tuple[str, ...]:
    """Reads a list of texts; without a default the field is required."""
    return tuple(
      self.as_text(value, f'{name}[{i}]')
      for i, value in enumerate(self._list(name, default))
    )

  def identifiers(
    self, name: str, default: tuple[str, ...] | None = None
  ) -> tuple[str, ...]:
    """Reads a list of distinct ids; without a default the list is required."""
    values = self._list(name, default)
    ids = tuple(self.as_id(v, f'{name}[{i}]') for i, v in enumerate(values))
    for twice in filter(None, repeated(ids)):
      self.faults.append(f'{twice!a} occurs twice in {name}')
    return ids

  def as_text(self, value: Any, name: str) -> str:
    """Returns a value if it is text, or else adds a fault and returns ''."""
    if not isinstance(value, str):
      self.faults.append(f'{name} is {_json_type(value)}, not text')
      return ''
    try:
      value.encode('utf-8')
    except UnicodeEncodeError:
      self.faults.append(
        f'{name} holds a broken Unicode character (half of a surrogate pair)'
      )
      return ''
    return value

  def as_id(self, value: Any, name: str) -> str:
    """Returns an id, or adds a fault and returns ''; integers are ids, too."""
    before = len(self.faults)
    if not isinstance(value, int | str) or isinstance(value, bool):
      kind = _json_type(value)
      self.faults.append(f'{name} is {kind}, not text or an integer')
      return ''
    value = self.as_text(str(value), name)
    if len(self.faults) > before:
      return ''
    if not value.strip():
      self.faults.append(f'{name} is empty')
    elif value != value.strip() or _CONTROL.search(value):
      self.faults.append(
        f'{name} {value!a} has spaces around it or control characters in it'
      )
    else:
      return value
    return ''

  def _has(self, name: str, required: bool) -> bool:
    """Returns whether a field exists; a missing required field is a fault."""
    if name in self.row:
      return True
    if required:
      marked = '\ufeff' + name in self.row
      hint = (
        ": the field's name starts with a byte order mark, which must be "
        'removed'
        if marked
        else ''
      )
      self.faults.append(f'no field {name!r}{hint}')
    return False

  def _list(self, name: str, default: Sequence[str] | None) -> Sequence[Any]:
    if not self._has(name, default is None):
      return default or ()
    if isinstance(self.row[name], list):
      return self.row[name]
    self.faults.append(f'{name} is {_json_type(self.row[name])}, not a list')
    return ()
