"""Reads the pretrained vectors of a vocabulary's words from a file."""

from collections.abc import Iterable, Iterator
import contextlib
import dataclasses
import os
import re
from typing import BinaryIO

from absl import logging
import numpy as np

from xjax.core.atomic import atomic_write
from xjax.core.errors import DataError
from xjax.data.files.json_lines import (
  UTF8_MARK,
  UTF16_MARKS,
  check_rereadable,
  numbered_lines,
  open_text,
  reading,
)
from xjax.data.text.words import FIRST_WORD_ID, Vocabulary

_HEAD = 1 << 20  # number of bytes that are read to find the layout
_CHUNK = 1 << 22  # number of bytes of a binary file that are read at a time
_LONGEST = 1 << 16  # largest number of bytes of a word
_HEADER = re.compile(rb'\s*(\d{1,12})[ \t]+(\d{1,5})\s*')
_NUMBER = re.compile(rb'[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?')
_PRINTABLE = re.compile(rb'[\t\r\n\x20-\x7e]*')
_FLOAT = np.dtype('<f4')
_DIGITS = bytes.maketrans(b'0123456789', b'D' * 10)
# These are the sources of a vector: no row yet, the row of the same word, and
# (for a word like DDDD) the row of a number like 2003. A vector from a later
# source in this list replaces a vector from an earlier source.
_NO_SOURCE, _SAME_WORD, _DIGIT_FORM = range(3)

# The place of a row for messages, its word, and its numbers as bytes.
_Row = tuple[str, bytes, bytes]


@dataclasses.dataclass(frozen=True)
class _VectorFileLayout:
  dim: int  # numbers per word
  binary: bool  # whether numbers are float32 bytes, not text
  count: int | None  # rows that the first line states, if any
  start: int  # offset in bytes of the first row, unpacked


@contextlib.contextmanager
def _opened(
  path: str | os.PathLike,
) -> Iterator[tuple[BinaryIO, _VectorFileLayout]]:
  check_rereadable(path)
  with open_text(path) as file, reading(path):
    head = file.read(_HEAD)
    file.seek(0)
    yield file, _find_layout(head, path)


def _find_layout(head: bytes, path: str | os.PathLike) -> _VectorFileLayout:
  if not head.strip():
    raise DataError(f'{path}: the file is empty and has no word vectors')
  if head.startswith(UTF16_MARKS):
    raise DataError(f'{path}:1: UTF-16 text: save the file as UTF-8')
  first, end, rest = head.partition(b'\n')
  if header := _HEADER.fullmatch(first.removeprefix(UTF8_MARK)):
    count, dim = map(int, header.groups())
    if not count or not dim:
      raise DataError(
        f'{path}:1: states {count} words of {dim} numbers: nothing to read'
      )
    return _VectorFileLayout(
      dim, not _is_text(rest, dim), count, len(first) + len(end)
    )
  numbers = first.rstrip().split(b' ')[1:]
  if not numbers or not all(map(_NUMBER.fullmatch, numbers)):
    raise DataError(
      f'{path}:1: the format is unknown; the first line must be the number of '
      'words and the dimension (word2vec), or a word and its numbers, with '
      'single spaces (GloVe)'
    )
  return _VectorFileLayout(len(numbers), False, None, 0)


def _is_text(rest: bytes, dim: int) -> bool:
  # If the first row is valid text, or if there are only printable characters
  # where a binary row would have its numbers.
  row = rest.partition(b'\n')[0].rstrip().rsplit(b' ', dim)
  if len(row) == dim + 1 and all(map(_NUMBER.fullmatch, row[1:])):
    return True
  start = rest.find(b' ') + 1
  return _PRINTABLE.fullmatch(rest[start : start + 4 * dim]) is not None


def _text_rows(
  file: BinaryIO, path: str | os.PathLike, layout: _VectorFileLayout
) -> Iterator[_Row]:
  dim, rows = layout.dim, 0
  lines = numbered_lines(file, path)
  if layout.count is not None:
    next(lines)
  for line, row in lines:
    row = row.rstrip()
    rows += 1
    extra = row.count(b' ') - dim
    if not extra:
      yield f'{path}:{line}', *row.split(b' ', 1)
    # A word with spaces, as in GloVe 840B, is left out: no vocabulary has it.
    elif extra < 0 or _NUMBER.fullmatch(row.split(b' ', extra + 1)[extra]):
      raise DataError(
        f'{path}:{line}: has {dim + extra} numbers, but other rows have {dim}'
      )
  if layout.count not in (None, rows):
    raise DataError(
      f'{path}:1: states {layout.count} words, but the file has {rows}'
    )


def _binary_rows(
  file: BinaryIO, path: str | os.PathLike, layout: _VectorFileLayout
) -> Iterator[_Row]:
  file.seek(layout.start)
  size, base = 4 * layout.dim, layout.start
  # buffer[at:] was read but not yielded. Its first byte is the file's byte
  # base + at.
  buffer, at = b'', 0
  for row in range(layout.count):
    while (end := buffer.find(b' ', at)) < 0 or len(buffer) <= end + size:
      place = f'{path}: byte {base + at}, word {row + 1} of {layout.count}'
      if end < 0 and len(buffer) > at + _LONGEST:
        raise DataError(
          f'{place}: the word does not end; check the dimension on line 1'
        )
      more = file.read(_CHUNK)
      if not more:
        raise DataError(f'{place}: the file is cut short; get it again')
      buffer, base, at = buffer[at:] + more, base + at, 0
    after, place = end + 1 + size, f'{path}: byte {base + at}'
    yield place, buffer[at:end].lstrip(b'\n'), buffer[end + 1 : after]
    at = after
  if (buffer[at:] + file.read(_CHUNK)).strip(b'\n'):
    raise DataError(
      f'{path}: byte {base + at}: the file has more than the {layout.count} '
      f'words of {layout.dim} numbers that the first line states'
    )


@dataclasses.dataclass(frozen=True, eq=False)
class WordVectors:
  # float32 [ids, D]; 0 for words without a row, padding and the unknown word.
  vectors: np.ndarray
  has_vector: np.ndarray  # bool [ids], whether the file has it

  @property
  def dim(self) -> int:
    return self.vectors.shape[1]


def vector_dim(path: str | os.PathLike) -> int:
  """Returns the dimension of a file's vectors; reads only the first bytes."""
  with _opened(path) as (_, layout):
    return layout.dim


def read_word_vectors(
  path: str | os.PathLike, vocab: Vocabulary
) -> WordVectors:
  """Reads the vectors of a vocabulary's words, and logs how many were found.

  The file, in the format of word2vec (text or binary) or GloVe (text), plain or
  gzipped, may be larger than memory. Only the numbers of the vocabulary's words
  are parsed and checked; a DataError names the line or the byte of a fault.

  A word gets the vector of the first row with the same word. But a word such as
  DDDD, which stands for all numbers of four digits, gets the vector of the
  first such number: in a file sorted by frequency, the most frequent one. If
  there is none, as in law2vec, the row DDDD itself is used.
  """
  # Words in the file that are not UTF-8 never equal these bytes.
  rows_of = {word.encode(): i for i, word in enumerate(vocab.words)}
  sources = np.full(len(vocab), _NO_SOURCE, np.int8)
  vectors = None
  with _opened(path) as (file, layout):
    rows = _binary_rows if layout.binary else _text_rows
    for place, word, numbers in rows(file, path, layout):
      row, source = rows_of.get(word), _SAME_WORD
      if row is None and (form := word.translate(_DIGITS)) != word:
        row, source = rows_of.get(form), _DIGIT_FORM
      if row is None or sources[FIRST_WORD_ID + row] >= source:
        continue
      values = _values(numbers, layout.binary)
      if values is None or not np.isfinite(values).all():
        shown = word.decode('utf-8', 'replace')[:80]
        raise DataError(
          f'{place}: the vector of {shown!a} has a number that is not finite '
          'or cannot be read'
        )
      if vectors is None:  # a faulty first line may state a huge dimension
        vectors = np.zeros((len(vocab), layout.dim), np.float32)
      vectors[FIRST_WORD_ID + row] = values
      sources[FIRST_WORD_ID + row] = source
  if vectors is None:
    vectors = np.zeros((len(vocab), layout.dim), np.float32)
  has_vector, n = sources > _NO_SOURCE, len(vocab.words)
  logging.info(
    f'{path}: {has_vector.sum()} of {n} words found, {layout.dim} dimensions'
  )
  return WordVectors(vectors, has_vector)


def _values(numbers: bytes, binary: bool) -> np.ndarray | None:
  """Returns the numbers of a row as float32; None if one cannot be read."""
  if binary:
    return np.frombuffer(numbers, _FLOAT)
  texts = numbers.split(b' ')
  if not all(map(_NUMBER.fullmatch, texts)):
    return None
  with np.errstate(over='ignore'):  # the caller rejects infinite values
    return np.array([float(text) for text in texts]).astype(np.float32)


def write_word_vectors(
  path: str | os.PathLike, words: Iterable[str], vectors: np.ndarray
) -> None:
  """Writes words and vectors [n, D] as a word2vec binary file, atomically."""
  with atomic_write(path, 'wb') as file:
    file.write(b'%d %d\n' % vectors.shape)
    for word, row in zip(words, vectors, strict=True):
      if word.split() != [word]:
        raise ValueError(f'{word!r} is not one word')
      file.write(word.encode() + b' ' + row.astype(_FLOAT).tobytes() + b'\n')
