"""Pretrained word vectors: those of a vocabulary's words, out of a file."""

from collections.abc import Iterable
import dataclasses
import functools
import os
import re

from absl import logging
import numpy as np

from xjax.core.atomic import atomic_write
from xjax.core.errors import DataError
from xjax.data.files.text_lines import open_text
from xjax.data.text.vector_rows import (
  Layout,
  binary_rows,
  find_layout,
  text_rows,
)
from xjax.data.text.words import FIRST_WORD_ID, Vocabulary

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
