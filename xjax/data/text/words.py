"""Splits texts into words, and numbers words with a vocabulary.

A word is a run of letters and digits of any script, with the marks on them
(such as the vowel signs of Hindi). Words are in lower case, and D replaces
every digit, as in the law2vec embeddings of Chalkidis et al. 2019: 'Directive
2003/87/EC' becomes directive DDDD DD ec. All other characters separate words
and are dropped, including hyphens and apostrophes inside words.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
import dataclasses
import functools
import hashlib
import itertools
import os
import pathlib
import re
from typing import ClassVar, NamedTuple, Protocol, Self
import unicodedata

import numpy as np
from scipy import sparse

from xjax.core.atomic import atomic_write
from xjax.core.errors import DataError
from xjax.data.schema import Document
from xjax.data.tokens_config import WordsConfig

PAD_ID = 0
UNKNOWN_ID = 1
FIRST_WORD_ID = 2

# The version is part of the key of cached tokens. Increase it if split_words
# changes.
WORDS_VERSION = 2


def _marks() -> str:
  runs: list[list[int]] = []
  # All marks are in these ranges. To search all characters would be slow.
  for code in (*range(0x300, 0x20000), *range(0xE0000, 0xE0200)):
    if unicodedata.category(chr(code)).startswith('M'):
      if runs and runs[-1][1] == code - 1:
        runs[-1][1] = code
      else:
        runs.append([code, code])
  return ''.join(f'{chr(first)}-{chr(last)}' for first, last in runs)


@functools.cache
def _word() -> re.Pattern[str]:
  """Returns the pattern of a word; compiling it takes about 0.05 s."""
  # No character below U+0300 is a mark. To keep European text fast, the pattern
  # excludes these characters before it searches the long list of marks.
  return re.compile(rf'[^\W_]+(?:(?![\x00-\u02ff])[{_marks()}]+[^\W_]*)*')


_DIGIT = re.compile(r'\d')


# This is the pattern of scikit-learn's TfidfVectorizer, without backtracking.
_TERM = re.compile(r'\w\w++')


def split_words(text: str, keep_digits: bool = False) -> list[str]:
  """Returns the words of a text, in order, by default with D for each digit."""
  text = unicodedata.normalize('NFC', text.lower())
  return _word().findall(text if keep_digits else _DIGIT.sub('D', text))


def split_terms(text: str, first_words: int = 0) -> list[str]:
  """Returns the words that TF-IDF counts, in order; all if first_words is 0."""
  # These are runs of at least two letters, digits or underscores, in lower
  # case, with their digits, and not in NFC.
  terms = _TERM.findall(text.lower())
  return terms[:first_words] if first_words else terms


def has_letters(name: str) -> bool:
  """Returns whether a name has letters."""
  return any(map(str.isalpha, name))


@dataclasses.dataclass(frozen=True)
class Vocabulary:
  """Maps words to ids, where 0 is padding and 1 is the unknown word."""

  words: tuple[str, ...]  # word i has the id i + 2
  pad_id: ClassVar[int] = PAD_ID
  n_special: ClassVar[int] = 0

  @classmethod
  def fit(cls, texts: Iterable[str], config: WordsConfig) -> 'Vocabulary':
    """Counts words in training texts and keeps the most frequent ones."""
    # Words after config.max_tokens are in no training batch, so their
    # embeddings would not be trained. Ties are in the order of code points.
    counts = Counter()
    for text in texts:
      counts.update(split_words(text)[: config.max_tokens])
    kept = [(-n, word) for word, n in counts.items() if n >= config.min_count]
    kept.sort()
    return cls(tuple(word for _, word in kept[: config.max_words]))

  def with_words(self, words: Iterable[str]) -> 'Vocabulary':
    """Returns a copy with more words at its end, in order, each only once."""
    return Vocabulary(tuple(dict.fromkeys((*self.words, *words))))

  def __len__(self) -> int:
    return len(self.words) + FIRST_WORD_ID

  @functools.cached_property
  def index(self) -> dict[str, int]:
    return {word: i for i, word in enumerate(self.words, FIRST_WORD_ID)}

  @functools.cached_property
  def digest(self) -> str:
    """Returns the hex digest of the words and of the version of split_words."""
    text = '\n'.join((str(WORDS_VERSION), *self.words))
    return hashlib.sha256(text.encode()).hexdigest()

  def encode(self, text: str, max_tokens: int | None = None) -> np.ndarray:
    """Returns the ids of a text's first max_tokens words, int32 [n]."""
    words = split_words(text)[:max_tokens]
    ids = map(self.index.get, words, itertools.repeat(UNKNOWN_ID))
    return np.fromiter(ids, np.int32, len(words))

  def encode_all(
    self, texts: Sequence[str], max_tokens: int | None = None
  ) -> list[np.ndarray]:
    return [self.encode(text, max_tokens) for text in texts]

  def save(self, path: str | os.PathLike) -> None:
    with atomic_write(path) as file:
      file.writelines(f'{word}\n' for word in self.words)

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'Vocabulary':
    """Reads what save wrote; a DataError names what is wrong with the file."""
    try:
      text = pathlib.Path(path).read_bytes().decode()
    except OSError as error:
      raise DataError(f'{path}: cannot be read: {error.strerror}') from error
    except UnicodeDecodeError as error:
      raise DataError(f'{path}: is not UTF-8') from error
    *words, rest = text.split('\n')
    all_words = all(map(_word().fullmatch, words))
    if rest or not all_words or len(set(words)) < len(words):
      raise DataError(
        f'{path}: is damaged: each line must be one word, which no other line '
        'has, also the last line'
      )
    return cls(tuple(words))


class WordPlace(NamedTuple):
  """Holds the place of a word: characters [start, end) of a document's zone."""

  zone: str
  start: int
  end: int


def document_words(document: Document) -> list[WordPlace]:
  """Returns the place of each word of split_words(document.text())."""
  return _places(document, word_spans)


def document_terms(document: Document, first_words: int = 0) -> list[WordPlace]:
  """Returns the place of each word of split_terms(document.text(), ...)."""
  return _places(document, _term_spans)[: first_words or None]


def _places(
  document: Document, spans_of: Callable[[str], Iterable[tuple[int, int]]]
) -> list[WordPlace]:
  return [
    WordPlace(zone, start, end)
    for zone, text in document.zones.items()
    for start, end in spans_of(text)
  ]


def _term_spans(text: str) -> Iterable[tuple[int, int]]:
  lower = text.lower()
  spans = map(re.Match.span, _TERM.finditer(lower))
  if len(lower) == len(text):
    return spans
  origin = [at for at, char in enumerate(text) for _ in char.lower()]
  return ((origin[start], origin[end - 1] + 1) for start, end in spans)


def word_spans(text: str) -> list[tuple[int, int]]:
  """Returns the place of each word of split_words(text), as [start, end)."""
  # Lower case and NFC may change the length of a text, but never where a word
  # starts or ends: a letter stays a letter, perhaps with marks, and a mark
  # stays one, or joins the letter before it.
  return [match.span() for match in _word().finditer(text)]


@dataclasses.dataclass(frozen=True, eq=False)
class WordShares:
  """Holds which share of each feature of a text comes from each word.

  Word words[i] has the share shares[i] in the value of the feature
  features[places[i]]. All shares of a feature add up to its value. A word may
  have several shares in the same feature.
  """

  terms: Sequence[str]  # T words, as compared, such as in lower case
  features: np.ndarray  # int [D], the text's features, ascending
  words: np.ndarray
  places: np.ndarray
  shares: np.ndarray

  @classmethod
  def of(
    cls,
    terms: Sequence[str],
    occurrences: tuple[np.ndarray, np.ndarray, np.ndarray],
    values_D: np.ndarray,
  ) -> Self:
    """Divides features that stand for one or several words in a row.

    The value of a feature is divided equally among all its occurrences, and the
    share of an occurrence equally among its words. `occurrences` has the first
    word, the number of words and the feature of each occurrence. `values_D` has
    the values of the features that occur, which ascend.
    """
    start, size, feature = occurrences
    features, at, counts = np.unique(
      feature, return_inverse=True, return_counts=True
    )
    ends = np.cumsum(size)
    words = np.arange(size.sum()) + np.repeat(start - (ends - size), size)
    parts = (values_D.astype(np.float64) / counts)[at] / size
    return cls(
      terms, features, words, np.repeat(at, size), np.repeat(parts, size)
    )

  def contributions(self, weights_DK: np.ndarray) -> np.ndarray:
    """Returns what words add to K sums of D features, float64 [K, T]."""
    contributions_KT = np.zeros((weights_DK.shape[1], len(self.terms)))
    for contributions_T, weights_D in zip(contributions_KT, weights_DK.T):
      parts = self.shares * weights_D[self.places]
      contributions_T[:] = np.bincount(self.words, parts, len(self.terms))
    return contributions_KT


class TextFeatures(Protocol):
  """Computes sparse features of texts, and says from which words they come."""

  n_features: int  # D

  def __call__(self, texts: Sequence[str]) -> sparse.csr_array:
    """Returns the features [N, D] of N texts; columns ascend in each row."""

  def words(self, document: Document) -> list[WordPlace]:
    """Returns the place of each word of a document, in reading order."""

  def word_shares(self, document: Document) -> WordShares:
    """Divides a document's features among its words."""
