from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import assert_close, on_mesh
from xjax.networks.encoders.cnn import CNN, CNNConfig

T, B, D, F = 7, 8, 4, 5
LENGTHS = np.array([7, 6, 1, 3, 7, 2, 5, 0])
REAL_TB = np.arange(T)[:, None] < LENGTHS
WIDTHS = [1, 3, 4, 9]  # the last is wider than any document


@pytest.fixture(autouse=True)
def mesh():
  with on_mesh():
    yield


def cnn_of(width=3):
  model = CNN(D, CNNConfig(F, width, 0.0), rngs=nnx.Rngs(0))
  model.bias[...] = jax.random.normal(jax.random.key(2), (F,))
  return model


def draw():
  """Inputs that are not 0 at padding."""
  return jax.random.normal(jax.random.key(0), (T, B, D))


def by_definition(params, x_TBD):
  """States of documents as if nothing followed them, from sums of products."""
  kernel, x_TBD = params['kernel'][...], jnp.where(REAL_TB[..., None], x_TBD, 0)
  before = (len(kernel) - 1) // 2
  around = before, len(kernel) - 1 - before
  padded = jnp.pad(x_TBD, [around, (0, 0), (0, 0)])
  summed = sum(padded[k : k + T] @ part for k, part in enumerate(kernel))
  return jnp.tanh(summed + params['bias'][...]) * REAL_TB[..., None]


@pytest.mark.parametrize('width', WIDTHS)
def test_states_and_gradients(width):
  graphdef, params = nnx.split(cnn_of(width))
  w_TBF = jax.random.normal(jax.random.key(1), (T, B, F))

  def states(params, x_TBD):
    return nnx.merge(graphdef, params)(x_TBD, jnp.asarray(REAL_TB), None)

  def run(function):
    def total(*arguments):
      h_TBF = function(*arguments)
      return (h_TBF * w_TBF).sum(), h_TBF

    return jax.grad(total, argnums=(0, 1), has_aux=True)(params, draw())

  gradients, h_TBF = run(states)
  assert_close((gradients, h_TBF), run(by_definition), atol=1e-5)
  np.testing.assert_array_equal(h_TBF[~REAL_TB], 0)
