"""Products of matrices, and what they are computed in."""

import jax
from jax import lax
import jax.numpy as jnp


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
