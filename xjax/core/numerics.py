"""Sums of chunks of logits, in the form that each platform is fast in.

XLA fuses a sum into what makes its terms. On GPUs and TPUs that saves memory
traffic; on CPUs the fused loop is not vectorised, so that the terms, which are
most of a loss, take several times as long. There a product with ones keeps the
two apart.
"""

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Float32


def full_precision(dtype: jnp.dtype) -> lax.Precision | None:
  """The `precision` of a product of operands of dtype.

  By default GPUs round float32 operands to the 10 bits of TF32, TPUs to the 7
  of bfloat16: scores would depend on the device from the third digit on.
  Operands that are bfloat16 already are exact as they are: None.
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
  """Contracts one axis of each of two arrays, at full_precision.

  Args:
    a, b: arrays of one dtype.
    axes: of a and of b, to be contracted.
    shared: first axes that both have: a product for each of their places.
    into: dtype of the result.

  Returns:
    The shared axes, those left of a, those left of b.
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
  """The sum of all entries."""
  return lax.platform_dependent(
    x_BC,
    cpu=lambda x_BC: _product(x_BC, jnp.ones(x_BC.shape[1]), (1, 0)).sum(),
    default=jnp.sum,
  )


def column_sums(x_BC: Float32[Array, 'B C']) -> Float32[Array, ' C']:
  """Sums over the first axis."""
  return lax.platform_dependent(
    x_BC,
    cpu=lambda x_BC: _product(jnp.ones(x_BC.shape[0]), x_BC, (0, 0)),
    default=lambda x_BC: x_BC.sum(axis=0),
  )


def _product(a: jax.Array, b: jax.Array, axes: tuple[int, int]) -> jax.Array:
  contracted = (((axes[0],), (axes[1],)), ((), ()))
  return lax.dot_general(a, b, contracted, precision=lax.Precision.HIGHEST)
