import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.score.encoders.activation import activated, activated_product
from xjax.score.pretrained.architecture import Activation

X = np.linspace(-8, 8, 41).astype(np.float32)


def gelu(x):
  return x * 0.5 * math.erfc(-x / 2**0.5)


def gelu_tanh(x):
  return 0.5 * x * (1 + math.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(
  ('kind', 'by_hand'),
  [
    (Activation.GELU, gelu),
    (Activation.GELU_TANH, gelu_tanh),
    (Activation.RELU, lambda x: max(x, 0.0)),
  ],
)
def test_by_definition(kind, by_hand):
  expected = [by_hand(float(x)) for x in X]
  np.testing.assert_allclose(
    activated(jnp.asarray(X), kind), expected, atol=1e-6
  )


@pytest.mark.parametrize('kind', Activation)
def test_gradient_of_a_product(kind):
  """As JAX finds it of the same, step by step."""
  rng = np.random.default_rng(0)
  shapes = (2, 3, 5), (5,), (5, 4), (2, 3, 4)
  *given, direction = (
    jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes
  )

  def plain(x, bias, kernel):
    return activated(x + bias, kind) @ kernel

  out_, pull_ = jax.vjp(plain, *given)
  out, pull = jax.vjp(lambda *given: activated_product(*given, kind), *given)
  pairs = zip([out, *pull(direction)], [out_, *pull_(direction)], strict=True)
  for a, b in pairs:
    np.testing.assert_allclose(a, b, atol=1e-5)
