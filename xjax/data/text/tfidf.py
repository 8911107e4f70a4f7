"""Sparse features of texts: n-grams of words, weighted by TF-IDF."""

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
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
from xjax.data.config import TfidfConfig
from xjax.data.text.words import split_terms

_RARE = -1


def ngrams(words: Sequence[str], n: int) -> Iterable[str]:
  """Runs of n words, in order, with a space between words."""
  if n == 1:
    return words
  return map(' '.join, zip(*(words[start:] for start in range(n))))


def frequent_ngrams(
  texts: Collection[str], config: TfidfConfig
) -> dict[str, int]:
  """The n-grams that config leaves, and in how many texts each is.

  Of those that min_count and max_share leave, the most frequent ones (in
  occurrences) stay; ties go to those of fewer words, then to the first one in
  the texts. Memory is about 70 bytes a word, whatever max_ngram is.

  Args:
    texts: read once.
    config: which n-grams.

  Returns:
    At most max_features of them, in the order of code points.
  """
  corpus = _Corpus.of(texts, config.first_words)
  most = config.max_share * len(texts)
  # Occurrences, negative; words; the first place; documents.
  kept = np.zeros((4, 0), np.int64)
  numbers = corpus.ids
  for n in range(1, config.max_ngram + 1):
    at, keys = corpus.keys(numbers, n)
    found = _count(keys, corpus.docs[at])
    del keys
    often = found.documents >= config.min_count
    # An n-gram is in no more documents than the shorter ones within it.
    numbers = np.full_like(corpus.places, _RARE)
    numbers[at[found.order]] = np.repeat(
      np.where(often, np.cumsum(often) - 1, _RARE).astype(numbers.dtype),
      found.totals,
    )
    if n >= config.min_ngram:
      chosen = often & (found.documents <= most)
      totals, documents = found.totals[chosen], found.documents[chosen]
      firsts = at[found.order[found.starts[chosen]]]
      rows = -totals, np.full(len(totals), n), firsts, documents
      kept = np.concatenate([kept, np.stack(rows)], axis=1)
      # The last key of lexsort is the first to count.
      kept = kept[:, np.lexsort(kept[2::-1])[: config.max_features]]
  named = {corpus.ngram(at, n): count for _, n, at, count in kept.T.tolist()}
  return dict(sorted(named.items()))


@dataclasses.dataclass(frozen=True, eq=False)
class _Corpus:
  """The words of all texts end to end.

  Attributes:
    words: by number.
    ids: int32 [W], their numbers as they stand in the texts.
    docs: int32 [W], the text that each stands in.
    ends: int64 [N], where texts end.
    places: 0 to W - 1, of a type as narrow as holds them.
  """

  words: Sequence[str]
  ids: np.ndarray
  docs: np.ndarray
  ends: np.ndarray
  places: np.ndarray

  @classmethod
  def of(cls, texts: Collection[str], first_words: int) -> '_Corpus':
    """Reads the texts."""
    known: dict[str, int] = defaultdict()
    known.default_factory = known.__len__
    ids, ends = array('i'), array('q')
    with progress(texts, 'words of train') as shown:
      for text in shown:
        ids.extend(map(known.__getitem__, split_terms(text, first_words)))
        ends.append(len(ids))
    ends = np.asarray(ends, np.int64)
    docs = np.repeat(
      np.arange(len(ends), dtype=np.int32), np.diff(ends, prepend=0)
    )
    places = np.arange(len(ids), dtype=np.int32 if len(ids) < 2**31 else None)
    return cls(list(known), np.asarray(ids, np.int32), docs, ends, places)

  def keys(self, numbers: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Where n-grams begin that may be frequent, and a key of each.

    Args:
      numbers: [W] of the n-grams of one word less that begin there (of words,
        if n is 1), RARE if none does or it is rare.
      n: words.

    Returns:
      Places, ascending, and int64 keys, the same for the same n-gram.
    """
    if n == 1:
      return self.places, numbers.astype(np.int64)
    at = self.places[:-1]
    at = at[(numbers[:-1] != _RARE) & (numbers[1:] != _RARE)]
    at = at[self.ends[self.docs[at]] - at >= n]
    keys = numbers[at].astype(np.int64)
    keys *= len(self.words)
    keys += self.ids[n - 1 :][at]
    return at, keys

  def ngram(self, at: int, n: int) -> str:
    """The n-gram that begins at a place."""
    return ' '.join(self.words[id_] for id_ in self.ids[at : at + n])


@dataclasses.dataclass(frozen=True, eq=False)
class _Counts:
  """Keys in groups, ascending.

  Attributes:
    order: int64 [keys], their places by group, then as they came.
    starts: int64 [groups], where each group begins in order.
    totals: int64 [groups], the keys of each.
    documents: int64 [groups], in how many documents each is.
  """

  order: np.ndarray
  starts: np.ndarray
  totals: np.ndarray
  documents: np.ndarray


def _count(keys: np.ndarray, docs: np.ndarray) -> _Counts:
  """Groups keys that are the same.

  Args:
    keys: int64 [keys].
    docs: int32 [keys], the document of each, ascending.
  """
  order = np.argsort(keys, kind='stable')
  keys, docs = keys[order], docs[order]
  new_key = np.ones(len(keys), bool)
  new_key[1:] = keys[1:] != keys[:-1]
  new_doc = new_key.copy()
  new_doc[1:] |= docs[1:] != docs[:-1]
  starts = np.flatnonzero(new_key)
  totals = np.diff(starts, append=len(keys))
  documents = np.zeros(0, np.int64)
  if len(starts):  # of no group there is no sum
    documents = np.add.reduceat(new_doc, starts, dtype=np.int64)
  return _Counts(order, starts, totals, documents)


@dataclasses.dataclass(frozen=True, eq=False)
class Tfidf:
  """Turns texts into rows of weighted n-grams.

  An n-gram that is c times in a text, and in d of N documents of train, has the
  weight c (sublinear: 1 + ln c) times ln((1 + N) / (1 + d)) + 1, divided by the
  length of the row. So does scikit-learn's TfidfVectorizer.

  Attributes:
    config: what n-grams are and how they are counted.
    terms: D n-grams, words with a space between, in the order of code points.
    idf: float32 [D].
  """

  config: TfidfConfig
  terms: tuple[str, ...]
  idf: np.ndarray

  @classmethod
  def fit(cls, texts: Collection[str], config: TfidfConfig) -> 'Tfidf':
    """Takes the frequent_ngrams of training texts, and weighs them.

    Args:
      texts: read once.
      config: which n-grams.

    Raises:
      DataError: none is left.
    """
    with Progress('counting n-grams'):
      counts = frequent_ngrams(texts, config)
    if not counts:
      raise DataError(
        f'no n-gram of {config.min_ngram} to {config.max_ngram} words is in at '
        f'least data.tokens.min_count={config.min_count} and in at most '
        f'data.tokens.max_share={config.max_share} of the {len(texts)} '
        'documents of train'
      )
    counts_D = np.array(list(counts.values()), np.float64)
    idf_D = np.log((1 + len(texts)) / (1 + counts_D)) + 1
    return cls(config, tuple(counts), idf_D.astype(np.float32))

  @property
  def n_features(self) -> int:
    """D."""
    return len(self.terms)

  @functools.cached_property
  def index(self) -> dict[str, int]:
    """N-gram -> column."""
    return {term: i for i, term in enumerate(self.terms)}

  @functools.cached_property
  def digest(self) -> str:
    """Hex digest of all that decides the features of a text."""
    found = hashlib.sha256()
    for values in self._arrays().values():
      found.update(np.ascontiguousarray(values).data)
    return found.hexdigest()

  def __call__(self, texts: Sequence[str]) -> sparse.csr_array:
    """float32 [N, D], rows of length 1, or empty; columns ascend."""
    if not len(texts):  # of which scikit-learn will not hear
      return sparse.csr_array((0, self.n_features), dtype=np.float32)
    rows = sparse.csr_array(self._vectorizer.transform(texts))
    rows.sort_indices()
    return rows

  @functools.cached_property
  def _vectorizer(self) -> TfidfVectorizer:
    made = TfidfVectorizer(
      analyzer=self._terms,
      vocabulary=self.index,
      sublinear_tf=self.config.sublinear,
      dtype=np.float32,
    )
    made.idf_ = self.idf
    return made

  def _terms(self, text: str) -> Iterable[str]:
    """All n-grams of a text."""
    words = split_terms(text, self.config.first_words)
    sizes = range(self.config.min_ngram, self.config.max_ngram + 1)
    return itertools.chain.from_iterable(ngrams(words, n) for n in sizes)

  def save(self, path: str | os.PathLike) -> None:
    """Writes an .npz file that load reads as the same."""
    write_npz(path, {**self._arrays(), 'sha256': np.array(self.digest)})

  def _arrays(self) -> dict[str, np.ndarray]:
    settings = json.dumps(dataclasses.asdict(self.config)).encode()
    return {
      'config': np.frombuffer(settings, np.uint8),
      **Texts.of(self.terms).arrays('terms'),
      'idf': self.idf,
    }

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'Tfidf':
    """Reads what save wrote.

    Raises:
      DataError: the file is absent or damaged.
    """
    arrays = Arrays.read(path)
    settings = arrays.take('config', np.uint8, (None,)).tobytes()
    try:
      config = TfidfConfig(**json.loads(settings))
    except DAMAGE as error:
      raise DataError(f'{path}: config: cannot be read: {error}') from error
    terms = tuple(arrays.strings('terms'))
    idf = arrays.take('idf', np.float32, (len(terms),))
    told = arrays.text('sha256')
    arrays.finish()
    made = cls(config, terms, idf)
    if made.digest != told or list(terms) != sorted(terms):
      raise DataError(
        f'{path}: damaged: it is not what was written; the run must be begun '
        'anew'
      )
    return made
