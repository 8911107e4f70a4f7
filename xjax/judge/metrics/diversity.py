"""Computes intra-list diversity (Schultheis et al. 2022, eq. 17)."""

from collections.abc import Iterable, Sequence
import functools

from jaxtyping import Float, Int
import numpy as np
import scipy.sparse

from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged
from xjax.data.text.words import split_words

_ROWS = 256  # number of documents whose vectors are summed at a time


def intra_list_diversity(
  ids_NK: Int[np.ndarray, 'N K'],
  ks: Sequence[int],
  vectors_LD: scipy.sparse.csr_array,
) -> dict[int, Float[np.ndarray, ' N']]:
  """Computes the mean dissimilarity of all pairs of the first k labels, by k.

  It is 1 - the dot product of vectors of norm 1 or 0. The mean is 0 if a list
  has fewer than two labels.
  """
  diversity = {k: np.zeros(len(ids_NK)) for k in ks}
  squares_L = (vectors_LD * vectors_LD).sum(1)
  for start in range(0, len(ids_NK), _ROWS):
    block = slice(start, start + _ROWS)
    for k in ks:
      ids = ids_NK[block, :k]
      listed = ids != PAD
      lengths = listed.sum(1)
      parts = (
        np.ones(lengths.sum()),
        ids[listed],
        np.append(0, lengths.cumsum()),
      )
      rows = scipy.sparse.csr_array(parts, (len(ids), vectors_LD.shape[0]))
      # The square of a sum of vectors has each pair twice, and the squares.
      sums = rows @ vectors_LD
      products = ((sums * sums).sum(1) - rows @ squares_L) / 2
      pairs = lengths * (lengths - 1) / 2
      diversity[k][block] = (pairs - products) / np.maximum(pairs, 1)
  return diversity


def co_occurrence(gold: Ragged, n_labels: int) -> scipy.sparse.csr_array:
  """Makes label vectors whose products say how often labels occur together.

  They are float64 CSR [L, N], of norm 1, or 0 without documents. The dot
  product of labels l and m is n_lm / sqrt(n_l n_m), where n_l documents have
  label l, and n_lm documents have both.
  """
  # Importing scikit-learn takes a second, so it is imported only where needed.
  from sklearn.preprocessing import normalize

  ones = np.ones(len(gold.values))
  matrix = scipy.sparse.csr_array(
    (ones, gold.values, gold.indptr), shape=(len(gold), n_labels)
  )
  return normalize(matrix.T.tocsr())


def descriptor_vectors(texts: Iterable[str]) -> scipy.sparse.csr_array:
  """Makes TF-IDF vectors of the labels' descriptors, float64 CSR [L, words].

  A row has norm 1, or is 0 if the descriptor has no words.
  """
  from sklearn.feature_extraction.text import TfidfVectorizer

  texts = list(texts)
  if not any(map(split_words, texts)):
    raise DataError('the descriptors of the labels have no words')
  words = functools.partial(split_words, keep_digits=True)
  vectors = TfidfVectorizer(analyzer=words).fit_transform(texts)
  return scipy.sparse.csr_array(vectors)
