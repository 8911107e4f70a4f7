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


def by_definition(x_TD, model):
  """States of one document, token by token."""
  kernel, bias = (
    np.asarray(x[...], np.float64) for x in (model.kernel, model.bias)
  )
  width, states = len(kernel), []
  for t in range(len(x_TD)):
    state = bias.copy()
    for k in range(width):
      at = t + k - (width - 1) // 2
      if 0 <= at < len(x_TD):
        state += x_TD[at] @ kernel[k]
    states.append(np.tanh(state))
  return np.array(states).reshape(-1, F)


@pytest.mark.parametrize('width', WIDTHS)
def test_definition_and_padding(width):
  x_TBD, model = draw(), cnn_of(width)
  h_TBF = np.asarray(model(x_TBD, jnp.asarray(REAL_TB), None))
  for b, n in enumerate(LENGTHS):
    expected = by_definition(np.asarray(x_TBD, np.float64)[:n, b], model)
    np.testing.assert_allclose(h_TBF[:n, b], expected, atol=1e-5)
    np.testing.assert_array_equal(h_TBF[n:, b], 0)


def test_gradient():
  graphdef, params = nnx.split(cnn_of())
  w_TBF = jax.random.normal(jax.random.key(1), (T, B, F))

  def states(params, x_TBD):
    return nnx.merge(graphdef, params)(x_TBD, jnp.asarray(REAL_TB), None)

  def plain(params, x_TBD):
    x_TBD = jnp.where(REAL_TB[..., None], x_TBD, 0)
    padded = jnp.pad(x_TBD, [(1, 1), (0, 0), (0, 0)])
    summed = sum(padded[k : k + T] @ params['kernel'][k] for k in range(3))
    return jnp.tanh(summed + params['bias'][...]) * REAL_TB[..., None]

  ours, expected = (
    jax.grad(lambda *x, f=f: (f(*x) * w_TBF).sum(), argnums=(0, 1))(
      params, draw()
    )
    for f in (states, plain)
  )
  assert_close(ours, expected, atol=1e-5)
