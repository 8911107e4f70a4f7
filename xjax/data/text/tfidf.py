"""Sparse features of texts: n-grams of words, weighted by TF-IDF."""

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
from xjax.data.config import TfidfConfig
from xjax.data.text.ngrams import frequent_ngrams, ngrams, split_words


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
    for array in self._arrays().values():
      found.update(np.ascontiguousarray(array).data)
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
    words = split_words(text, self.config.first_words)
    sizes = range(self.config.min_ngram, self.config.max_ngram + 1)
    return itertools.chain.from_iterable(ngrams(words, n) for n in sizes)

  def save(self, path: str | os.PathLike) -> None:
    """Writes an .npz file that load reads as the same."""
    write_npz(path, {**self._arrays(), 'sha256': np.array(self.digest)})

  def _arrays(self) -> dict[str, np.ndarray]:
    encoded = [term.encode() for term in self.terms]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    settings = json.dumps(dataclasses.asdict(self.config)).encode()
    return {
      'config': np.frombuffer(settings, np.uint8),
      'terms/bytes': np.frombuffer(b''.join(encoded), np.uint8),
      'terms/offsets': ends,
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
    terms = arrays.strings('terms')
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
