"""Reads and writes JSON lines, and checks the fields of those that it reads."""

import bz2
import collections
from collections.abc import Callable, Iterable, Iterator, Sequence
import contextlib
import functools
import gzip
import io
import itertools
import json
import lzma
import os
import pathlib
import re
import select
import shutil
import sys
import tempfile
from typing import Any, BinaryIO
import zlib

from xjax.core.atomic import atomic_write
from xjax.core.errors import ConfigError, DataError
from xjax.data.files.encodings import wide_encoding
from xjax.data.files.faults import Fault, Faults, Grouped
from xjax.data.files.fields import Fields
from xjax.data.files.json_values import (
  NO_NAMES,
  NO_OBJECT,
  are_lines,
  decode_utf8,
  json_type,
  parse_object,
  parse_values,
)

Files = dict[str, list[pathlib.Path]]  # by the name that they have in common
STREAM = '-'  # standard input
TEXTS = 'text: .'  # makes a document of a line of plain text
UTF8_MARK = b'\xef\xbb\xbf'
UTF16_MARKS = (b'\xff\xfe', b'\xfe\xff')
PARQUET_MAGIC = b'PAR1'
_MAGIC = 10  # bytes that tell a compressed file
_LONGEST = 1 << 26  # bytes of a line
_LARGEST = 1 << 28  # bytes of JSON that is not in lines
# How files that are compressed begin, and what unpacks them.
_PACKED = {
  rb'\x1f\x8b': gzip.open,
  rb'BZh[1-9]1AY&SY': bz2.open,
  rb'\xfd7zXZ\0': lzma.open,
}
PACKED = r'(?:\.(?:gz(?:ip)?|bz2|xz))?'  # endings of their names
_ARCHIVE = re.compile(rb'\x28\xb5\x2f\xfd|7z\xbc\xaf|Rar!')
_BINARY = re.compile(
  b'|'.join([*_PACKED, _ARCHIVE.pattern, PARQUET_MAGIC, *UTF16_MARKS])
)
# How JSON begins that is not in lines, and what makes lines of it.
_PROGRAMS = {
  rb'\s*\[': '.[]',
  rb'\s*\{\s*"(?:data|documents)"\s*:\s*\[': '.[][]',
  rb'\s*\{': '.',
}


def find_source(path: str) -> pathlib.Path:
  """Returns the user's file or folder (data.dir), which must exist."""
  if not path:
    raise ConfigError(
      'data.dir is not set: give --config.data.dir=FILE_OR_FOLDER'
    )
  source = pathlib.Path(path).expanduser()
  if not source.exists():
    raise DataError(f'{path}: no such file or folder (data.dir)')
  return source


def find_files(folder: pathlib.Path, ending: str = 'jsonl') -> Files:
  """Returns the files NAME.jsonl of a folder, also packed, by name."""
  # Hidden files are ignored. `ending` is a regular expression.
  try:
    paths = sorted(folder.iterdir())
  except OSError as error:
    raise DataError(f'{folder}: not a folder that can be read') from error
  pattern = re.compile(rf'([^.].*)\.(?:{ending}){PACKED}', re.I)
  files: Files = {}
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
def open_text(
  path: str | os.PathLike,
  as_it_comes: bool = False,
  on_wait: Callable[[], None] | None = None,
) -> Iterator[BinaryIO]:
  """Opens a file, a pipe or STREAM, and unpacks it if it is compressed.

  A pipe is copied to a temporary file, so that it can be read again. If it is
  to be read `as_it_comes`, and holds lines of text, it is not; the result is
  not seekable then, and its `peek` returns the first lines. `on_wait` is called
  before the reader waits for more of them.
  """
  with contextlib.ExitStack() as stack:
    try:
      if path == STREAM and sys.stdin:  # None if it is closed
        file = sys.stdin.buffer
      else:
        file = stack.enter_context(open(path, 'rb'))
      if not file.seekable():
        file = stack.enter_context(_of_pipe(file, as_it_comes, on_wait))
      if file.seekable():
        start = file.read(_MAGIC)
        file.seek(-len(start), os.SEEK_CUR)
        if _ARCHIVE.match(start):
          raise DataError(
            f'{path}: is packed by zstd, 7z or rar: unpack it, or use gzip'
          )
        packed = (open_ for x, open_ in _PACKED.items() if re.match(x, start))
        file = next(packed, lambda file: file)(file)
    except OSError as error:
      raise DataError(f'{path}: cannot be read: {error.strerror}') from error
    yield file


def _of_pipe(
  pipe: BinaryIO, as_it_comes: bool, on_wait: Callable[[], None] | None
) -> BinaryIO:
  """Returns a copy of what a pipe holds, or if it may, reads it later."""
  head = b''
  if as_it_comes:
    head = line = pipe.readline(_LONGEST)
    while line and not line.strip():
      line = pipe.readline(_LONGEST)
      head += line
    if line and b'\0' not in head and not _BINARY.match(head):
      size = max(len(head), io.DEFAULT_BUFFER_SIZE)
      return io.BufferedReader(_Joined(head, pipe, on_wait), size)
  copy = tempfile.TemporaryFile()
  copy.write(head)
  shutil.copyfileobj(pipe, copy)
  copy.seek(0)
  return copy


class _Joined(io.RawIOBase):
  """Reads what was read from a pipe already, then the rest as it comes."""

  def __init__(
    self, head: bytes, rest: BinaryIO, on_wait: Callable[[], None] | None
  ):
    self._head, self._rest, self._on_wait = head, rest, on_wait

  def readable(self) -> bool:
    return True

  def readinto(self, buffer: memoryview) -> int:
    if self._on_wait and not self._head:
      if not select.select([self._rest], [], [], 0)[0]:
        self._on_wait()
    data = self._head or self._rest.read1(len(buffer))
    data, self._head = data[: len(buffer)], data[len(buffer) :]
    buffer[: len(data)] = data
    return len(data)


def check_rereadable(path: str | os.PathLike) -> None:
  """Raises a DataError if a path is a pipe or a device, not to be reread."""
  is_usual = os.path.isfile(path) or os.path.isdir(path)
  if os.path.exists(path) and not is_usual:
    raise DataError(
      f'{path}: is a pipe or a device, but this file is read several times; '
      'save it as a file first'
    )


@contextlib.contextmanager
def reading(name: str | os.PathLike) -> Iterator[None]:
  """Turns the errors of damaged files in this context into DataErrors."""
  try:
    yield
  except EOFError as error:
    message = 'the compressed file is cut short: get it again'
    raise DataError(f'{name}: {message}') from error
  except Fault as fault:
    raise DataError(f'{name}:{fault.line}: {fault}') from fault
  except (OSError, zlib.error, lzma.LZMAError, UnicodeError) as error:
    raise DataError(f'{name}: the file is damaged: {error}') from error


def numbered_lines(
  file: BinaryIO, path: str | os.PathLike
) -> Iterator[tuple[int, bytes]]:
  """Yields the line number (from 1) and the bytes of each line.

  Blank lines are included, because one may stand for a document. A line that is
  damaged, UTF-16 or longer than _LONGEST is a DataError.
  """
  lines = iter(functools.partial(file.readline, _LONGEST + 1), b'')
  with reading(path):
    for number, line in enumerate(lines, 1):
      if len(line) > _LONGEST:
        raise DataError(
          f'{path}:{number}: the line is longer than {_LONGEST >> 20} MiB; the '
          f'file is damaged, or is no text in lines{_as_lines(line)}'
        )
      if number == 1:
        if wide := wide_encoding(line):
          raise DataError(
            f'{path}:1: {wide.upper()} text: save the file as UTF-8'
          )
        line = line.removeprefix(UTF8_MARK)
      yield number, line.rstrip(b'\r\n')


def _as_lines(start: bytes) -> str:
  """Returns for a message how JSON that begins so becomes lines."""
  programs = (jq for x, jq in _PROGRAMS.items() if re.match(x, start))
  program = next(programs, '')
  return f': write an object per line, by `jq -c {program}`' if program else ''


def read_rows(
  source: BinaryIO | str | os.PathLike,
  faults: Faults,
  name: str = '',
  plain: str = '',
  encoding: str = '',
  jq: str = '',
) -> Iterator[tuple[int, dict[str, Any]]]:
  """Yields the line number and the JSON object of each line that is not blank.

  The source is a path, or an open file with a `name` for messages. A line that
  is no JSON object is left out, and is a fault. With `plain`, lines are plain
  text, which is the field of this name. Lines that are not UTF-8 are read in
  the `encoding`, if there is one. `jq` are the fields of an object that stands
  for a line of plain text, for messages.

  The file may also be a JSON array of objects, or objects of several lines. The
  number of an object is then its first line, or if this is that of the object
  before it, one more.
  """
  is_path = isinstance(source, str | os.PathLike)
  name = name or str(source)
  opened = open_text(source) if is_path else contextlib.nullcontext(source)
  with opened as file:
    lines = numbered_lines(file, name)
    head: list[tuple[int, bytes]] = []

    def next_line() -> bytes:
      for number, line in lines:
        head.append((number, line))
        if line.strip():
          return line
      return b''

    if not plain and not are_lines(next_line(), next_line):
      yield from _whole_file(file, head, name, encoding, faults)
      return
    for number, line in itertools.chain(head, lines):
      if line := line.strip(b' \t\r').removeprefix(UTF8_MARK):
        try:
          text = decode_utf8(line, encoding)
          row = {plain: text} if plain else parse_object(text)
        except Fault as fault:
          message = fault.args[0]
          is_plain = number == 1 and 'JSON: Exp' in message
          if jq and is_plain and line[:1] != b'{':
            message += (
              f"; `jq -Rc '{{{jq}}}'` makes JSON of lines of plain text; a "
              'table with one column is read from a file X.csv'
            )
          faults.add(name, number, message)
        else:
          yield number, row


def _whole_file(
  file: BinaryIO,
  head: Iterable[tuple[int, bytes]],
  name: str,
  encoding: str,
  faults: Faults,
) -> Iterator[tuple[int, dict[str, Any]]]:
  """Yields the objects of a file that is JSON, but not JSON lines."""
  data = b''.join(line + b'\n' for _, line in head)
  with reading(name):
    data += file.read(_LARGEST + 1)
  if len(data) > _LARGEST:
    raise DataError(
      f'{name}: is not JSON lines, but JSON of more than {_LARGEST >> 20} MiB'
      f'{_as_lines(data)}'
    )
  number = 0
  try:
    for line, value in parse_values(decode_utf8(data.rstrip(), encoding)):
      number = max(line, number + 1)
      if isinstance(value, dict):
        yield number, value
      else:
        hint = NO_NAMES if isinstance(value, list) else ''
        message = Grouped(f'{json_type(value)}, {NO_OBJECT}{hint}')
        faults.add(name, number, message)
  except Fault as fault:
    faults.add(name, fault.line, fault.args[0], fatal=True)


def write_json_lines(path: str | os.PathLike, rows: Iterable[Any]) -> None:
  """Writes a value as JSON on each line."""
  with atomic_write(path) as file:
    file.writelines(json.dumps(x, ensure_ascii=False) + '\n' for x in rows)


def with_faults(
  rows: Iterable[tuple[int | None, dict[str, Any]]],
  faults: Faults,
  name: str | os.PathLike,
) -> Iterator[tuple[int | None, Fields]]:
  """Yields the fields of each row; their faults are added at the next step."""
  # So the caller finds out what is wrong with a record, and adds it to the
  # faults of the fields.
  for number, row in rows:
    fields = Fields(row)
    yield number, fields
    faults.add(name, number, *fields.faults)


def read_records(
  source: BinaryIO | str | os.PathLike,
  faults: Faults,
  name: str = '',
  plain: str = '',
  encoding: str = '',
  jq: str = '',
) -> Iterator[tuple[int, Fields]]:
  """Yields the rows of read_rows, whose faults become faults of their lines."""
  rows = read_rows(source, faults, name, plain, encoding, jq)
  return with_faults(rows, faults, name or str(source))


def repeated(values: Iterable[Any]) -> Iterator[Any]:
  """Yields each value that occurs several times, in order of first use."""
  counts = collections.Counter(values)
  return (value for value, count in counts.items() if count > 1)
