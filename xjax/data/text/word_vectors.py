"""Pretrained word vectors: those of a vocabulary's words, out of a file."""

from collections.abc import Iterable, Iterator
import contextlib
import dataclasses
import functools
import os
import re
from typing import BinaryIO
import zlib

from absl import logging
import numpy as np

from xjax.core.atomic import atomic_write
from xjax.core.errors import DataError
from xjax.data.files.json_lines import (
  UTF8_MARK,
  UTF16_MARKS,
  numbered_lines,
  open_text,
)
from xjax.data.text.words import FIRST_WORD_ID, Vocabulary

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


_FLOAT = np.dtype('<f4')
_DIGITS = bytes.maketrans(b'0123456789', b'D' * 10)
_NUMBERS = re.compile(rb'[-+.0-9eE ]+')  # float() takes 'nan' and '1_0' too
# Where a vector comes from; a stronger one replaces a weaker one.
_NOWHERE, _SAME_WORD, _NUMBER_OF_CLASS = range(3)


@dataclasses.dataclass(frozen=True, eq=False)
class WordVectors:
  """Vectors of a vocabulary's words.

  Attributes:
    vectors: float32 [V, E] by word id; 0 for the words that the file lacks,
      for padding and for the unknown word.
    found: bool [V], whether the file has the word.
  """

  vectors: np.ndarray
  found: np.ndarray

  @property
  def dim(self) -> int:
    """E."""
    return self.vectors.shape[1]


def vector_dim(path: str | os.PathLike) -> int:
  """The dimension of a file's vectors, of which only the beginning is read.

  Raises:
    DataError: it cannot be read, or is in none of the formats.
  """
  with open_text(path) as file:
    return find_layout(file, path).dim


def read_word_vectors(
  path: str | os.PathLike, vocab: Vocabulary
) -> WordVectors:
  """Reads the vectors of a vocabulary's words, and logs how many there are.

  The file may be larger than memory: it is passed through once, and only the
  numbers of wanted words are read, and checked.

  A word is looked up exactly as the vocabulary has it; of several rows of one
  word the first counts. Digits: for a word with digits, such as DDDD, the first
  row of the file that has digits there counts, in files ordered by frequency
  the most frequent such number; in a file without one, as law2vec, the row
  DDDD itself.

  Args:
    path: word2vec text or binary, or GloVe text, each perhaps gzipped.
    vocab: the words wanted.

  Raises:
    DataError: the file cannot be read, is in none of the formats, or has a
      fault; the message names the line (text) or the byte (binary).
  """
  with open_text(path) as file:
    layout = find_layout(file, path)
    kept = _Kept(vocab, layout)
    rows = binary_rows if layout.binary else text_rows
    for place, word, numbers in rows(file, path, layout):
      fault = kept.offer(word, numbers)
      if fault:
        where = f': byte {place}' if layout.binary else f':{place}'
        shown = word.decode('utf-8', 'replace')[:80]
        raise DataError(f'{path}{where}: the word {shown!a}: {fault}')
  found = kept.source > _NOWHERE
  logging.info(
    '%s: %d of %d words found, %d dimensions',
    path,
    found.sum(),
    len(vocab.words),
    layout.dim,
  )
  return WordVectors(kept.vectors, found)


class _Kept:
  """The vectors wanted, while a file is being read.

  Attributes:
    source: int8 [V], where each vector comes from.
  """

  def __init__(self, vocab: Vocabulary, layout: Layout):
    self.source = np.full(len(vocab), _NOWHERE, np.int8)
    self._layout = layout
    # Bytes that are not UTF-8 equal none of these.
    self._rows = {
      word.encode(): row for row, word in enumerate(vocab.words, FIRST_WORD_ID)
    }

  @functools.cached_property
  def vectors(self) -> np.ndarray:
    """float32 [V, E]; made late: a first line may lie about E."""
    return np.zeros((len(self.source), self._layout.dim), np.float32)

  def offer(self, word: bytes, numbers: bytes) -> str | None:
    """Takes a row if it is wanted; returns what is wrong with it, if so."""
    source = _SAME_WORD
    row = self._rows.get(word)
    if row is None:
      source = _NUMBER_OF_CLASS
      as_class = word.translate(_DIGITS)
      row = self._rows.get(as_class) if as_class != word else None
    if row is None or self.source[row] >= source:
      return None
    values = self._read(numbers)
    if values is None or not np.isfinite(values).all():
      return 'not all of its entries are finite numbers'
    self.vectors[row] = values
    self.source[row] = source
    return None

  def _read(self, numbers: bytes) -> np.ndarray | None:
    if self._layout.binary:
      return np.frombuffer(numbers, _FLOAT)
    if not _NUMBERS.fullmatch(numbers):
      return None
    try:
      values = np.array([float(number) for number in numbers.split(b' ')])
    except ValueError:
      return None
    with np.errstate(over='ignore'):  # becomes infinite, which is refused
      return values.astype(np.float32)


def write_word_vectors(
  path: str | os.PathLike, words: Iterable[str], vectors: np.ndarray
) -> None:
  """Writes word2vec binary, which gensim and others read too.

  Args:
    path: replaced as a whole, or not at all.
    words: n of them, without white space.
    vectors: float [n, E], saved as float32.

  Raises:
    ValueError: a word has white space in it, or their number differs.
    WriteError: it cannot be written.
  """
  with atomic_write(path, 'wb') as file:
    file.write(b'%d %d\n' % vectors.shape)
    for word, row in zip(words, vectors, strict=True):
      if word.split() != [word]:
        raise ValueError(f'{word!r} is not one word')
      file.write(word.encode() + b' ' + row.astype(_FLOAT).tobytes() + b'\n')
