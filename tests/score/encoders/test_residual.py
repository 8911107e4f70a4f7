import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.score.encoders.coins import flip
from xjax.score.encoders.residual import add_and_norm

B, T, D, EPS = 2, 3, 8, 1e-3
SEEDS = jnp.array([3, 5], jnp.uint32)


def drawn():
  rng = np.random.default_rng(0)
  shapes = (B, T, D), (B, T, D), (D,), (D,), (B, T, D)
  return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def plain(h, x, scale, bias, kept):
  total = h + x * kept
  centred = total - total.mean(2, keepdims=True)
  variance = (centred**2).mean(2, keepdims=True)
  return centred / jnp.sqrt(variance + EPS) * scale + bias


@pytest.mark.parametrize('rate', [0.0, 0.4])
def test_by_definition(rate):
  """Values and gradients against float64."""
  *given, direction = drawn()
  seeds = SEEDS if rate else None
  out, pull = jax.vjp(
    lambda *given: add_and_norm(*given, seeds, rate, EPS),
    *map(jnp.asarray, given),
  )
  kept = np.asarray(flip((B, T, D), rate, SEEDS)) / (1 - rate)
  with jax.enable_x64(True):
    wide = [jnp.asarray(x, jnp.float64) for x in given]
    out_, pull_ = jax.vjp(lambda *given: plain(*given, kept), *wide)
    expected = [out_, *pull_(jnp.asarray(direction, jnp.float64))]
  for a, b in zip([out, *pull(jnp.asarray(direction))], expected, strict=True):
    np.testing.assert_allclose(a, b, atol=2e-6)


def test_sixteen_bits_are_normed_in_32():
  """Around 300 bfloat16 can tell even numbers apart, and little more."""
  h, x, scale, bias, _ = drawn()
  h = jnp.asarray(300 + np.round(4 * h), jnp.bfloat16)
  x = jnp.zeros_like(h)
  out = add_and_norm(h, x, scale, bias, None, 0.0, EPS)
  assert out.dtype == jnp.bfloat16
  expected = plain(np.asarray(h, np.float64), 0, scale, bias, 1)
  np.testing.assert_allclose(out.astype(np.float32), expected, atol=0.02)
