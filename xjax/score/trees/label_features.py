"""What is known of labels when they are clustered: a sparse row each."""

import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize

from xjax.core.types import Ragged

_CHUNK = 32  # labels whose features are whole at a time


def pifa(
  rows: sparse.csr_array,
  gold: Ragged,
  n_labels: int,
  lengths: np.ndarray | None = None,
  n: int = 0,
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
    n: values of a label, its strongest; 0: all.

  Returns:
    float32 [L, D]; a label without documents has an empty row.
  """
  # Of int64 offsets the product would have, and copy the rows to, int64.
  offsets = gold.indptr.astype(np.int32)
  parts = np.ones(len(gold.values), np.float32), gold.values, offsets
  weights = sparse.csr_array(parts, (len(gold), n_labels))
  if lengths is not None:
    each = 1 / np.maximum(np.asarray(lengths, np.float32), 1)
    weights = weights.multiply(each[:, None])
  weights = weights.T.tocsr()
  found = []
  for first in range(0, n_labels, _CHUNK):
    sums = weights[first : first + _CHUNK] @ rows
    if lengths is None:
      sums = normalize(sums, copy=False)
    found.append(strongest(sums, n) if n else sums)
  return sparse.vstack(found, 'csr')


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
  parts = data[kept], features.indices[kept].astype(np.int32), ends
  return sparse.csr_array(parts, features.shape)
