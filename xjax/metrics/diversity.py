"""Intra-list diversity: how little the labels of one list resemble each other.

Schultheis et al. 2022, eq. 17.
"""

import numpy as np
import scipy.sparse

from xjax.core.types import PAD


def intra_list_diversity(
  ids_NK: np.ndarray, k: int, vectors_LD: scipy.sparse.csr_array
) -> np.ndarray:
  """The mean of 1 - similarity over the pairs of each list's first k labels.

  Args:
    ids_NK: int32 ranked labels, PAD beyond the list.
    k: cut-off.
    vectors_LD: label vectors of length 1; their product is the similarity.

  Returns:
    float64 [N], over the pairs there are; 0 for a document with fewer than two
    labels, which has none.
  """
  ids_NK = ids_NK[:, :k]
  total_N, pairs_N = np.zeros(len(ids_NK)), np.zeros(len(ids_NK), np.int64)
  for j in range(1, ids_NK.shape[1]):
    for i in range(j):
      # A list has no gaps: where the later label is, so is the earlier.
      rows = np.flatnonzero(ids_NK[:, j] != PAD)
      ours, theirs = ids_NK[rows, i], ids_NK[rows, j]
      total_N[rows] += 1 - _products(vectors_LD, ours, theirs)
      pairs_N[rows] += 1
  return total_N / np.maximum(pairs_N, 1)


def _products(
  vectors_LD: scipy.sparse.csr_array, ours: np.ndarray, theirs: np.ndarray
) -> np.ndarray:
  """The product of each two rows; pairs that come again are taken once."""
  pairs = np.minimum(ours, theirs).astype(np.int64) * vectors_LD.shape[0]
  pairs, places = np.unique(
    pairs + np.maximum(ours, theirs), return_inverse=True
  )
  left, right = np.divmod(pairs, vectors_LD.shape[0])
  products = (vectors_LD[left] * vectors_LD[right]).sum(1)
  return np.asarray(products).ravel()[places]
