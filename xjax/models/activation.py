"""The inner half of a feed-forward network, gradient written out."""

import functools

import jax
from jax import lax
import jax.numpy as jnp

from xjax.heads.precision import full_precision
from xjax.models.architecture import Activation


def activated(x: jax.Array, kind: Activation) -> jax.Array:
  """The activation of each entry, float32 within, in x's dtype."""
  wide = x.astype(jnp.float32)
  match kind:
    case Activation.GELU:
      # By erf: jax.nn.gelu's erfc takes twice the time, to be exact to the
      # last bit where the result is next to nothing.
      wide = wide * (0.5 + 0.5 * lax.erf(wide * 0.5**0.5))
    case Activation.GELU_TANH:
      wide = jax.nn.gelu(wide, approximate=True)
    case Activation.RELU:
      wide = jax.nn.relu(wide)
  return wide.astype(x.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def activated_product(
  x_BTF: jax.Array, bias_F: jax.Array, kernel_FD: jax.Array, kind: Activation
) -> jax.Array:
  """activated(x + bias) times a kernel.

  The gradient activates again rather than keep the result: one pass over what
  would be the second of a layer's two largest arrays.

  Args:
    x_BTF: floats.
    bias_F, kernel_FD: in x's dtype.
    kind: the activation.

  Returns:
    [B, T, D] in x's dtype.
  """
  return _forward(x_BTF, bias_F, kernel_FD, kind)[0]


def _forward(
  x_BTF: jax.Array, bias_F: jax.Array, kernel_FD: jax.Array, kind: Activation
) -> tuple[jax.Array, tuple]:
  out_BTD = jnp.matmul(
    activated(x_BTF + bias_F, kind),
    kernel_FD,
    precision=full_precision(x_BTF.dtype),
  )
  return out_BTD, (x_BTF, bias_F, kernel_FD)


def _backward(kind: Activation, saved: tuple, d_BTD: jax.Array) -> tuple:
  # Without the barrier the compiler finds out that it has seen all this.
  x_BTF, bias_F, kernel_FD = lax.optimization_barrier(saved)
  activated_BTF, pull = jax.vjp(lambda x: activated(x, kind), x_BTF + bias_F)
  product = functools.partial(
    lax.dot_general, precision=full_precision(x_BTF.dtype)
  )
  (d_BTF,) = pull(product(d_BTD, kernel_FD, (((2,), (1,)), ((), ()))))
  d_kernel_FD = product(activated_BTF, d_BTD, (((0, 1), (0, 1)), ((), ())))
  return d_BTF, d_BTF.sum(axis=(0, 1)), d_kernel_FD


activated_product.defvjp(_forward, _backward)
