"""Stochastic rounding to 16 and 8 bits, whatever the chunks and shards.

A value between two neighbours becomes the upper one with the probability of its
distance from the lower one, so that what it becomes is right on average and
steps far smaller than the spacing are not lost.
"""

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Float32, Int8, Int32, UInt32

E4M3 = jnp.float8_e4m3fn
_LARGEST = 448.0  # of E4M3
_LEAST_NORMAL = 2.0**-6
_BFLOAT16_BITS = 16  # of a float32's 23 bits of fraction, those that go
_E4M3_BITS = 20


def random_bits(
  key: UInt32[Array, ''], ids_C: Int32[Array, ' C'], dim: int
) -> UInt32[Array, 'C D']:
  """32 bits for each weight, from a hash of the key and the weight's place.

  Args:
    key: of the seed and the step.
    ids_C: indices of the labels.
    dim: weights of a label.
  """
  row_C = _mixed(ids_C.astype(jnp.uint32) ^ key)
  # Multiples of an odd number differ in all bits within a row.
  column_D = jnp.arange(dim, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)
  return _mixed(row_C[:, None] + column_D)


def _mixed(x: jax.Array) -> jax.Array:
  """A permutation of 32 bits each of which depends on all (C. Wellons)."""
  x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
  x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
  return x ^ (x >> 16)


def to_bfloat16(
  values_CD: Float32[Array, 'C D'], bits_CD: UInt32[Array, 'C D']
) -> jax.Array:
  """bfloat16 [C, D], the values rounded stochastically."""
  return _truncated(values_CD, bits_CD, _BFLOAT16_BITS).astype(jnp.bfloat16)


def to_e4m3(
  values_CD: Float32[Array, 'C D'], bits_CD: UInt32[Array, 'C D']
) -> tuple[jax.Array, Int8[Array, ' C']]:
  """The values as E4M3 with a scale for each row, rounded stochastically.

  Scales are powers of 2, so that what needs no rounding is not rounded again
  when the scale of its row changes.

  Returns:
    rounded_CD: float8_e4m3fn, values / 2^exponent; NaN throughout a row that
      has a value that is not finite.
    exponent_C: int8, from -126 to 117, the least that none of the row is above
      the largest E4M3.
  """
  largest_C = jnp.abs(values_CD).max(axis=1)
  fraction_C, exponent_C = jnp.frexp(largest_C)
  # The largest is 7/8 of 2^9: compared so, it is found exactly, and what is
  # stored already has no exponent above its own.
  exponent_C += (fraction_C > _LARGEST / 2**9) - 9
  exponent_C = jnp.clip(exponent_C, -126, 117)
  scale_C = jnp.where(jnp.isfinite(largest_C), power_of_2(-exponent_C), jnp.nan)
  scaled_CD = jnp.abs(values_CD) * scale_C[:, None]
  # Below the least normal number spacing is even, as it is just above.
  lift_CD = jnp.where(scaled_CD < _LEAST_NORMAL, _LEAST_NORMAL, 0.0)
  rounded_CD = _truncated(scaled_CD + lift_CD, bits_CD, _E4M3_BITS) - lift_CD
  rounded_CD = jnp.minimum(rounded_CD, _LARGEST)
  signed_CD = jnp.where(values_CD < 0, -rounded_CD, rounded_CD)
  return signed_CD.astype(E4M3), exponent_C.astype(jnp.int8)


def power_of_2(exponent: jax.Array) -> Float32[Array, '...']:
  """2^exponent for integers from -126 to 127, by its bits."""
  biased = exponent.astype(jnp.int32) + 127
  return lax.bitcast_convert_type(biased << 23, jnp.float32)


def _truncated(
  values: jax.Array, random: jax.Array, bits: int
) -> Float32[Array, '...']:
  """Stochastically rounded to 23 - bits bits of fraction, still float32."""
  mask = jnp.uint32((1 << bits) - 1)
  exact = lax.bitcast_convert_type(values, jnp.uint32)
  # A carry into the exponent is right: it is the next larger number.
  rounded = (exact + (random & mask)) & ~mask
  return lax.bitcast_convert_type(rounded, jnp.float32)
