"""What is known of labels when they are clustered: a sparse row each."""

import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize

from xjax.core.types import Ragged


def pifa(
  rows: sparse.csr_array,
  gold: Ragged,
  n_labels: int,
  lengths: np.ndarray | None = None,
) -> sparse.csr_array:
  """Positive-instance feature aggregation: the sum of a label's documents.

  Args:
    rows: float32 [N, D].
    gold: N rows of labels.
    n_labels: L.
    lengths: int [N], words of each document: each is divided by its own, and
      the sums stay as they are (Bertalis et al., Section 3.3), so that labels
      are told apart by how frequent they are as well. None: each sum is
      divided by its L2 norm (as CascadeXML and PECOS have it).

  Returns:
    float32 [L, D]; a label without documents has an empty row.
  """
  shape = (len(gold), n_labels)
  ones = np.ones(len(gold.values), np.float32)
  positive = sparse.csr_array((ones, gold.values, gold.indptr), shape)
  if lengths is None:
    return normalize((positive.T @ rows).tocsr(), copy=False)
  each = 1 / np.maximum(np.asarray(lengths, np.float32), 1)
  weighed = positive.multiply(each[:, None]).tocsr()
  return (weighed.T @ rows).tocsr()


def strongest(features: sparse.csr_array, n: int) -> sparse.csr_array:
  """The n values of each row that are largest in size; of equal ones the first.

  Args:
    features: float32 [L, D].
    n: at least 1; shorter rows stay as they are.
  """
  starts, data = features.indptr, features.data
  kept = np.ones(len(data), bool)
  for row in np.flatnonzero(np.diff(starts) > n):
    own = slice(starts[row], starts[row + 1])
    kept[own] = False
    kept[own.start + np.argsort(-np.abs(data[own]), kind='stable')[:n]] = True
  ends = np.append(0, np.cumsum(kept))[starts]
  parts = data[kept], features.indices[kept], ends
  return sparse.csr_array(parts, features.shape)
