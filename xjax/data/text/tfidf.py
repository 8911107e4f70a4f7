"""Computes the TF-IDF weights of a text's n-grams, as sparse features."""

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
import dataclasses
import functools
import hashlib
import itertools
import json
import os

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.core.errors import DAMAGE, DataError
from xjax.core.progress import Progress, progress
from xjax.core.texts import Texts
from xjax.data.schema import Document
from xjax.data.text.words import (
  BREAK,
  WordPlace,
  WordShares,
  document_terms,
  split_units,
)
from xjax.data.tokens_config import Analyzer, TfidfConfig

_RARE = -1  # stands for every n-gram that is not frequent enough
# The first numbers of units. No n-gram has a BREAK, and none is only a space.
_NUMBERS = {BREAK: 0, ' ': 1}


def ngrams(
  units: Sequence[str], n: int, analyzer: Analyzer = Analyzer.WORDS
) -> Iterable[str]:
  """Returns all runs of n units, in order, with a space between words."""
  if n == 1:
    return units
  join = (' ' if analyzer is Analyzer.WORDS else '').join
  return map(join, zip(*(units[start:] for start in range(n))))


def frequent_ngrams(
  texts: Collection[str], config: TfidfConfig
) -> dict[str, int]:
  """Selects frequent n-grams, and counts the texts that contain each n-gram.

  The candidates, of min_ngram to max_ngram units, are in at least min_count
  texts, and in at most the share max_share of them. The max_features candidates
  that occur most often are selected; among equals, the n-gram with fewer units,
  and then the n-gram that occurs first. The result is sorted by code points.

  Memory is about 60 bytes per unit (word, or character) of the texts, for any
  max_ngram.
  """
  corpus = _TextUnits.of(texts, config)
  most = config.max_share * len(texts)
  # Each column of `kept` describes one selected n-gram. The rows are minus the
  # number of occurrences, the number of units, the place of the first
  # occurrence, and the number of documents.
  kept = np.zeros((4, 0), np.int64)
  numbers = corpus.ids
  for n in range(1, config.max_ngram + 1):
    at, keys = corpus.keys(numbers, n)
    # Documents ascend, and the sort is stable, so those of a key ascend too.
    order = np.argsort(keys, kind='stable')
    keys, docs = keys[order], corpus.docs[at][order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))  # of equal keys
    totals = np.diff(starts, append=len(keys))
    is_new = np.diff(docs, prepend=-1) != 0
    is_new[starts] = True
    documents = np.add.reduceat(is_new, starts, dtype=np.int64)
    keys = keys[starts]
    del docs
    often = documents >= config.min_count
    if n == 1:
      often[keys == _NUMBERS[BREAK]] = False
    # An n-gram occurs in at most as many documents as each shorter n-gram that
    # it contains. So only frequent n-grams are extended by a unit.
    group_numbers = np.where(often, np.cumsum(often) - 1, _RARE)
    numbers = np.full_like(corpus.places, _RARE)
    numbers[at[order]] = np.repeat(group_numbers.astype(numbers.dtype), totals)
    if n >= config.min_ngram:
      chosen = often & (documents <= most)
      if n == 1:
        chosen[keys == _NUMBERS[' ']] = False
      firsts, documents = at[order[starts[chosen]]], documents[chosen]
      rows = -totals[chosen], np.full(len(firsts), n), firsts, documents
      kept = np.concatenate([kept, np.stack(rows)], axis=1)
      # lexsort sorts by its last key first, so the rows are reversed.
      kept = kept[:, np.lexsort(kept[2::-1])[: config.max_features]]
  counts = {}
  for _, n, at, count in kept.T.tolist():
    units = [corpus.units[id_] for id_ in corpus.ids[at : at + n]]
    counts[next(iter(ngrams(units, n, config.analyzer)))] = count
  return dict(sorted(counts.items()))


def _units_of(text: str, config: TfidfConfig) -> list[str]:
  """Returns the units of a text whose runs are n-grams."""
  first, pattern = config.first_words, config.pattern
  return split_units(text, config.analyzer, first, pattern)


@dataclasses.dataclass(frozen=True, eq=False)
class _TextUnits:
  """Holds all units of N texts as one sequence with `total` places."""

  units: Sequence[str]  # distinct; the index of a unit is its number
  ids: np.ndarray  # int32 [total], the number of the unit at each place
  docs: np.ndarray  # int32 [total], the text that contains each place
  ends: np.ndarray  # int64 [N], the place after each text's last unit
  places: np.ndarray  # 0, 1, ..., in the smallest type that holds `total`

  @classmethod
  def of(cls, texts: Collection[str], config: TfidfConfig) -> '_TextUnits':
    """Splits texts as split_units does."""
    numbers: dict[str, int] = defaultdict(None, _NUMBERS)
    numbers.default_factory = numbers.__len__  # a new unit gets the next number
    ids, ends = array('i'), array('q')
    with progress(texts, 'words of train') as shown_texts:
      for text in shown_texts:
        units = _units_of(text, config)
        ids.extend(map(numbers.__getitem__, units))
        ends.append(len(ids))
    ends = np.asarray(ends, np.int64)
    docs = np.repeat(
      np.arange(len(ends), dtype=np.int32), np.diff(ends, prepend=0)
    )
    places = np.arange(len(ids), dtype=np.int32 if len(ids) < 2**31 else None)
    return cls(list(numbers), np.asarray(ids, np.int32), docs, ends, places)

  def keys(self, numbers: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns where n-grams that may be frequent start, and a key for each."""
    # `numbers` has the unit at each place if n is 1, else the frequent n-gram
    # of n - 1 units that starts there, or _RARE. Keys are int64.
    if n == 1:
      return self.places, numbers.astype(np.int64)
    at = self.places[:-1]
    at = at[(numbers[:-1] != _RARE) & (numbers[1:] != _RARE)]
    at = at[self.ends[self.docs[at]] - at >= n]
    # An n-gram is its first n - 1 units and its last unit, as one integer.
    keys = numbers[at].astype(np.int64)
    keys *= len(self.units)
    keys += self.ids[n - 1 :][at]
    return at, keys


@dataclasses.dataclass(frozen=True, eq=False)
class Tfidf:
  """Turns texts into rows of weighted n-grams.

  The weight of an n-gram in a text is tf * (ln((1 + N) / (1 + d)) + 1), where d
  of the N training documents contain the n-gram. If the n-gram occurs c times
  in the text, tf is c, or 1 + ln c if config.sublinear is set. Rows have norm
  1. The weights are those of scikit-learn's TfidfVectorizer.
  """

  config: TfidfConfig
  terms: tuple[str, ...]  # D n-grams, sorted by code points
  idf: np.ndarray  # float32 [D], ln((1 + N) / (1 + d)) + 1

  @classmethod
  def fit(cls, texts: Collection[str], config: TfidfConfig) -> 'Tfidf':
    """Selects frequent n-grams, and computes their idf; a DataError if none."""
    with Progress('counting n-grams'):
      counts = frequent_ngrams(texts, config)
    if not counts:
      way_out = (
        '. For texts of single letters, or without spaces between words: '
        'data.tokens.analyzer=characters'
      ) * (config.analyzer is Analyzer.WORDS)
      if config.pattern:
        way_out = (
          f'. Matches of data.tokens.pattern={config.pattern!r} are searched '
          'for in lower case'
        )
      raise DataError(
        f'train has no usable n-gram of {config.units}. A usable n-gram is in '
        'enough documents '
        f'(data.tokens.min_count={config.min_count}), and in a small enough '
        f'share (data.tokens.max_share={config.max_share}) of the '
        f'{len(texts)} documents of train{way_out}'
      )
    counts_D = np.array(list(counts.values()), np.float64)
    idf_D = np.log((1 + len(texts)) / (1 + counts_D)) + 1
    return cls(config, tuple(counts), idf_D.astype(np.float32))

  @property
  def n_features(self) -> int:
    return len(self.terms)

  @functools.cached_property
  def index(self) -> dict[str, int]:
    return {term: i for i, term in enumerate(self.terms)}

  @functools.cached_property
  def digest(self) -> str:
    """SHA-256 of all that decides features; equal ones share their features."""
    digest = hashlib.sha256()
    for values in self._arrays().values():
      digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()

  def __call__(self, texts: Sequence[str]) -> sparse.csr_array:
    """Computes features of N texts, float32 [N, D]; a row has norm 1 or 0."""
    if not len(texts):  # scikit-learn raises an error for an empty list
      return sparse.csr_array((0, self.n_features), dtype=np.float32)
    rows = sparse.csr_array(self._vectorizer.transform(texts))
    rows.sort_indices()
    return rows

  @functools.cached_property
  def _vectorizer(self) -> TfidfVectorizer:
    vectorizer = TfidfVectorizer(
      analyzer=self._terms,
      vocabulary=self.index,
      sublinear_tf=self.config.sublinear,
      dtype=np.float32,
    )
    vectorizer.idf_ = self.idf
    return vectorizer

  def _units(self, text: str) -> list[str]:
    return _units_of(text, self.config)

  def _ngrams(self, units: Sequence[str]) -> Iterator[Iterable[str]]:
    """Yields the n-grams of each size, from the smallest, in order."""
    for n in range(self.config.min_ngram, self.config.max_ngram + 1):
      yield ngrams(units, n, self.config.analyzer)

  def _terms(self, text: str) -> Iterable[str]:
    return itertools.chain.from_iterable(self._ngrams(self._units(text)))

  def words(self, document: Document) -> list[WordPlace]:
    first, pattern = self.config.first_words, self.config.pattern
    return document_terms(document, first, self.config.analyzer, pattern)

  def word_shares(self, document: Document) -> WordShares:
    """Divides the features of document.text() among the document's words.

    If n-grams of characters may reach over words, the letters share them. Then
    each letter counts as another word, since equal letters mean nothing.
    """
    text, parts = document.text(), []
    terms = units = self._units(text)
    within = self.config.analyzer is Analyzer.CHARACTERS_IN_WORDS
    ends = [unit == BREAK if within else unit != ' ' for unit in units]
    if within:
      terms = [word.strip() for word in ''.join(units).split(BREAK) if word]
    elif self.config.analyzer is Analyzer.CHARACTERS:
      terms = range(sum(ends))
    # The number of words or letters that end before each unit.
    before = np.append(0, np.cumsum(ends, dtype=np.int64))
    sizes = range(self.config.min_ngram, self.config.max_ngram + 1)
    for n, found in zip(sizes, self._ngrams(units)):
      columns = map(self.index.get, found, itertools.repeat(-1))
      columns = np.fromiter(columns, np.int64)
      starts = np.flatnonzero(columns >= 0)
      # The word around an n-gram of its characters does not end in it.
      words = np.maximum(before[starts + n] - before[starts], 1)
      parts.append((before[starts], words, columns[starts]))
    occurrences = (np.concatenate(arrays) for arrays in zip(*parts))
    return WordShares.of(terms, tuple(occurrences), self([text]).data)

  def save(self, path: str | os.PathLike) -> None:
    write_npz(path, self._arrays())

  def _arrays(self) -> dict[str, np.ndarray]:
    config = dataclasses.asdict(self.config)
    config['analyzer'] = self.config.analyzer.value
    settings = json.dumps(config).encode()
    return {
      'config': np.frombuffer(settings, np.uint8),
      **Texts.of(self.terms).arrays('terms'),
      'idf': self.idf,
    }

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'Tfidf':
    """Reads what save wrote; a missing or damaged file is a DataError."""
    arrays = Arrays.read(path)
    settings = arrays.take('config', np.uint8, (None,)).tobytes()
    try:
      config = TfidfConfig(**json.loads(settings))
      config.analyzer = Analyzer(config.analyzer)
    except DAMAGE as error:
      raise DataError(f'{path}: config: cannot be read: {error}') from error
    terms = tuple(arrays.strings('terms'))
    idf = arrays.take('idf', np.float32, (len(terms),))
    arrays.finish()
    if list(terms) != sorted(terms):
      raise DataError(f'{path}: terms: are not sorted; the file is damaged')
    return cls(config, terms, idf)
