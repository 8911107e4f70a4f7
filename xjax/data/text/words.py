"""Splits texts into words, and numbers words with a vocabulary.

A word is a run of letters and digits of any script, with the marks on them
(such as the vowel signs of Hindi) and the joiners U+200C and U+200D between
them. In scripts without spaces between words (Han, Hiragana, Thai, Lao, Khmer,
Myanmar), each letter with its marks is a word. Soft hyphens and marks of the
direction of text are nothing. All other characters separate words and are
dropped, including hyphens and apostrophes inside words. Words are compared in
lower case and in NFC.

Neural models and searches for names read the words of split_words, in which D
replaces every digit, as in the law2vec embeddings of Chalkidis et al. 2019:
'Directive 2003/87/EC' becomes directive DDDD DD ec. TF-IDF counts the words of
split_terms, which differ as in scikit-learn: digits stay, _ is a letter, and
single letters of alphabets such as the Latin one do not count.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
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
from xjax.core.texts import UNSEEN
from xjax.data.schema import Document
from xjax.data.tokens_config import Analyzer, WordsConfig

PAD_ID = 0
UNKNOWN_ID = 1
FIRST_WORD_ID = 2

# The version is part of the key of cached tokens. Increase it if split_words
# changes.
WORDS_VERSION = 3

_JOINERS = '\u200c\u200d'
# Letters of scripts without spaces between words; no digits. Most words of
# Katakana, and all syllables of Tibetan, end where another script or a dot
# begins, so their letters do not stand alone.
_ALONE = (
  '\u0e00-\u0e4f\u0e5a-\u0ecf\u0eda-\u0eff\u1000-\u103f\u104a-\u108f'
  '\u109a-\u109f\u1780-\u17df\u17ea-\u17ff\u1950-\u19cf\u19da-\u19df'
  '\u1a20-\u1a7f\u1a9a-\u1aaf\u3005-\u3007\u3041-\u309f\u3400-\u4dbf'
  '\u4e00-\u9fff\ua9e0-\ua9ef\ua9fa-\ua9ff\uaa60-\uaadf\uf900-\ufaff'
  '\U0001b000-\U0001b16f\U00020000-\U0003ffff'
)
_WITHOUT_SPACES = re.compile(
  f'[{_ALONE}\u0f00-\u0fff\u30a0-\u30ff\u31f0-\u31ff\ua980-\ua9df\uff66-\uff9f]'
)
_SAMPLED = 1000  # texts, and characters of each, that tell their scripts
# All marks, joiners, letters that may stand alone, and characters that change
# in NFC. Texts without them, such as European texts in NFC, are split quickly.
_ODD = (
  f'{UNSEEN}\u0130\u0300-\u036f\u0374\u037e\u0387\u0483-\u0489\u0590-\u1cff'
  '\u1dc0-\u1dff\u1f00-\u1fff\u2000\u2001\u200c\u200d'
  '\u20d0-\u20ff\u2126\u212a\u212b'
  '\u2329\u232a\u2adc\u2c00-\u2c5f\u2c80-\U0010ffff'
)
_NOTHING = re.compile(f'[{UNSEEN}]')
_HAS_ODD = re.compile(f'[{_ODD}]')
_ASCII = bytes(range(128))
_DIGIT = re.compile(r'\d')


def _is_plain(text: str) -> bool:
  """Returns whether a text has no character of _ODD."""
  # To delete ASCII first is four times as fast as to search the whole text.
  rest = text.encode('utf-8', 'surrogatepass').translate(None, _ASCII)
  return not _HAS_ODD.search(rest.decode('utf-8', 'surrogatepass'))


def _normal(text: str) -> str:
  """Returns a text in the form in which words are compared."""
  return unicodedata.normalize('NFC', _NOTHING.sub('', text.lower()))


@functools.cache
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


@dataclasses.dataclass(frozen=True)
class _Splitter:
  """Splits texts into units: into words, or into their characters."""

  plain: str  # the pattern of a unit in plain texts
  letter: str  # what L stands for
  # The pattern of a unit in all texts. J is a mark, or joiners before a mark or
  # a letter; M a mark, A a letter that stands alone, O any odd letter.
  full: str

  @functools.cached_property
  def _ascii(self) -> re.Pattern[str]:
    return re.compile(self.plain, re.ASCII)  # this takes a quarter less time

  @functools.cached_property
  def _plain(self) -> re.Pattern[str]:
    return re.compile(self.plain)

  @functools.cached_property
  def full_pattern(self) -> re.Pattern[str]:
    """Returns the pattern for all texts; compiling it takes about 0.05 s."""
    mark = f'[{_marks()}]'
    joiners = f'[{_JOINERS}]+(?={self.letter}|{mark})'
    parts = {
      'L': self.letter,
      'M': mark,
      # No mark is below U+0300. To keep European text fast, the pattern
      # excludes these characters before it searches the long list of marks.
      'J': rf'(?:(?![\x00-\u02ff])(?:{mark}|{joiners}))',
      'A': rf'[{_ALONE}](?<=\w)',
      'O': rf'[{_ODD}](?<=[^\W\d_])',
    }
    full = re.sub('[LMJAO]', lambda part: parts[part[0]], self.full)
    # Most words are before others than these, and are found sooner.
    ascii_ = rf'(?a:{self.plain})(?![^\x00-\x7f])'
    return re.compile(rf'(?=\w)(?:{ascii_}|{full})')

  def prepare(self, text: str) -> tuple[re.Pattern[str], str]:
    """Returns the pattern for a text, and the text in lower case and NFC."""
    if text.isascii():
      return self._ascii, text.lower()
    if _is_plain(text):
      return self._plain, text.lower()
    return self.full_pattern, _normal(text)

  def split(self, text: str) -> list[str]:
    pattern, text = self.prepare(text)
    return pattern.findall(text)

  def spans(self, text: str) -> list[tuple[int, int]]:
    """Returns the place of each unit of `split`, as [start, end)."""
    pattern, normal = self.prepare(text)
    spans = [unit.span() for unit in pattern.finditer(normal)]
    if pattern is not self.full_pattern:  # no character changes its place
      return spans
    starts, ends = origins(text, _normal)
    return [(starts[start], ends[end]) for start, end in spans]


class _Matches(_Splitter):
  """Splits texts into the matches of a user's regular expression, `plain`."""

  @functools.cached_property
  def full_pattern(self) -> re.Pattern[str]:
    return self._plain

  def split(self, text: str) -> list[str]:
    return [unit for unit in super().split(text) if unit]

  def spans(self, text: str) -> list[tuple[int, int]]:
    return [(start, end) for start, end in super().spans(text) if start < end]


# `It_is 2 नदियाँ 東京`: it, is, 2, नदियाँ, 東, 京.
_WORD = _Splitter(r'[^\W_]++', rf'[^\W_{_ALONE}]', r'L+(?:J+L*)*|AM*')
# it_is, नदियाँ, 東, 京. In plain texts, this is the pattern of scikit-learn's
# TfidfVectorizer.
_TERM = _Splitter(
  r'\w\w++', rf'[^\W{_ALONE}]', r'L{2,}+(?:J+L*)*|L(?:J+L*)+|OM*'
)
# Letters and digits without anything between them, whether they stand alone:
# it, is, 2, नदियाँ, 東京.
_RUN = _Splitter(r'[^\W_]++', r'[^\W_]', r'L+(?:J+L*)*')
_CHARACTER = _Splitter(r'[^\W_]', r'[^\W_]', r'LJ*')
# By what TF-IDF counts: the units whose places explain labels.
_SPLITTERS = {
  Analyzer.WORDS: _TERM,
  Analyzer.CHARACTERS_IN_WORDS: _RUN,
  Analyzer.CHARACTERS: _CHARACTER,
}


def origins(
  text: str, form: Callable[[str], str]
) -> tuple[list[int], list[int]]:
  """Returns from where in a text the characters of form(text) come.

  Those of [start, end) come from [starts[start], ends[end]). `form` brings a
  text to NFC, and may change its characters one by one.
  """
  starts, ends = [], [0]
  for part in _composed().finditer(text):
    size = len(form(part[0]))
    starts += [part.start()] * size
    ends += [part.end()] * size
  return [*starts, len(text)], ends


@functools.cache
def _composed() -> re.Pattern[str]:
  # NFC changes a character only together with the marks, parts of Korean
  # syllables and vowels of Kirat Rai that follow it.
  follows = rf'[{_marks()}\u1160-\u11ff\U00016d63-\U00016d6a]'
  return re.compile(rf'.(?:{follows}|{_NOTHING.pattern})*', re.DOTALL)


def split_words(text: str, keep_digits: bool = False) -> list[str]:
  """Returns the words of a text, in order, by default with D for each digit."""
  pattern, text = _WORD.prepare(text)
  return pattern.findall(text if keep_digits else _DIGIT.sub('D', text))


def split_terms(text: str, first_words: int = 0) -> list[str]:
  """Returns the words that TF-IDF counts, in order; all if first_words is 0."""
  return _TERM.split(text)[: first_words or None]


# What stands between the characters of two words, whose n-grams do not reach
# from one to the other. A space may be a character of an n-gram.
BREAK = '\n'


def _splitter(analyzer: Analyzer, pattern: str) -> _Splitter:
  return _Matches(pattern, '', '') if pattern else _SPLITTERS[analyzer]


def split_units(
  text: str, analyzer: Analyzer, first: int = 0, pattern: str = ''
) -> list[str]:
  """Returns the units whose runs are the n-grams of TF-IDF, in order.

  They are words; or characters (letters with their marks), with a space between
  words; or characters within words, with a space before and after the letters
  of each word, and BREAK between words. Only the `first` words (or letters, if
  n-grams reach over words) are read, if it is not 0. Instead of words, there
  may be matches of a pattern in the text in lower case.
  """
  if analyzer is Analyzer.WORDS:
    return _splitter(analyzer, pattern).split(text)[: first or None]
  units = []
  within = analyzer is Analyzer.CHARACTERS_IN_WORDS
  for run in _RUN.split(text)[: within and first or None]:
    letters = _CHARACTER.full_pattern.findall(run)
    units += [' ', *letters, ' ', BREAK] if within else [*letters, ' ']
  letters = [at for at, unit in enumerate(units) if unit != ' ']
  if within or not first or len(letters) <= first:
    return units[:-1]
  return units[: letters[first]]


def lacks_spaces(texts: Sequence[str]) -> bool:
  """Returns whether most words are in scripts without spaces between words."""
  rows = range(0, len(texts), max(1, len(texts) // _SAMPLED))
  words = [w for row in rows for w in split_words(texts[row][:_SAMPLED])]
  return 2 * sum(map(bool, map(_WITHOUT_SPACES.match, words))) > len(words)


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
    all_words = all(map(_RUN.full_pattern.fullmatch, words))
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


def document_terms(
  document: Document,
  first: int = 0,
  analyzer: Analyzer = Analyzer.WORDS,
  pattern: str = '',
) -> list[WordPlace]:
  """Returns the place of each word, or letter, of split_units in a document."""
  splitter = _splitter(analyzer, pattern)
  return _places(document, splitter.spans)[: first or None]


def _places(
  document: Document, spans_of: Callable[[str], Iterable[tuple[int, int]]]
) -> list[WordPlace]:
  return [
    WordPlace(zone, start, end)
    for zone, text in document.zones.items()
    for start, end in spans_of(text)
  ]


def word_spans(text: str) -> list[tuple[int, int]]:
  """Returns the place of each word of split_words(text), as [start, end)."""
  return _WORD.spans(text)


@dataclasses.dataclass(frozen=True, eq=False)
class WordShares:
  """Holds which share of each feature of a text comes from each word.

  Word words[i] has the share shares[i] in the value of the feature
  features[places[i]]. All shares of a feature add up to its value. A word may
  have several shares in the same feature.
  """

  # T words, as compared, such as in lower case. Equal words are listed once.
  terms: Sequence[Hashable]
  features: np.ndarray  # int [D], the text's features, ascending
  words: np.ndarray
  places: np.ndarray
  shares: np.ndarray

  @classmethod
  def of(
    cls,
    terms: Sequence[Hashable],
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
