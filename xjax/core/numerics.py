"""Multiplies matrices at full precision, and sums fast on each platform.

XLA fuses a sum with the operations that compute its terms. On CPUs the fused
loop is not vectorised, and a loss takes several times as long. So there, the
sum is written as a product with ones, which XLA does not fuse.
"""

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Float32


def full_precision(dtype: jnp.dtype) -> lax.Precision | None:
  """Returns the `precision` argument for a product of operands of this dtype.

  By default, GPUs round float32 operands to the 10 bits of TF32, and TPUs round
  them to the 7 bits of bfloat16. With these defaults, scores on different
  devices would differ in the third digit. bfloat16 operands are not rounded, so
  None is returned for them.
  """
  return lax.Precision.HIGHEST if dtype == jnp.float32 else None


def product(
  a: jax.Array,
  b: jax.Array,
  axes: tuple[int, int],
  *,
  shared: int = 0,
  into: jnp.dtype = jnp.float32,
) -> jax.Array:
  """Multiplies two arrays and sums over one axis of each, at full_precision.

  Both arrays have the same dtype, and `shared` leading batch axes. `axes` are
  the axis of `a` and that of `b` over which products are summed. The result has
  the shared axes, then the other axes of `a`, then those of `b`.
  """
  both = tuple(range(shared))
  return lax.dot_general(
    a,
    b,
    (((axes[0],), (axes[1],)), (both, both)),
    precision=full_precision(a.dtype),
    preferred_element_type=into,
  )


def total(x_BC: Float32[Array, 'B C']) -> Float32[Array, '']:
  """Returns the sum of all entries of an array."""
  return lax.platform_dependent(
    x_BC,
    cpu=lambda x_BC: product(x_BC, jnp.ones(x_BC.shape[1]), (1, 0)).sum(),
    default=jnp.sum,
  )


def column_sums(x_BC: Float32[Array, 'B C']) -> Float32[Array, ' C']:
  """Returns the sum of each column of an array."""
  return lax.platform_dependent(
    x_BC,
    cpu=lambda x_BC: product(jnp.ones(x_BC.shape[0]), x_BC, (0, 0)),
    default=lambda x_BC: x_BC.sum(axis=0),
  )


def mix_bits(x: jax.Array) -> jax.Array:
  """Hashes uint32 numbers by a permutation (C. Wellons), without collisions."""
  x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
  x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
  return x ^ (x >> 16)
