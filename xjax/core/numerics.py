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
