"""Rows of a file of word vectors, one by one, in three formats.

word2vec text is a first line `count dim`, then `word number number ...` a line;
word2vec binary the same first line, then per word its UTF-8, a space and dim
little-endian float32, perhaps a newline; GloVe text is the lines alone. They
are told apart by what they hold, and each may be gzipped.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import os
import re
from typing import BinaryIO
import zlib

from xjax.core.errors import DataError
from xjax.data.files.json_lines import UTF8_MARK, UTF16_MARKS
from xjax.data.files.text_lines import numbered_lines

_HEAD = 1 << 20  # bytes that tell the format
_CHUNK = 1 << 22  # bytes of a binary file read at a time
_LONGEST = 1 << 16  # bytes of a word
_HEADER = re.compile(rb'\s*(\d{1,12})[ \t]+(\d{1,12})\s*')
_NUMBER = re.compile(rb'[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?')
_PRINTABLE = re.compile(rb'[\t\r\n\x20-\x7e]*')


@dataclasses.dataclass(frozen=True)
class Layout:
  """How a file of word vectors is laid out.

  Attributes:
    dim: numbers of a word.
    binary: whether they are bytes rather than text.
    count: rows, as the first line says; None: there is no such line.
    start: byte at which the rows begin, of what gzip may have packed.
  """

  dim: int
  binary: bool
  count: int | None
  start: int


def find_layout(file: BinaryIO, path: str | os.PathLike) -> Layout:
  """Tells the format of an open file by its beginning, and rewinds it.

  Raises:
    DataError: it is in none of the formats, is empty, or is damaged.
  """
  with _damage(path):
    head = file.read(_HEAD)
    file.seek(0)
  if not head.strip():
    raise DataError(f'{path}: the file is empty: there are no word vectors')
  if head.startswith(UTF16_MARKS):
    raise DataError(f'{path}:1: UTF-16 text: save the file as UTF-8')
  first, end, rest = head.partition(b'\n')
  if header := _HEADER.fullmatch(first.removeprefix(UTF8_MARK)):
    count, dim = map(int, header.groups())
    if not count or not dim:
      raise DataError(f'{path}:1: {count} words of {dim} numbers: none to read')
    return Layout(dim, not _is_text(rest, dim), count, len(first) + len(end))
  numbers = first.rstrip().split(b' ')[1:]
  if not numbers or not all(map(_NUMBER.fullmatch, numbers)):
    raise DataError(
      f'{path}:1: neither word2vec (count and dimension) nor GloVe (a word and '
      'its numbers, separated by single spaces)'
    )
  return Layout(len(numbers), False, None, 0)


def _is_text(rest: bytes, dim: int) -> bool:
  """Whether what follows the first line is text.

  Either its first row is sound as such, or there are only printable characters
  where a binary row would have its numbers.
  """
  row = rest.partition(b'\n')[0].rstrip().rsplit(b' ', dim)
  if len(row) == dim + 1 and all(map(_NUMBER.fullmatch, row[1:])):
    return True
  start = rest.find(b' ') + 1
  return _PRINTABLE.fullmatch(rest[start : start + 4 * dim]) is not None


def text_rows(
  file: BinaryIO, path: str | os.PathLike, layout: Layout
) -> Iterator[tuple[int, bytes, bytes]]:
  """Yields the line, the word and its numbers of each row, as bytes.

  A row whose word has spaces in it (GloVe 840B has some) is left out: no
  vocabulary has that word.

  Raises:
    DataError: a row has another number of numbers, the first line promises
      another number of rows, or the file is damaged.
  """
  dim, rows = layout.dim, 0
  lines = numbered_lines(file, path)
  if layout.count is not None:
    next(lines)
  for line, row in lines:
    row = row.rstrip()
    rows += 1
    extra = row.count(b' ') - dim
    if extra and not _is_phrase(row, extra):
      raise DataError(
        f'{path}:{line}: {dim + extra} numbers; the others have {dim}'
      )
    if not extra:
      end = row.find(b' ')
      yield line, row[:end], row[end + 1 :]
  if layout.count not in (None, rows):
    raise DataError(
      f'{path}:1: promises {layout.count} words, but there are {rows}'
    )


def _is_phrase(row: bytes, extra: int) -> bool:
  """Whether the entries too many of a row are more of its word."""
  if extra < 0:
    return False
  return not _NUMBER.fullmatch(row.split(b' ', extra + 1)[extra])


def binary_rows(
  file: BinaryIO, path: str | os.PathLike, layout: Layout
) -> Iterator[tuple[int, bytes, bytes]]:
  """Yields the first byte, the word and the float32s of each row, as bytes.

  Raises:
    DataError: the file is cut short, has more than its first line promises,
      or is damaged.
  """
  with _damage(path):
    file.seek(layout.start)
    yield from _binary_rows(file, path, layout)


def _binary_rows(
  file: BinaryIO, path: str | os.PathLike, layout: Layout
) -> Iterator[tuple[int, bytes, bytes]]:
  size, base = 4 * layout.dim, layout.start
  held, at = b'', 0  # held[at:] is still to come, from byte base + at
  for row in range(layout.count):
    while (end := held.find(b' ', at)) < 0 or len(held) <= end + size:
      place = f'{path}: byte {base + at}, word {row + 1} of {layout.count}'
      if end < 0 and len(held) > at + _LONGEST:
        raise DataError(f'{place}: no word ends here: is its dimension right?')
      more = file.read(_CHUNK)
      if not more:
        raise DataError(f'{place}: the file is cut short: get it anew')
      held, base, at = held[at:] + more, base + at, 0
    after = end + 1 + size
    yield base + at, held[at:end].lstrip(b'\n'), held[end + 1 : after]
    at = after
  if (held[at:] + file.read(_CHUNK)).strip(b'\n'):
    raise DataError(
      f'{path}: byte {base + at}: more than the {layout.count} words of '
      f'{layout.dim} numbers that its first line promises'
    )


@contextlib.contextmanager
def _damage(path: str | os.PathLike) -> Iterator[None]:
  """Makes what reading a damaged file raises a DataError."""
  try:
    yield
  except EOFError as error:
    raise DataError(f'{path}: the gzip file is cut short: get it anew') from (
      error
    )
  except (OSError, zlib.error) as error:
    raise DataError(f'{path}: the file is damaged: {error}') from error
