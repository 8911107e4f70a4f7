"""Documents in memory: texts, and rows of features."""

import numpy as np
import pytest
from scipy import sparse

from tests.fixtures.tagged_texts import tagged_texts


@pytest.fixture(scope='module')
def train():
  return tagged_texts(0)


@pytest.fixture(scope='module')
def features():
  """Features, and labels that depend on the first three of them."""
  rng = np.random.default_rng(0)
  rows = sparse.random_array((200, 9), density=0.5, rng=rng, format='csr')
  hot = rows[:, :3].toarray() > 0.4
  ids = [[f'name {i}' for i in np.flatnonzero(row)] for row in hot]
  return rows, hot, ids
