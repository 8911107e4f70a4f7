import math

import jax.numpy as jnp
import numpy as np
import pytest

from xjax.networks.encoders.bert import activate
from xjax.networks.pretrained.architecture import Activation

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
    activate(jnp.asarray(X), kind), expected, atol=1e-6
  )
