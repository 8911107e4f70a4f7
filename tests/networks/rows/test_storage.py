"""How rows begin and are stored, and how a head scores with stored rows."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import on_mesh
from xjax.core.mesh import padded_labels
from xjax.core.mesh_config import LABEL_MULTIPLE
from xjax.networks.heads import ova
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.head import HeadInputs
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.rows.storage import (
  Storage,
  decode_weights,
  encode_weights,
  random_bits,
)

B, D, L = 4, 6, 150
SPACING = {
  Storage.FLOAT32: 0.0,
  Storage.BFLOAT16: 2.0**-7,
  Storage.COMPENSATED: 2.0**-7,
  Storage.FLOAT8: 2.0**-3,
}  # at most, as a share of the number


def stored(storage):
  with on_mesh():
    return OneVsAllConfig(chunk=64, storage=storage).build(
      HeadInputs(D, L), nnx.Rngs(0)
    )


@pytest.mark.parametrize(
  ('storage', 'dtype', 'size'),
  [
    (Storage.FLOAT32, jnp.float32, 4),
    (Storage.BFLOAT16, jnp.bfloat16, 2),
    (Storage.COMPENSATED, jnp.bfloat16, 2),
    (Storage.FLOAT8, jnp.uint8, 1),
  ],
)
def test_bytes_of_a_weight(storage, dtype, size):
  assert storage.dtype == dtype and storage.bytes == size
  head = stored(storage)
  assert head.kernel.dtype == dtype and head.bias.dtype == jnp.float32
  assert head.kernel.shape == (padded_labels(L), D)
  assert hasattr(head, 'exponent') == (storage is Storage.FLOAT8)
  rows = nnx.to_pure_dict(split_head(head).rows)
  per_label = sum(row.nbytes for row in rows.values()) / padded_labels(L)
  assert per_label == D * size + 4 + (storage is Storage.FLOAT8)


def values():
  rng = np.random.default_rng(0)
  sizes = 10.0 ** rng.integers(-5, 3, (L, 1))
  return jnp.asarray(sizes * rng.normal(size=(L, D)), jnp.float32)


@pytest.mark.parametrize('storage', Storage)
def test_stored_and_back(storage):
  values_LD = values()
  bits_LD = random_bits(jnp.uint32(0), jnp.arange(L, dtype=jnp.int32), D)
  arrays = encode_weights(storage, values_LD, bits_LD)
  again_LD = decode_weights(arrays, jnp.float32)
  assert again_LD.dtype == jnp.float32
  off_LD = np.abs(again_LD - values_LD)
  # E4M3 subnormals are 2^-9 apart; each row is scaled to a largest over 224.
  least_L1 = np.abs(values_LD).max(axis=1, keepdims=True) * 2.0**-9 / 224
  floor_L1 = least_L1 if storage is Storage.FLOAT8 else 0
  bound_LD = np.maximum(SPACING[storage] * np.abs(values_LD), floor_L1)
  assert (off_LD <= bound_LD).all()
  # Stored weights do not change when they are stored again with other bits.
  again = decode_weights(
    encode_weights(storage, again_LD, ~bits_LD), jnp.float32
  )
  np.testing.assert_array_equal(again, again_LD)


@pytest.mark.parametrize('storage', [Storage.BFLOAT16, Storage.FLOAT8])
def test_small_numbers_are_exact_as_bfloat16(storage):
  head = stored(storage)
  rows = nnx.to_pure_dict(split_head(head).rows)
  half = decode_weights(rows, jnp.bfloat16)
  assert half.dtype == jnp.bfloat16
  np.testing.assert_array_equal(
    np.asarray(half, np.float32), decode_weights(rows, jnp.float32)
  )


ROWS = 2 * LABEL_MULTIPLE


def drawn(storage, shape=(1, 1)):
  with on_mesh(*shape):
    rows = jax.jit(lambda key: ova.initial_rows(key, ROWS, D, storage))(
      jax.random.key(1)
    )
  return {name: np.asarray(array) for name, array in rows.items()}


@pytest.mark.parametrize(
  ('storage', 'at_once'),
  [(Storage.FLOAT32, ROWS), (Storage.BFLOAT16, 0), (Storage.FLOAT8, 0)],
)
def test_rows_are_normal_and_the_same_on_every_mesh(
  storage, at_once, monkeypatch
):
  monkeypatch.setattr(ova, '_MOST_ROWS', at_once)
  arrays = drawn(storage)
  rows = jax.tree.map(jnp.asarray, arrays)
  kernel = np.asarray(decode_weights(rows, jnp.float32), np.float64)
  assert kernel.shape == (ROWS, D)
  assert arrays['kernel'].dtype == storage.dtype
  assert abs(kernel.mean()) < 4 * kernel.std() / kernel.size**0.5
  assert kernel.std() == pytest.approx(D**-0.5, rel=0.02)
  # No block is drawn twice.
  assert len(np.unique(kernel, axis=0)) > 0.9 * ROWS
  other = drawn(storage, (2, 4))
  assert other.keys() == arrays.keys()
  for name, array in arrays.items():
    np.testing.assert_array_equal(other[name], array)
