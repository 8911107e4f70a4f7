"""Dropout, residual connection and layer norm in one, gradient written out."""

import functools

import jax
import jax.numpy as jnp

from xjax.score.encoders.coins import dropped
from xjax.score.encoders.layers import standardised


@functools.partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def add_and_norm(
  h_BTD: jax.Array,
  x_BTD: jax.Array,
  scale_D: jax.Array,
  bias_D: jax.Array,
  seeds: jax.Array | None,
  rate: float,
  eps: float,
) -> jax.Array:
  """norm(h + dropout(x)), the norm that of Ba et al. 2016.

  The gradient keeps the sum, and flips the coins again. With n the normed sum,
  s its standard deviation and g = dy scale, the sum's is (g - mean(g) -
  n mean(g n)) / s.

  Args:
    h_BTD: what was before the sub-layer.
    x_BTD: what it made; in h's dtype.
    scale_D, bias_D: float32.
    seeds: uint32 [2] of coins.seeds_of, or None: no dropout.
    rate: of dropout.
    eps: added to the variance.

  Returns:
    [B, T, D] in h's dtype, computed in float32.
  """
  return _forward(h_BTD, x_BTD, scale_D, bias_D, seeds, rate, eps)[0]


def _forward(
  h_BTD: jax.Array,
  x_BTD: jax.Array,
  scale_D: jax.Array,
  bias_D: jax.Array,
  seeds: jax.Array | None,
  rate: float,
  eps: float,
) -> tuple[jax.Array, tuple]:
  wide = x_BTD.astype(jnp.float32)
  total_BTD = h_BTD.astype(jnp.float32) + dropped(wide, rate, seeds)
  normed, mean_BT1, inverse_BT1 = standardised(total_BTD, eps)
  out_BTD = (normed * scale_D + bias_D).astype(h_BTD.dtype)
  saved = total_BTD.astype(h_BTD.dtype), mean_BT1, inverse_BT1, scale_D, seeds
  return out_BTD, saved


def _backward(rate: float, eps: float, saved: tuple, d_BTD: jax.Array) -> tuple:
  del eps
  total_BTD, mean_BT1, inverse_BT1, scale_D, seeds = saved
  d_BTD = d_BTD.astype(jnp.float32)
  normed = (total_BTD.astype(jnp.float32) - mean_BT1) * inverse_BT1
  by_normed = d_BTD * scale_D
  mean = by_normed.mean(axis=2, keepdims=True)
  slope = (by_normed * normed).mean(axis=2, keepdims=True)
  d_total = (by_normed - mean - normed * slope) * inverse_BT1
  d_x = dropped(d_total, rate, seeds)
  return (
    d_total.astype(total_BTD.dtype),
    d_x.astype(total_BTD.dtype),
    (d_BTD * normed).sum(axis=(0, 1)),
    d_BTD.sum(axis=(0, 1)),
    None,
  )


add_and_norm.defvjp(_forward, _backward)
