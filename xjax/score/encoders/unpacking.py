"""Documents that shared rows, each by itself again."""

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from xjax.core.mesh import BATCH, DATA


def unpacked(
  hidden_BTD: jax.Array, first_B: jax.Array, lengths_B: jax.Array
) -> jax.Array:
  """Encoded tokens by document.

  Runs on the context mesh (`jax.set_mesh`): a device's documents are in its own
  rows, and nothing is sent.

  Args:
    hidden_BTD: [rows, T, D], what was made of packed rows.
    first_B: int32, where each document begins, as of core.types.Batch.
    lengths_B: int32 tokens of each document, at most T.

  Returns:
    [B, T, D], 0 beyond a document's length.
  """
  run = jax.shard_map(
    _shard_unpacked,
    in_specs=(P(DATA), BATCH, BATCH),
    out_specs=BATCH,
  )
  return run(hidden_BTD, first_B, lengths_B)


def _shard_unpacked(
  hidden_BTD: jax.Array, first_B: jax.Array, lengths_B: jax.Array
) -> jax.Array:
  rows, steps, dim = hidden_BTD.shape
  place_1T = jnp.arange(steps)[None]
  # Beyond a document's end the place may be anyone's, or none: it is not read.
  at_BT = jnp.minimum(first_B[:, None] + place_1T, rows * steps - 1)
  found_BTD = hidden_BTD.reshape(-1, dim)[at_BT]
  real_BT1 = (place_1T < lengths_B[:, None])[:, :, None]
  return jnp.where(real_BT1, found_BTD, 0)
