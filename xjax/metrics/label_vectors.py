"""Label vectors of length 1; the product of two is how similar labels are."""

from collections.abc import Iterable

import numpy as np
import scipy.sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from xjax.core.types import Ragged


def co_occurrence(gold: Ragged, n_labels: int) -> scipy.sparse.csr_array:
  """Label vectors whose products say how often two labels are gold together.

  Args:
    gold: N rows of label indices, of training documents.
    n_labels: L.

  Returns:
    float64 CSR [L, N], rows of length 1 (0 for a label without documents):
    the product of two is n_lm / sqrt(n_l n_m), in [0, 1].
  """
  ones = np.ones(len(gold.values))
  matrix = scipy.sparse.csr_array(
    (ones, gold.values, gold.indptr), shape=(len(gold), n_labels)
  )
  return normalize(matrix.T.tocsr())


def descriptor_vectors(texts: Iterable[str]) -> scipy.sparse.csr_array:
  """TF-IDF vectors of the labels' descriptors, float64 CSR [L, words]."""
  vectors = TfidfVectorizer(token_pattern=r'\w+').fit_transform(texts)
  return scipy.sparse.csr_array(vectors)
