"""Random label rows, drawn at once or in blocks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import on_mesh
from xjax.core.mesh_config import LABEL_MULTIPLE
from xjax.networks.heads import ova as first
from xjax.networks.rows.storage import Storage, decode_weights

ROWS, D = 2 * LABEL_MULTIPLE, 4


def drawn(storage, shape=(1, 1)):
  with on_mesh(*shape):
    rows = jax.jit(lambda key: first.initial_rows(key, ROWS, D, storage))(
      jax.random.key(1)
    )
  return {name: np.asarray(array) for name, array in rows.items()}


@pytest.mark.parametrize('storage', Storage)
@pytest.mark.parametrize('at_once', [0, ROWS])
def test_rows_are_normal_and_the_same_on_every_mesh(
  storage, at_once, monkeypatch
):
  monkeypatch.setattr(first, '_MOST_ROWS', at_once)
  arrays = drawn(storage)
  rows = jax.tree.map(jnp.asarray, arrays)
  kernel = np.asarray(decode_weights(rows, jnp.float32), np.float64)
  assert kernel.shape == (ROWS, D)
  assert arrays['kernel'].dtype == storage.dtype
  assert abs(kernel.mean()) < 4 * kernel.std() / kernel.size**0.5
  assert kernel.std() == pytest.approx(D**-0.5, rel=0.02)
  # No block is drawn twice.
  assert len(np.unique(kernel, axis=0)) > 0.9 * ROWS
  for shape in [(2, 4), (8, 1)]:
    other = drawn(storage, shape)
    assert other.keys() == arrays.keys()
    for name, array in arrays.items():
      np.testing.assert_array_equal(other[name], array)
