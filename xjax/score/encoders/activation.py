"""The inner half of a feed-forward network, gradient written out."""

import functools

import jax
from jax import lax
import jax.numpy as jnp

from xjax.core.numerics import product
from xjax.score.pretrained.architecture import Activation


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
  activated_XF = _flat(activated(x_BTF + bias_F, kind))
  out_XD = product(activated_XF, kernel_FD, (1, 0), into=kernel_FD.dtype)
  saved = x_BTF, bias_F, kernel_FD
  return out_XD.reshape(*x_BTF.shape[:-1], -1), saved


def _backward(kind: Activation, saved: tuple, d_BTD: jax.Array) -> tuple:
  # Without the barrier the compiler finds out that it has seen all this.
  x_BTF, bias_F, kernel_FD = lax.optimization_barrier(saved)
  d_XD = _flat(d_BTD)
  activated_XF, pull = jax.vjp(
    lambda x_XF: activated(x_XF + bias_F, kind), _flat(x_BTF)
  )
  (d_XF,) = pull(product(d_XD, kernel_FD, (1, 1), into=kernel_FD.dtype))
  d_kernel_FD = product(activated_XF, d_XD, (0, 0), into=kernel_FD.dtype)
  return d_XF.reshape(x_BTF.shape), d_XF.sum(axis=0), d_kernel_FD


activated_product.defvjp(_forward, _backward)


def _flat(x: jax.Array) -> jax.Array:
  """Rows of all tokens: a sum over two axes would copy what it adds up."""
  return x.reshape(-1, x.shape[-1])
