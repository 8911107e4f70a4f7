"""Computes intra-list diversity (Schultheis et al. 2022, eq. 17)."""

from collections.abc import Iterable, Sequence
import re

from jaxtyping import Float, Int
import numpy as np
import scipy.sparse

from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged

_PAIRS = 4096  # number of pairs of labels that are multiplied at a time


def intra_list_diversity(
  ids_NK: Int[np.ndarray, 'N K'],
  ks: Sequence[int],
  vectors_LD: scipy.sparse.csr_array,
) -> dict[int, Float[np.ndarray, ' N']]:
  """Computes the mean dissimilarity of all pairs of the first k labels, by k.

  It is 1 - the dot product of vectors of norm 1 or 0. The mean is 0 if a list
  has fewer than two labels.
  """
  total_N, pairs_N = np.zeros(len(ids_NK)), np.zeros(len(ids_NK), np.int64)
  diversity = {}
  for j in range(max(ks)):
    # PAD comes last. So if place j has a label, all earlier places have labels.
    rows = np.flatnonzero(ids_NK[:, j] != PAD) if j < ids_NK.shape[1] else ()
    for i in range(j if len(rows) else 0):
      first, second = ids_NK[rows, i], ids_NK[rows, j]
      total_N[rows] += 1 - _products(vectors_LD, first, second)
      pairs_N[rows] += 1
    if j + 1 in ks:
      diversity[j + 1] = total_N / np.maximum(pairs_N, 1)
  return diversity


def _products(
  vectors_LD: scipy.sparse.csr_array, first: np.ndarray, second: np.ndarray
) -> np.ndarray:
  """Returns the dot product of each pair of labels; equal pairs only once."""
  pairs = np.minimum(first, second).astype(np.int64) * vectors_LD.shape[0]
  pairs, places = np.unique(
    pairs + np.maximum(first, second), return_inverse=True
  )
  products = np.zeros(len(pairs))
  # The vectors of frequent labels have many values that are not 0. To save
  # memory, few pairs are multiplied at a time.
  for start in range(0, len(pairs), _PAIRS):
    block = slice(start, start + _PAIRS)
    left, right = np.divmod(pairs[block], vectors_LD.shape[0])
    products[block] = (vectors_LD[left] * vectors_LD[right]).sum(1)
  return products[places]


_WORD = r'\w+'


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
  if not any(re.search(_WORD, text) for text in texts):
    raise DataError('the descriptors of the labels have no words')
  vectors = TfidfVectorizer(token_pattern=_WORD).fit_transform(texts)
  return scipy.sparse.csr_array(vectors)
