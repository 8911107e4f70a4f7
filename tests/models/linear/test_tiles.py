"""Products of tiled sparse matrices are those of SciPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

from xjax.models.linear import tiles
from xjax.models.linear.tiles import WIDTH, product, tiles_of

LENGTHS = {
  'none': [0, 0, 0],
  'uneven': [0, 1, WIDTH, WIDTH + 1, 5 * WIDTH, 0],
  'one row': [3],
}


@pytest.mark.parametrize('block', [2, 8])
@pytest.mark.parametrize('lengths', LENGTHS.values(), ids=LENGTHS)
def test_as_scipy(lengths, block, monkeypatch):
  monkeypatch.setitem(tiles._BLOCK, 'cpu', block)
  rng = np.random.default_rng(0)
  dense = np.zeros((len(lengths), 100), np.float32)
  for row, length in zip(dense, lengths):
    row[rng.permutation(100)[:length]] = rng.normal(size=length)
  other = rng.normal(size=(100, 3)).astype(np.float32)
  products = product(tiles_of(sparse.csr_array(dense)), jnp.asarray(other))
  assert products.dtype == np.float32
  np.testing.assert_allclose(products, dense @ other, rtol=1e-5, atol=1e-5)
  turned = tiles_of(sparse.csr_array(sparse.csr_array(dense).T.tocsr()))
  back = rng.normal(size=(len(dense), 2)).astype(np.float32)
  np.testing.assert_allclose(
    product(turned, jnp.asarray(back)), dense.T @ back, rtol=1e-5, atol=1e-5
  )
