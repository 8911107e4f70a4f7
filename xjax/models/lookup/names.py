"""Scores labels by how much of their names is in a text."""

import collections
from collections.abc import Collection, Iterable, Iterator, Sequence
import dataclasses
import enum
import functools
import os
import pathlib
from typing import Any

import ahocorasick
from jaxtyping import Float32, Int32
import numpy as np
from scipy import sparse
import snowballstemmer

from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.core.config_part import field
from xjax.core.progress import progress
from xjax.core.texts import Texts
from xjax.core.types import Ragged
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.schema import Corpus, Document
from xjax.data.text.words import (
  WordPlace,
  WordShares,
  document_words,
  has_letters,
  split_words,
)
from xjax.models.contract import Config, Run
from xjax.models.features import DocumentTexts
from xjax.models.lookup.exact_match import (
  NamedModel,
  NameScorer,
  automaton_of,
  check_letters,
)
from xjax.models.lookup.name_loops import best_names

_RUN = 4  # characters of a run
_LEAST_IDF = 0.1
_LEAST_COUNT = 2  # units in fewer documents count as units in none
_WORDS = 1 << 18  # words whose units are kept in memory
_KEPT = 1000  # largest number of labels of a document
_COUNTS = 'model/units.npz'
# Two rare words that occur several times have about this score.
_ASSIGNED_ABOVE = 20.0


class Units(enum.Enum):
  """Says which parts of names and texts are compared."""

  STEMS = 'stems'  # words without their endings; they need a language
  CHARACTERS = 'characters'  # runs of four, if there is no stemmer


class UnitSplitter:
  """Splits texts into the units that are compared."""

  def __init__(self, units: Units, language: str):
    self._characters = units is Units.CHARACTERS
    if not self._characters:
      self._stem = functools.partial(_stem, language)

  def words(self, text: str, max_words: int | None = None) -> list[str]:
    """Returns the words of a text, or their stems, in order."""
    words = split_words(text, keep_digits=True)[:max_words]
    return words if self._characters else list(map(self._stem, words))

  def units(self, word: str) -> Sequence[str]:
    if not self._characters:
      return (word,)
    return _runs(word)


@functools.lru_cache(_WORDS)
def _stem(language: str, word: str) -> str:
  # A stemmer holds the word that it works on, so threads must not share one.
  return snowballstemmer.stemmer(language).stemWord(word)


@functools.lru_cache(_WORDS)
def _runs(word: str) -> tuple[str, ...]:
  """Returns the runs of characters of a word, with marks at both ends."""
  word = f'^{word}$'
  starts = range(max(1, len(word) - _RUN + 1))
  return tuple(dict.fromkeys(word[at : at + _RUN] for at in starts))


@dataclasses.dataclass(frozen=True, eq=False)
class UnitCounts:
  """Holds in how many training documents each unit is."""

  n_documents: int  # training documents
  units: Texts  # those in at least two documents
  counts: np.ndarray  # int32, the number of documents of each of these units

  @classmethod
  def fit(
    cls, texts: Collection[str], splitter: UnitSplitter, max_words: int
  ) -> 'UnitCounts':
    counts: dict[str, int] = {}
    with progress(texts, 'words of train') as shown:
      for text in shown:
        words = set(splitter.words(text, max_words))
        for unit in {unit for word in words for unit in splitter.units(word)}:
          counts[unit] = counts.get(unit, 0) + 1
    # Sorted, so that the file does not depend on the order of sets.
    kept = sorted(unit for unit, n in counts.items() if n >= _LEAST_COUNT)
    numbers = np.array([counts[unit] for unit in kept], np.int32)
    return cls(len(texts), Texts.of(kept), numbers)

  def idf(self, units: Sequence[str]) -> Float32[np.ndarray, ' U']:
    """Returns ln((1 + N) / (1 + d)) of units in d of N documents, or 0.1."""
    rows = self.units.row_of.find(units)
    counts = np.append(self.counts, 0)[rows]  # row -1 is a unit without a count
    idf = np.log((1 + self.n_documents) / (1 + counts.astype(np.float64)))
    return np.maximum(idf, _LEAST_IDF).astype(np.float32)

  def save(self, path: str | os.PathLike) -> None:
    arrays = {
      **self.units.arrays('units'),
      'counts': self.counts,
      'n_documents': np.int64(self.n_documents),
    }
    write_npz(path, arrays)

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'UnitCounts':
    arrays = Arrays.read(path)
    units = arrays.strings('units')
    counts = arrays.take('counts', np.int32, (len(units),))
    n_documents = arrays.count('n_documents')
    bad = (counts < _LEAST_COUNT) | (counts > n_documents)
    arrays.check('counts', bad, f'is not from {_LEAST_COUNT} to {n_documents}')
    arrays.finish()
    return cls(n_documents, units, counts)


class NameCoverage:
  """Turns texts into scores of labels, by the names that the texts have.

  The score of a name is

    (sum of idf (1 + ln f)) * share * (1 + ln(1 + n)).

  The sum is over the units of the name that the text has, each f times. The
  share is what these units have of the idf of all units of the name. The words
  of the name follow each other in n places of the text. A label has the largest
  score of its names. Labels whose names share no unit with the text have no
  score. At most 1,000 labels of a text have scores: those with the largest
  scores, and then with the lowest numbers.
  """

  def __init__(
    self,
    names: Sequence[Sequence[str]],
    splitter: UnitSplitter,
    counts: UnitCounts,
    max_words: int,
  ):
    # The scores of labels are the features (see LabelScoreScorer).
    self.n_features = len(names)
    self._splitter, self._max_words = splitter, max_words
    words, owners = [], []
    for label, label_names in enumerate(names):
      for name in dict.fromkeys(filter(has_letters, label_names)):
        words.append(splitter.words(name))
        owners.append(label)
    check_letters(names)
    self._owners = np.array(owners, np.int32)
    units = [_distinct_units(x, splitter) for x in words]
    self._unit_rows = {
      unit: row for row, unit in enumerate(dict.fromkeys(_chain(units)))
    }
    self._idf = counts.idf(list(self._unit_rows))
    rows = Ragged.of([[self._unit_rows[u] for u in x] for x in units])
    shape = len(units), len(self._unit_rows)
    # The matrix says only which units a name has; bool takes the least memory.
    ones = np.ones(len(rows.values), bool)
    self._names = sparse.csr_array((ones, rows.values, rows.indptr), shape)
    # By unit: the names that have it, which is what a text looks up.
    self._postings = self._names.tocsc()
    self._masses = (self._names.astype(np.float32) @ self._idf).astype(
      np.float32
    )
    self._phrases = _phrases(words)

  def __call__(self, texts: Sequence[str]) -> sparse.csr_array:
    """Returns the scores of labels, float32 [N, L] with ascending columns."""
    memory = self._memory()
    words = (self._splitter.words(text, self._max_words) for text in texts)
    rows = [self._best(words_of, memory)[:2] for words_of in words]
    labels = Ragged.of([labels for labels, _ in rows])
    scores = [scores for _, scores in rows] or [np.zeros(0, np.float32)]
    parts = np.concatenate(scores), labels.values, labels.indptr
    return sparse.csr_array(parts, (len(texts), self.n_features))

  def words(self, document: Document) -> list[WordPlace]:
    return document_words(document)[: self._max_words]

  def word_shares(self, document: Document) -> WordShares:
    """Divides the score of each label among the words of its best name.

    The score is divided among the units in proportion to idf (1 + ln f), and
    the share of a unit equally among the f words that have it.
    """
    words = self._splitter.words(document.text(), self._max_words)
    labels, scores, best = self._best(words, self._memory())
    places = self._places(words)
    at, where, shares = [], [], []
    for place, (name, score) in enumerate(zip(best.tolist(), scores.tolist())):
      rows = [row for row in self._units_of(name) if row in places]
      counts = [len(places[row]) for row in rows]
      parts = self._idf[rows] * (1 + np.log(np.array(counts, np.float64)))
      # The parts of a name's units add up to the label's score.
      parts *= score / parts.sum()
      for row, n, part in zip(rows, counts, parts.tolist()):
        at += places[row]
        where += [place] * n
        shares += [part / n] * n
    return WordShares(
      words,
      labels,
      np.array(at, np.int64),
      np.array(where, np.int64),
      np.array(shares, np.float64),
    )

  def _places(self, words: Sequence[str]) -> dict[int, list[int]]:
    places: dict[int, list[int]] = {}
    for place, word in enumerate(words):
      for unit in self._splitter.units(word):
        if (row := self._unit_rows.get(unit)) is not None:
          places.setdefault(row, []).append(place)
    return places

  def _units_of(self, name: int) -> list[int]:
    start, end = self._names.indptr[name : name + 2]
    return self._names.indices[start:end].tolist()

  def _best(
    self, words: Sequence[str], memory: tuple[np.ndarray, ...]
  ) -> tuple[
    Int32[np.ndarray, ' K'], Float32[np.ndarray, ' K'], Int32[np.ndarray, ' K']
  ]:
    """Returns labels, ascending, with their scores and their best names."""
    counts: dict[int, int] = {}
    for word, n in collections.Counter(words).items():
      for unit in self._splitter.units(word):
        if (row := self._unit_rows.get(unit)) is not None:
          counts[row] = counts.get(row, 0) + n
    rows = sorted(counts)
    labels, scores, names = best_names(
      np.array(rows, np.int64),
      np.array([counts[row] for row in rows], np.int32),
      (self._postings.indptr, self._postings.indices, self._idf),
      (self._masses, self._owners),
      np.array(self._find(words), np.int32),
      memory,
    )
    kept = _largest(scores, labels, _KEPT)
    return labels[kept], scores[kept], names[kept]

  def _memory(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # Each call has its own memory, so that threads can share this object. The
    # operating system clears only the parts that are used.
    return (
      np.zeros((len(self._owners), 2), np.float32),
      np.zeros(len(self._owners), np.int32),
      np.zeros(self.n_features, np.int32),
    )

  def _find(self, words: Sequence[str]) -> list[int]:
    """Returns a name for each place where its words follow each other."""
    text = f' {" ".join(words)} '
    return [name for _, names in self._phrases.iter(text) for name in names]


def _chain(lists: Iterable[Iterable[str]]) -> Iterable[str]:
  return (x for values in lists for x in values)


def _distinct_units(words: Sequence[str], splitter: UnitSplitter) -> list[str]:
  return list(dict.fromkeys(_chain(map(splitter.units, words))))


def _phrases(words: Sequence[Sequence[str]]) -> ahocorasick.Automaton:
  """Returns an automaton that finds the numbers of names in spaced words."""
  numbers: dict[str, list[int]] = {}
  for number, words_of in enumerate(words):
    # The spaces ensure that no word matches a part of another word.
    numbers.setdefault(f' {" ".join(words_of)} ', []).append(number)
  return automaton_of(numbers)


def _largest(
  scores: Float32[np.ndarray, ' K'], labels: Int32[np.ndarray, ' K'], n: int
) -> np.ndarray:
  """Returns where the n largest scores are, in O(K); lower labels win ties."""
  at = np.arange(len(scores))
  if len(scores) > n:
    # np.partition does not say which of several equal scores it takes. So those
    # above the bound are taken first, and then the lowest labels at the bound.
    bound = np.partition(scores, -n)[-n]
    above = np.flatnonzero(scores > bound)
    tied = np.flatnonzero(scores == bound)
    tied = tied[np.argsort(labels[tied])][: n - len(above)]
    at = np.concatenate([above, tied])
  return at[np.argsort(labels[at])]


@dataclasses.dataclass
class NamesModel(NamedModel):
  """Scores labels by how much of their names is in the document.

  A stem counts more if few training documents have it, and if it occurs several
  times. A name that is in the document as a phrase counts more than its stems
  alone. The model reads the first data.tokens.max_tokens words of a document.
  """

  label_independent_files = (_COUNTS,)

  alt: bool = field(
    True, 'Whether to search for the alternative names of labels as well.'
  )
  units: Units = field(Units.STEMS, 'The parts of names that are compared.')
  language: str = field(
    'english',
    'The language of the stems, such as english, german or french. It is not '
    'used with units=CHARACTERS.',
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    languages = snowballstemmer.algorithms()
    if self.units is Units.STEMS and self.language not in languages:
      yield (
        f'{path}.language={self.language!r}: must be one of '
        f'{", ".join(languages)}; for other languages, set '
        f'{path}.units=CHARACTERS'
      )

  def fit(self, corpus: Corpus, run: Run) -> None:
    texts = DocumentTexts(corpus.splits[TRAIN].documents)
    max_words = run.config.data.tokens.max_tokens
    run.once(
      self._counts(run),
      lambda: UnitCounts.fit(texts, self._splitter(), max_words).save,
      UnitCounts.load,
    )

  def open(self, run: Run) -> NameScorer:
    search = functools.partial(
      NameCoverage,
      splitter=self._splitter(),
      counts=run.read(self._counts(run), UnitCounts.load),
      max_words=run.config.data.tokens.max_tokens,
    )
    space = run.label_space()
    return NameScorer(space, run.config, search, _ASSIGNED_ABOVE)

  def _splitter(self) -> UnitSplitter:
    return UnitSplitter(self.units, self.language)

  def _counts(self, run: Run) -> pathlib.Path:
    return run.folder.path / _COUNTS

  def same_files(self, config: Config, other: Config) -> bool:
    return self == other.model and super().same_files(config, other)
