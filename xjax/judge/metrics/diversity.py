"""Intra-list diversity: how little the labels of one list resemble each other.

Schultheis et al. 2022, eq. 17.
"""

from collections.abc import Iterable, Sequence
import re

import numpy as np
import scipy.sparse

from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged

_PAIRS = 4096


def intra_list_diversity(
  ids_NK: np.ndarray, ks: Sequence[int], vectors_LD: scipy.sparse.csr_array
) -> dict[int, np.ndarray]:
  """The mean of 1 - similarity over the pairs of each list's first k labels.

  Args:
    ids_NK: int32 ranked labels, PAD beyond the list.
    ks: cut-offs.
    vectors_LD: label vectors of length 1; their product is the similarity. A
      label without a vector (all 0) resembles no other.

  Returns:
    k -> float64 [N], over the pairs there are; 0 for a document with fewer
    than two labels, which has none.
  """
  total_N, pairs_N = np.zeros(len(ids_NK)), np.zeros(len(ids_NK), np.int64)
  found = {}
  for j in range(max(ks)):
    # A list has no gaps: where the later label is, so are the earlier.
    rows = np.flatnonzero(ids_NK[:, j] != PAD) if j < ids_NK.shape[1] else ()
    for i in range(j if len(rows) else 0):
      ours, theirs = ids_NK[rows, i], ids_NK[rows, j]
      total_N[rows] += 1 - _products(vectors_LD, ours, theirs)
      pairs_N[rows] += 1
    if j + 1 in ks:
      found[j + 1] = total_N / np.maximum(pairs_N, 1)
  return found


def _products(
  vectors_LD: scipy.sparse.csr_array, ours: np.ndarray, theirs: np.ndarray
) -> np.ndarray:
  """The product of each two rows; pairs that come again are taken once."""
  pairs = np.minimum(ours, theirs).astype(np.int64) * vectors_LD.shape[0]
  pairs, places = np.unique(
    pairs + np.maximum(ours, theirs), return_inverse=True
  )
  products = np.zeros(len(pairs))
  # Some at a time: head labels have long vectors.
  for start in range(0, len(pairs), _PAIRS):
    some = slice(start, start + _PAIRS)
    left, right = np.divmod(pairs[some], vectors_LD.shape[0])
    products[some] = (vectors_LD[left] * vectors_LD[right]).sum(1)
  return products[places]


_WORD = r'\w+'


def co_occurrence(gold: Ragged, n_labels: int) -> scipy.sparse.csr_array:
  """Label vectors whose products say how often two labels are gold together.

  Args:
    gold: N rows of label indices, of training documents.
    n_labels: L.

  Returns:
    float64 CSR [L, N], rows of length 1 (0 for a label without documents):
    the product of two is n_lm / sqrt(n_l n_m), in [0, 1].
  """
  # scikit-learn takes a second to import: only where it is asked for.
  from sklearn.preprocessing import normalize

  ones = np.ones(len(gold.values))
  matrix = scipy.sparse.csr_array(
    (ones, gold.values, gold.indptr), shape=(len(gold), n_labels)
  )
  return normalize(matrix.T.tocsr())


def descriptor_vectors(texts: Iterable[str]) -> scipy.sparse.csr_array:
  """TF-IDF vectors of the labels' descriptors.

  Args:
    texts: L descriptors.

  Returns:
    float64 CSR [L, words], rows of length 1 (0 for a label without words).

  Raises:
    DataError: no descriptor has a word.
  """
  from sklearn.feature_extraction.text import TfidfVectorizer

  texts = list(texts)
  if not any(re.search(_WORD, text) for text in texts):
    raise DataError('the descriptors of the labels have no words')
  vectors = TfidfVectorizer(token_pattern=_WORD).fit_transform(texts)
  return scipy.sparse.csr_array(vectors)
