"""Makes random decisions for dropout, without an array of random numbers.

With jax.random.bernoulli instead, a training step of a transformer takes 1.15
times as long at 128 tokens and 1.7 times as long at 512 tokens (in processor
seconds, on two CPU cores, with two of MiniLM's layers). If jax.random draws 16
bits for each entry, the step takes 1.05 and 1.3 times as long.
"""

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, Key, UInt32

from xjax.core.rng import mix_bits


def seeds_of(key: Key[Array, ''], *shape: int) -> UInt32[Array, '*shape 2']:
  """Draws the seeds of several dropouts from one random key.

  Args:
    key: JAX random key.
    *shape: shape of the group of dropouts. Each dropout gets two numbers.
  """
  return jax.random.bits(key, (*shape, 2), jnp.uint32)


def flip_coins(
  shape: tuple[int, ...],
  rate: float,
  seeds: UInt32[Array, '2'],
  draw: Int32[Array, ''] | int = 0,
) -> Bool[Array, '...']:
  """Decides for each entry, independently, whether dropout keeps the entry.

  The decision is made by a hash of the entry's place. The hash takes a dozen
  instructions, and a compiler puts them into the loop that uses the decision.
  Drawing bits with jax.random takes as long as twenty such loops, and needs an
  array. The hash has two rounds of xor-shift and multiplication (Wellons 2018,
  "lowbias32"). The key of the hash has 64 bits, and all entries of a row have
  the same key.

  Args:
    shape: shape of the result. A row runs along the last axis. There must be
      fewer than 2^32 rows.
    rate: probability of False, rounded to a multiple of 2^-32.
    seeds: uint32 [2], from seeds_of.
    draw: index of this draw, if several draws have the same seeds.

  Returns:
    bool array of the given shape. The same arguments give the same result.
  """
  row = jnp.zeros((*shape[:-1], 1), jnp.uint32)
  for axis, size in enumerate(shape[:-1]):
    row = row * size + lax.broadcasted_iota(jnp.uint32, row.shape, axis)
  draw = jnp.asarray(draw).astype(jnp.uint32)
  row_key = mix_bits(
    mix_bits(row + seeds[0]) ^ (draw * jnp.uint32(0x9E3779B9) + seeds[1])
  )
  other_row_key = mix_bits(
    mix_bits(row ^ seeds[1]) + (draw * jnp.uint32(0x85EBCA6B) ^ seeds[0])
  )
  # With the barrier, the keys of a row are computed only once, and not again
  # for each entry.
  row_key, other_row_key = lax.optimization_barrier((row_key, other_row_key))
  place = lax.broadcasted_iota(
    jnp.uint32, (*[1] * (len(shape) - 1), shape[-1]), len(shape) - 1
  )
  x = row_key + place * jnp.uint32(0x9E3779B1)
  x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D) ^ other_row_key
  # The last xor-shift of lowbias32 is left out, because it does not change the
  # upper half of the bits.
  x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
  return x < jnp.uint32(min(2**32 - 1, round((1 - rate) * 2**32)))


def seeded_dropout(
  x: Float[Array, '*shape'],
  rate: float,
  seeds: UInt32[Array, '2'] | None,
  draw: Int32[Array, ''] | int = 0,
) -> Float[Array, '*shape']:
  """Zeroes entries with probability `rate`, and scales up the other entries.

  The layers of pretrained encoders use this function. The gradient of attention
  is written by hand, and makes the same decisions again from the seeds. All
  other layers use layers.dropout, which can also make one decision for all
  entries along an axis.

  Args:
    x: floats of any shape.
    rate: probability in [0, 1).
    seeds: uint32 [2], from seeds_of. If None, x is returned unchanged.
    draw: index of this draw, if several draws have the same seeds.

  Returns:
    Floats of x's shape and dtype.
  """
  if seeds is None or not rate:
    return x
  kept = flip_coins(x.shape, rate, seeds, draw)
  return jnp.where(kept, x * (1 / (1 - rate)), 0)
