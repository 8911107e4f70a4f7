"""Label rows as training begins: random, and never float32 as a whole."""

import functools

import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from xjax.core.mesh import LABEL_MULTIPLE
from xjax.score.heads import chunks
from xjax.score.heads.contract import ALL_DEVICES, row_spec
from xjax.score.heads.rounding import random_bits
from xjax.score.heads.storage import Storage, stored

_AT_ONCE = 1 << 17  # rows; more are drawn in LABEL_MULTIPLE blocks


def first_rows(
  key: jax.Array, rows: int, dim: int, storage: Storage
) -> dict[str, jax.Array]:
  """Rows of normal entries, of about unit length, the same on every mesh.

  Needs a mesh context. Drawing takes several arrays of float32 where storing
  takes one of perhaps a byte a weight: so large heads are drawn in blocks, each
  on the device that it lies on.

  Args:
    key: of them all.
    rows: a multiple of LABEL_MULTIPLE.
    dim: entries of a row.
    storage: what they are stored as.

  Returns:
    Arrays by name, as of storage.stored, [rows, ...].
  """
  if rows <= _AT_ONCE:
    return _drawn(key, jnp.int32(0), rows, dim, storage)
  spec = row_spec(ALL_DEVICES)
  draw = functools.partial(_shard_rows, rows // LABEL_MULTIPLE, dim, storage)
  return jax.shard_map(draw, in_specs=P(), out_specs=spec, check_vma=False)(key)


def _shard_rows(
  size: int, dim: int, storage: Storage, key: jax.Array
) -> dict[str, jax.Array]:
  blocks = LABEL_MULTIPLE // lax.axis_size(ALL_DEVICES)
  first = lax.axis_index(ALL_DEVICES) * blocks

  def with_block(i: jax.Array, rows: dict[str, jax.Array]) -> dict:
    block = first + i
    block_key = jax.random.fold_in(key, block)
    new = _drawn(block_key, block * size, size, dim, storage)
    return chunks.written(rows, new, i * size)

  empty = jax.tree.map(
    lambda x: jnp.zeros((blocks * size, *x.shape[1:]), x.dtype),
    jax.eval_shape(lambda: _drawn(key, first, size, dim, storage)),
  )
  return lax.fori_loop(0, blocks, with_block, empty)


def _drawn(
  key: jax.Array, first: jax.Array, size: int, dim: int, storage: Storage
) -> dict[str, jax.Array]:
  """The rows from `first` on, rounded by their places as in training."""
  values = jax.random.normal(key, (size, dim)) * dim**-0.5
  ids = first + jnp.arange(size, dtype=jnp.int32)
  return stored(storage, values, random_bits(jnp.uint32(0), ids, dim))
