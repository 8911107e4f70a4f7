"""Computes the TF-IDF weights of a text's n-grams, as sparse features."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
import dataclasses
import functools
import hashlib
import itertools
import json
import operator
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
from xjax.data.schema import Document
from xjax.data.text.words import (
  WordPlace,
  WordShares,
  document_terms,
  split_terms,
)


def ngrams(words: Sequence[str], n: int) -> Iterable[str]:
  """Returns all runs of n words, in order, with a space between words."""
  if n == 1:
    return words
  return map(' '.join, zip(*(words[start:] for start in range(n))))


def frequent_ngrams(
  texts: Collection[str], config: TfidfConfig
) -> dict[str, int]:
  """Selects frequent n-grams, and counts the texts that contain each n-gram.

  The candidates are n-grams of min_ngram to max_ngram words. A candidate is in
  at least min_count texts, and in at most the share max_share of the texts. The
  max_features candidates that occur most often are selected; among equals, the
  n-gram with fewer words, and then the n-gram that occurs first. The result is
  sorted by code points. The texts are read once for each n.
  """
  most = config.max_share * len(texts)
  kept: list[tuple[int, int, int, str, int]] = []
  often: set[str] = set()
  for n in range(1, config.max_ngram + 1):
    totals, documents = Counter(), Counter()
    with progress(texts, f'runs of {n} words of train') as shown_texts:
      for text in shown_texts:
        words = split_terms(text, config.first_words)
        runs: Iterable = zip(*(words[start:] for start in range(n)))
        if n > 1:
          # An n-gram occurs in at most as many documents as both shorter ones
          # that it contains. So only frequent n-grams are extended by a word.
          parts = list(map(often.__contains__, ngrams(words, n - 1)))
          runs = itertools.compress(runs, map(operator.and_, parts, parts[1:]))
        found = list(map(' '.join, runs))
        totals.update(found)
        documents.update(set(found))
    often = {x for x, count in documents.items() if count >= config.min_count}
    if n >= config.min_ngram:
      kept += [
        (-total, n, place, ngram, documents[ngram])
        for place, (ngram, total) in enumerate(totals.items())  # by occurrence
        if ngram in often and documents[ngram] <= most
      ]
      kept = sorted(kept)[: config.max_features]
  return dict(sorted(row[3:] for row in kept))


@dataclasses.dataclass(frozen=True, eq=False)
class Tfidf:
  """Turns texts into rows of weighted n-grams.

  The weight of an n-gram in a text is tf * (ln((1 + N) / (1 + d)) + 1), where d
  of the N training documents contain the n-gram. If the n-gram occurs c times
  in the text, tf is c, or 1 + ln c if config.sublinear is set. Each row of
  weights is divided by its Euclidean norm. These weights are equal to those of
  scikit-learn's TfidfVectorizer.
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
      raise DataError(
        f'train has no usable n-gram of {config.min_ngram} to '
        f'{config.max_ngram} words. A usable n-gram is in enough documents '
        f'(data.tokens.min_count={config.min_count}), and in a small enough '
        f'share (data.tokens.max_share={config.max_share}) of the '
        f'{len(texts)} documents of train'
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

  def _terms(self, text: str) -> Iterable[str]:
    words = split_terms(text, self.config.first_words)
    sizes = range(self.config.min_ngram, self.config.max_ngram + 1)
    return itertools.chain.from_iterable(ngrams(words, n) for n in sizes)

  def words(self, document: Document) -> list[WordPlace]:
    return document_terms(document, self.config.first_words)

  def word_shares(self, document: Document) -> WordShares:
    """Divides the features of document.text() among the document's words."""
    terms = split_terms(document.text(), self.config.first_words)
    parts = []
    for n in range(self.config.min_ngram, self.config.max_ngram + 1):
      columns = map(self.index.get, ngrams(terms, n), itertools.repeat(-1))
      columns = np.fromiter(columns, np.int64)
      starts = np.flatnonzero(columns >= 0)
      parts.append((starts, np.full(len(starts), n), columns[starts]))
    occurrences = (np.concatenate(arrays) for arrays in zip(*parts))
    return WordShares.of(terms, tuple(occurrences), self._weights)

  def _weights(self, features: np.ndarray, counts: np.ndarray) -> np.ndarray:
    tf = 1 + np.log(counts) if self.config.sublinear else counts
    weights = tf * self.idf[features].astype(np.float64)
    return weights / np.linalg.norm(weights) if len(weights) else weights

  def save(self, path: str | os.PathLike) -> None:
    write_npz(path, self._arrays())

  def _arrays(self) -> dict[str, np.ndarray]:
    settings = json.dumps(dataclasses.asdict(self.config)).encode()
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
    except DAMAGE as error:
      raise DataError(f'{path}: config: cannot be read: {error}') from error
    terms = tuple(arrays.strings('terms'))
    idf = arrays.take('idf', np.float32, (len(terms),))
    arrays.finish()
    if list(terms) != sorted(terms):
      raise DataError(f'{path}: terms: are not sorted; the file is damaged')
    return cls(config, terms, idf)
