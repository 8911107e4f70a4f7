"""Stores the weights of label rows in few bits, rounded stochastically.

Only the stored weights are kept from step to step, without a float32 copy
(ELMO, ICML 2025). In most steps, a weight changes by far less than the spacing
of numbers with few bits. Rounding to the nearest number would lose the change.

Let a value x lie between two neighbouring representable numbers, a < b. It is
rounded to b with probability (x - a) / (b - a), and to a otherwise. So it is
right on average. Of labels with many documents, the rounding errors can be kept
instead (Kahan summation, kahan.py).
"""

from collections.abc import Mapping
import enum

import jax
from jax import lax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Float32, Int8, Int32, UInt32

from xjax.core.numerics import mix_bits

E4M3 = jnp.float8_e4m3fn
_LARGEST = 448.0  # the largest E4M3 number
_LEAST_NORMAL = 2.0**-6  # the least normal E4M3 number
# The number of bits that rounding removes from a float32's 23 bits of fraction.
_BFLOAT16_BITS = 16
_E4M3_BITS = 20


def random_bits(
  key: UInt32[Array, ''], ids_C: Int32[Array, ' C'], dim: int
) -> UInt32[Array, 'C D']:
  """Returns 32 random bits for each weight."""
  # The bits are a hash of the key and of the weight's place, so they do not
  # depend on chunks and shards.
  row_C = mix_bits(ids_C.astype(jnp.uint32) ^ key)
  # Each column adds a different multiple of an odd constant (modulo 2^32). The
  # multiples also differ in their high bits; small column numbers do not.
  column_D = jnp.arange(dim, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)
  return mix_bits(row_C[:, None] + column_D)


def to_bfloat16(
  values_CD: Float32[Array, 'C D'], bits_CD: UInt32[Array, 'C D']
) -> jax.Array:
  """Rounds values to bfloat16 stochastically."""
  rounded_CD = _round_fraction(values_CD, bits_CD, _BFLOAT16_BITS)
  return rounded_CD.astype(jnp.bfloat16)


def to_e4m3(
  values_CD: Float32[Array, 'C D'], bits_CD: UInt32[Array, 'C D']
) -> tuple[jax.Array, Int8[Array, ' C']]:
  """Rounds values to E4M3 stochastically, with a scale for each row.

  exponent_C is the least exponent from -126 to 117 for which values /
  2^exponent are in the range of E4M3 numbers. If a row has a value that is not
  finite, all results of the row are NaN.
  """
  largest_C = jnp.abs(values_CD).max(axis=1)
  fraction_C, exponent_C = jnp.frexp(largest_C)
  # The largest E4M3 number is 7/8 of 2^9. A row that was rounded before has no
  # value above 448 * 2^exponent. The comparison below is exact, so the new
  # exponent is not larger than the old exponent.
  exponent_C += (fraction_C > _LARGEST / 2**9) - 9
  exponent_C = jnp.clip(exponent_C, -126, 117)
  # The scales are powers of 2, so that a value that needs no rounding stays
  # exact when the scale of its row changes.
  scale_C = jnp.where(jnp.isfinite(largest_C), power_of_2(-exponent_C), jnp.nan)
  scaled_CD = jnp.abs(values_CD) * scale_C[:, None]
  # Below the least normal number, the spacing of E4M3 numbers is constant, and
  # equals the spacing just above the least normal number. So the least normal
  # number is added to smaller values before rounding, and is subtracted again
  # afterwards.
  lift_CD = jnp.where(scaled_CD < _LEAST_NORMAL, _LEAST_NORMAL, 0.0)
  rounded_CD = _round_fraction(scaled_CD + lift_CD, bits_CD, _E4M3_BITS)
  rounded_CD = jnp.minimum(rounded_CD - lift_CD, _LARGEST)
  signed_CD = jnp.where(values_CD < 0, -rounded_CD, rounded_CD)
  return signed_CD.astype(E4M3), exponent_C.astype(jnp.int8)


def power_of_2(exponent: jax.Array) -> Float32[Array, '...']:
  """Returns 2^exponent, exactly, for integers from -126 to 127."""
  biased = exponent.astype(jnp.int32) + 127
  return lax.bitcast_convert_type(biased << 23, jnp.float32)


def _round_fraction(values, random, bits) -> Float32[Array, '...']:
  """Removes the last `bits` bits of fraction by stochastic rounding."""
  mask = jnp.uint32((1 << bits) - 1)
  exact = lax.bitcast_convert_type(values, jnp.uint32)
  # A carry into the exponent is correct: it gives the next larger number.
  rounded = (exact + (random & mask)) & ~mask
  return lax.bitcast_convert_type(rounded, jnp.float32)


StoredRows = Mapping[str, jax.Array]


class Storage(enum.Enum):
  """Defines the formats of stored weights.

  FLOAT32: 4 bytes.
  BFLOAT16: 2 bytes, rounded stochastically.
  COMPENSATED: 2 bytes, as BFLOAT16. The weights of labels with many documents
    take 2 more bytes, for their rounding errors (Kahan summation).
  FLOAT8: 1 byte, E4M3, rounded stochastically, with a power of 2 for each row.
    The array contains the bits of the numbers as uint8, because XLA on CPUs
    would convert an entire array of 8-bit floats each time a chunk is written.
  """

  FLOAT32 = 'float32'
  BFLOAT16 = 'bfloat16'
  COMPENSATED = 'compensated'
  FLOAT8 = 'float8'

  @property
  def bytes(self) -> int:
    return self.dtype.itemsize

  @property
  def dtype(self) -> jnp.dtype:
    match self:
      case Storage.FLOAT32:
        return jnp.dtype(jnp.float32)
      case Storage.BFLOAT16 | Storage.COMPENSATED:
        return jnp.dtype(jnp.bfloat16)
      case Storage.FLOAT8:
        return jnp.dtype(jnp.uint8)


def encode_weights(
  storage: Storage,
  values_CD: Float32[Array, 'C D'],
  bits_CD: UInt32[Array, 'C D'],
) -> dict[str, jax.Array]:
  """Converts weights to the arrays in which they are stored.

  The result has `kernel`, [C, D] of storage.dtype. With FLOAT8, it also has
  `exponent`, int8 [C].
  """
  match storage:
    case Storage.FLOAT32:
      return {'kernel': values_CD}
    case Storage.BFLOAT16 | Storage.COMPENSATED:
      return {'kernel': to_bfloat16(values_CD, bits_CD)}
    case Storage.FLOAT8:
      rounded_CD, exponent_C = to_e4m3(values_CD, bits_CD)
      bits_CD = lax.bitcast_convert_type(rounded_CD, jnp.uint8)
      return {'kernel': bits_CD, 'exponent': exponent_C}


def decode_weights(rows: StoredRows, dtype: DTypeLike) -> Float[Array, 'C D']:
  """Converts the arrays of encode_weights back to weights."""
  if 'exponent' not in rows:
    return rows['kernel'].astype(dtype)
  kernel_CD = lax.bitcast_convert_type(rows['kernel'], E4M3)
  scale_C = power_of_2(rows['exponent']).astype(dtype)
  return kernel_CD.astype(dtype) * scale_C[:, None]
