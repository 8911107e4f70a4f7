"""Label vectors of length 1; the product of two is how similar labels are."""

from collections.abc import Iterable
import re

import numpy as np
import scipy.sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from xjax.core.errors import DataError
from xjax.core.types import Ragged

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
  texts = list(texts)
  if not any(re.search(_WORD, text) for text in texts):
    raise DataError('the descriptors of the labels have no words')
  vectors = TfidfVectorizer(token_pattern=_WORD).fit_transform(texts)
  return scipy.sparse.csr_array(vectors)
