"""Puts each document into its own row, after documents have shared rows."""

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int32

from xjax.core.mesh import BATCH, DATA


def unpack_documents(
  packed: Float[Array, 'rows T D'],
  first_B: Int32[Array, ' B'],
  lengths_B: Int32[Array, ' B'],
) -> Float[Array, 'B T D']:
  """Returns each document in a row of its own, 0 beyond its length.

  first_B counts in the flattened rows of the document's device. The documents
  of a device are in its own rows, so nothing is sent between devices. The
  function runs on the context mesh (`jax.set_mesh`).
  """
  run = jax.shard_map(
    _unpack_shard,
    in_specs=(P(DATA), BATCH, BATCH),
    out_specs=BATCH,
  )
  return run(packed, first_B, lengths_B)


def _unpack_shard(
  packed: Float[Array, 'rows T D'],
  first_B: Int32[Array, ' B'],
  lengths_B: Int32[Array, ' B'],
) -> Float[Array, 'B T D']:
  rows, steps, dim = packed.shape
  place_1T = jnp.arange(steps)[None]
  # A place beyond a document's end may belong to another document, or to none.
  # The vectors of such places are replaced by 0 below.
  at_BT = jnp.minimum(first_B[:, None] + place_1T, rows * steps - 1)
  gathered_BTD = packed.reshape(-1, dim)[at_BT]
  real_BT1 = (place_1T < lengths_B[:, None])[:, :, None]
  return jnp.where(real_BT1, gathered_BTD, 0)
