"""Words of a text, and the vocabulary that numbers them.

A word is a run of letters and digits of any script, with the marks on them
(such as the vowel signs of Hindi), in lower case and with every digit replaced
by D (as the law2vec embeddings of Chalkidis et al. 2019 have it): 'Directive
2003/87/EC' is directive DDDD DD ec. All else, inner hyphens and apostrophes
included, separates words and is dropped.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
import dataclasses
import functools
import hashlib
import itertools
import os
import pathlib
import re
from typing import ClassVar, NamedTuple
import unicodedata

import numpy as np

from xjax.core.atomic import atomic_write
from xjax.core.errors import DataError
from xjax.data.config import WordsConfig
from xjax.data.schema import Document

PAD_ID = 0
UNKNOWN_ID = 1
FIRST_WORD_ID = 2

# Part of the key of cached tokens: raise it when split_words changes.
WORDS_VERSION = 2


def _marks() -> str:
  """All combining marks, as ranges of a regular expression's set."""
  runs: list[list[int]] = []
  # There are none elsewhere, and looking everywhere takes a while.
  for code in (*range(0x300, 0x20000), *range(0xE0000, 0xE0200)):
    if unicodedata.category(chr(code)).startswith('M'):
      if runs and runs[-1][1] == code - 1:
        runs[-1][1] = code
      else:
        runs.append([code, code])
  return ''.join(f'{chr(first)}-{chr(last)}' for first, last in runs)


# Below U+0300 there are no marks: to see that first keeps European text fast.
_WORD = re.compile(rf'[^\W_]+(?:(?![\x00-\u02ff])[{_marks()}]+[^\W_]*)*')
_DIGIT = re.compile(r'\d')


# As scikit-learn's TfidfVectorizer has it, but without stepping back.
_TERM = re.compile(r'\w\w++')


def split_words(text: str, keep_digits: bool = False) -> list[str]:
  """The words of a text, in order; keep_digits: with digits as they are."""
  text = unicodedata.normalize('NFC', text.lower())
  if keep_digits:
    return [text[start:end] for start, end in _find_words(text)]
  return _WORD.findall(_DIGIT.sub('D', text))


def _find_words(text: str) -> list[tuple[int, int]]:
  """[start, end) of the words of a text in lower case and NFC, in order."""
  return [found.span() for found in _WORD.finditer(_DIGIT.sub('D', text))]


def split_terms(text: str, first_words: int = 0) -> list[str]:
  """The words that TF-IDF counts; first_words: of which the first, 0: all.

  They are runs of at least two letters, digits or underscores, in lower case;
  unlike split_words, digits and composition stay as they are.
  """
  terms = _TERM.findall(text.lower())
  return terms[:first_words] if first_words else terms


def has_letters(name: str) -> bool:
  """False for mere numbers, such as the ids of labels that have no name."""
  return any(map(str.isalpha, name))


@dataclasses.dataclass(frozen=True)
class Vocabulary:
  """Words and their ids: 0 pads, 1 is the unknown word, then words in order.

  Attributes:
    words: word i has the id i + 2.
    pad_id: the id that pads.
    n_special: tokens that are put around a text: none.
  """

  words: tuple[str, ...]
  pad_id: ClassVar[int] = PAD_ID
  n_special: ClassVar[int] = 0

  @classmethod
  def fit(cls, texts: Iterable[str], config: WordsConfig) -> 'Vocabulary':
    """Counts words in training texts; most frequent first, ties by word.

    Only the first config.max_tokens words of a text count: a word that no
    training batch shows would get no embedding.
    """
    counts = Counter()
    for text in texts:
      counts.update(split_words(text)[: config.max_tokens])
    kept = [(-n, word) for word, n in counts.items() if n >= config.min_count]
    kept.sort()
    return cls(tuple(word for _, word in kept[: config.max_words]))

  def with_words(self, words: Iterable[str]) -> 'Vocabulary':
    """This vocabulary and after it, in the order given, the words it lacks.

    The ids of its own words stay.

    Args:
      words: as split_words makes them; one may come several times.
    """
    return Vocabulary(tuple(dict.fromkeys((*self.words, *words))))

  def __len__(self) -> int:
    """The number of ids, pad and unknown included."""
    return len(self.words) + FIRST_WORD_ID

  @functools.cached_property
  def index(self) -> dict[str, int]:
    """Word -> id."""
    return {word: i for i, word in enumerate(self.words, FIRST_WORD_ID)}

  @functools.cached_property
  def digest(self) -> str:
    """Hex digest of the words and of how texts are split into words."""
    text = '\n'.join((str(WORDS_VERSION), *self.words))
    return hashlib.sha256(text.encode()).hexdigest()

  def encode(self, text: str, max_tokens: int | None = None) -> np.ndarray:
    """The ids of a text's first max_tokens words (None: of all), int32 [n]."""
    words = split_words(text)[:max_tokens]
    ids = map(self.index.get, words, itertools.repeat(UNKNOWN_ID))
    return np.fromiter(ids, np.int32, len(words))

  def encode_all(
    self, texts: Sequence[str], max_tokens: int | None = None
  ) -> list[np.ndarray]:
    """The ids of each text, as encode gives them."""
    return [self.encode(text, max_tokens) for text in texts]

  def save(self, path: str | os.PathLike) -> None:
    """Writes one word per line, without pad and unknown."""
    with atomic_write(path) as file:
      file.writelines(f'{word}\n' for word in self.words)

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'Vocabulary':
    """Reads what save wrote.

    Raises:
      DataError: the file is absent, cut short, or has a line that is not a
        word or comes twice.
    """
    try:
      text = pathlib.Path(path).read_bytes().decode()
    except OSError as error:
      raise DataError(f'{path}: cannot be read: {error.strerror}') from error
    except UnicodeDecodeError as error:
      raise DataError(f'{path}: is not UTF-8') from error
    *words, rest = text.split('\n')
    if rest:
      raise DataError(f'{path}:{len(words) + 1}: the last line is cut short')
    seen: set[str] = set()
    for line, word in enumerate(words, 1):
      if not _WORD.fullmatch(word):
        raise DataError(f'{path}:{line}: {word[:80]!r} is not one word')
      if word in seen:
        raise DataError(f'{path}:{line}: the word {word!r} comes twice')
      seen.add(word)
    return cls(tuple(words))


_FIRST_MARK = '\u0300'  # no character below it joins what stands before it


class WordPlace(NamedTuple):
  """A word of a document.

  Attributes:
    zone: whose text has it.
    start, end: the characters [start, end) of that text.
  """

  zone: str
  start: int
  end: int


def document_words(document: Document) -> list[WordPlace]:
  """The places of split_words(document.text()), word by word.

  Zones are joined by a newline, which no word goes across.
  """
  return [
    WordPlace(zone, start, end)
    for zone, text in document.zones.items()
    for start, end in word_spans(text)
  ]


def word_spans(text: str) -> list[tuple[int, int]]:
  """[start, end) in the text of each of split_words(text).

  Characters are those of Python's strings, code points. Where lower case or
  NFC makes several of one or one of several, a word has all that it is made
  of.
  """
  lower = text.lower()
  # Lower case never takes characters away: as many are the same ones.
  if len(lower) == len(text) and unicodedata.is_normalized('NFC', lower):
    return _find_words(lower)
  origin = [at for at, char in enumerate(text) for _ in char.lower()]
  composed, starts, ends = [], [], []
  for first, last in itertools.pairwise(_cuts(lower)):
    piece = unicodedata.normalize('NFC', lower[first:last])
    composed.append(piece)
    starts += [origin[first]] * len(piece)
    ends += [origin[last - 1] + 1] * len(piece)
  spans = _find_words(''.join(composed))
  return [(starts[start], ends[end - 1]) for start, end in spans]


def _cuts(text: str) -> Iterator[int]:
  """Where a text can be cut so that NFC of the parts is that of the whole."""
  begin = 0
  for at, char in enumerate(text):
    if at and not unicodedata.combining(char):
      if char < _FIRST_MARK or not _join(text[begin:at], char):
        yield begin
        begin = at
  yield begin
  yield len(text)


def _join(piece: str, char: str) -> bool:
  """Whether NFC makes something else of both together than of each."""
  apart = unicodedata.normalize('NFC', piece) + unicodedata.normalize(
    'NFC', char
  )
  return unicodedata.normalize('NFC', piece + char) != apart
