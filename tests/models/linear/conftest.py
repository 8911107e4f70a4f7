"""Documents of a few features, some of which tell of labels."""

import numpy as np
import pytest
from scipy import sparse

from xjax.core.types import Ragged

N, D = 120, 40
# Many documents have label 0, all have 3, none 4; 8 is none of the model's.
RATES = (0.5, 0.2, 0.05, 1.0, 0.0, 0.1, 0.1, 0.03, 0.1)
N_LABELS = 8


@pytest.fixture(scope='session')
def documents():
  """Rows of norm 1, gold and the number of labels."""
  rng = np.random.default_rng(0)
  gold_NL = rng.random((N, len(RATES))) < RATES
  rows_ND = rng.gamma(1, 1, (N, D)) * (rng.random((N, D)) < 0.2)
  rows_ND[:, : len(RATES)] += gold_NL * (rng.random(gold_NL.shape) < 0.8)
  rows_ND /= np.linalg.norm(rows_ND, axis=1, keepdims=True)
  rows = sparse.csr_array(rows_ND.astype(np.float32))
  gold = Ragged.of([np.flatnonzero(row) for row in gold_NL])
  return rows, gold, N_LABELS
