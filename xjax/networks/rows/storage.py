"""Defines how the weights of label rows are stored.

Only the stored weights are kept from step to step, without a float32 copy
(ELMO, ICML 2025). In most steps, a weight changes by far less than the spacing
of numbers with few bits. Rounding to the nearest number would lose the change.
So new weights are rounded stochastically, or the rounding errors of labels with
many documents are kept.
"""

from collections.abc import Mapping
import enum

import jax
from jax import lax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Float32, UInt32

from xjax.networks.rows.rounding import (
  E4M3,
  power_of_2,
  to_bfloat16,
  to_e4m3,
)

Rows = Mapping[str, jax.Array]


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


def decode_weights(rows: Rows, dtype: DTypeLike) -> Float[Array, 'C D']:
  """Converts the arrays of encode_weights back to weights."""
  if 'exponent' not in rows:
    return rows['kernel'].astype(dtype)
  kernel_CD = lax.bitcast_convert_type(rows['kernel'], E4M3)
  scale_C = power_of_2(rows['exponent']).astype(dtype)
  return kernel_CD.astype(dtype) * scale_C[:, None]
