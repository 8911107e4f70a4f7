"""What products of float32 matrices are computed in."""

from jax import lax
import jax.numpy as jnp


def full_precision(dtype: jnp.dtype) -> lax.Precision | None:
  """The `precision` of a product of operands of dtype.

  By default GPUs round float32 operands to the 10 bits of TF32, TPUs to the 7
  of bfloat16: scores would depend on the device from the third digit on.
  Operands that are bfloat16 already are exact as they are: None.
  """
  return lax.Precision.HIGHEST if dtype == jnp.float32 else None
