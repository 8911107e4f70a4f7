"""Compares the LSTM with its equations, padded, batched and on a mesh."""

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.networks.encoders.bilstm import LSTM, BiLSTM, BiLSTMConfig, lstm

T, B, D, H = 6, 8, 4, 5
LENGTHS = np.array([6, 3, 1, 0, 2, 6, 5, 4])
REAL_TB = np.arange(T)[:, None] < LENGTHS
SHAPES = (T, B, D), (D, 4 * H), (4 * H,), (H, 4 * H), (H,), (H,)


@pytest.fixture(scope='module')
def n_devices():
  return 8


@pytest.fixture(autouse=True)
def mesh(n_devices):
  with jax.set_mesh(make_mesh(MeshConfig(), 1)):
    yield


def draw():
  keys = jax.random.split(jax.random.key(0), len(SHAPES))
  return [jax.random.normal(k, shape) for k, shape in zip(keys, SHAPES)]


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def by_definition(x_TD, kernel, bias, recurrent, first_state, first_cell):
  """States of one document, gate by gate, in float64."""
  h, c = (np.asarray(x, np.float64) for x in (first_state, first_cell))
  states = np.zeros((len(x_TD), H))
  for t, x in enumerate(np.asarray(x_TD, np.float64)):
    i, f, g, o = np.split(x @ kernel + bias + h @ np.asarray(recurrent), 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    states[t] = h = sigmoid(o) * np.tanh(c)
  return states


@pytest.mark.parametrize('reverse', [False, True])
def test_definition_and_padding(reverse):
  x_TBD, *weights = draw()
  real_TB = jnp.asarray(REAL_TB, jnp.float32)
  h_TBH = np.asarray(lstm(x_TBD, real_TB, *weights, reverse))
  for b, n in enumerate(LENGTHS):
    x_TD = np.asarray(x_TBD)[:n, b]
    expected = by_definition(x_TD[::-1] if reverse else x_TD, *weights)
    expected = expected[::-1] if reverse else expected
    np.testing.assert_allclose(h_TBH[:n, b], expected, atol=1e-5)
    np.testing.assert_array_equal(h_TBH[n:, b], 0)


def plain(x_TBD, real_TB, kernel, bias, recurrent, state, cell, reverse):
  """A scan that JAX differentiates by itself, and that keeps its state."""

  def step(carry, inputs):
    (h, c), (x, real) = carry, inputs
    summed = x @ kernel + bias + h @ recurrent
    i, f, g, o = jnp.split(summed, 4, axis=1)
    new_c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    new_h = jax.nn.sigmoid(o) * jnp.tanh(new_c)
    real = real[:, None] > 0
    carry = jnp.where(real, new_h, h), jnp.where(real, new_c, c)
    return carry, jnp.where(real, new_h, 0)

  first = (jnp.broadcast_to(x, (B, H)) for x in (state, cell))
  return lax.scan(step, tuple(first), (x_TBD, real_TB), reverse=reverse)[1]


@pytest.mark.parametrize('reverse', [False, True])
def test_gradient(reverse):
  x_TBD, *weights = draw()
  real_TB = jnp.asarray(REAL_TB, jnp.float32)
  w_TBH = jax.random.normal(jax.random.key(1), (T, B, H))

  def gradients(function):
    def loss(x_TBD, *weights):
      return (function(x_TBD, real_TB, *weights, reverse) * w_TBH).sum()

    return jax.grad(loss, argnums=range(6))(x_TBD, *weights)

  for ours, expected in zip(gradients(lstm), gradients(plain)):
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(ours, expected, 1e-5, 1e-5)


def test_the_loops_hold_one_product_each():
  x_TBD, *weights = draw()
  real_TB = jnp.ones((T, B))
  run = jax.grad(
    lambda *x: lstm(x[0], real_TB, *x[1:], False).sum(), argnums=range(6)
  )
  text = str(jax.make_jaxpr(run)(x_TBD, *weights))
  assert text.count('scan[') == 2
  # W x by gate; U h in its loop; U transposed in its own; dx, dW, dU.
  assert text.count('dot_general[') == 9


def bilstm(layers=1, rate=0.0):
  config = BiLSTMConfig(units=H, layers=layers, dropout=rate)
  model = BiLSTM(D, config, rngs=nnx.Rngs(0))
  for layer in (*model.forwards, *model.backwards):
    layer.first_state[...] += 0.5
    layer.first_cell[...] -= 0.7
  return model


@pytest.mark.parametrize('layers', [1, 2])
def test_a_document_stands_alone_whatever_its_padding(layers):
  x_TBD = draw()[0]
  model = bilstm(layers)
  run = jax.jit(lambda x_TBD, real_TB: model(x_TBD, real_TB, None))
  together = np.asarray(run(x_TBD, jnp.asarray(REAL_TB)))
  for b in (0, 1, 2):
    n = LENGTHS[b]
    alone = run(x_TBD[:n, b : b + 1], jnp.ones((n, 1), bool))
    np.testing.assert_allclose(together[:n, b], alone[:, 0], atol=1e-6)
  longer = run(
    jnp.pad(x_TBD, [(0, 3), (0, 0), (0, 0)], constant_values=9.0),
    jnp.pad(REAL_TB, [(0, 3), (0, 0)]),
  )
  np.testing.assert_allclose(longer[:T], together, atol=1e-6)
  np.testing.assert_array_equal(longer[T:], 0)


def test_eight_devices_compute_what_one_computes():
  x_TBD, real_TB = np.asarray(draw()[0]), REAL_TB
  graphdef, params = nnx.split(bilstm(2))
  params = jax.tree.map(np.asarray, params)

  def gradients(shape, devices=8):
    with jax.set_mesh(make_mesh(MeshConfig(*shape), devices)):

      @jax.jit
      @jax.grad
      def run(params):
        arguments = jnp.asarray(x_TBD), jnp.asarray(real_TB), None
        h_TBD = nnx.merge(graphdef, params)(*arguments)
        return (h_TBD**2).sum()

      return jax.tree.map(np.asarray, jax.block_until_ready(run(params)))

  expected = gradients((1, 1), 1)
  assert all(x.any() for x in jax.tree.leaves(expected))
  for shape in ((8, 1), (2, 4)):
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5),
      gradients(shape),
      expected,
    )


def test_bfloat16_products():
  x_TBD = draw()[0]
  layer = LSTM(D, H, reverse=True, rngs=nnx.Rngs(0))
  half = layer(x_TBD.astype(jnp.bfloat16), jnp.asarray(REAL_TB))
  assert half.dtype == jnp.bfloat16
  exact = layer(x_TBD, jnp.asarray(REAL_TB))
  np.testing.assert_allclose(half.astype(jnp.float32), exact, atol=0.05)
