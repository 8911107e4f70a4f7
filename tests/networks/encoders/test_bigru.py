from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import DATA, LABEL
from xjax.networks.encoders.bigru import GRU, BiGRU, BiGRUConfig, gru

T, B, D, H = 6, 3, 4, 5
LENGTHS = np.array([6, 3, 1])
REAL_TB = np.arange(T)[:, None] < LENGTHS


@pytest.fixture(autouse=True)
def mesh():
  """One device: what several make of it, test_build.py compares."""
  devices = np.array(jax.devices()[:1]).reshape(1, 1)
  with jax.set_mesh(jax.sharding.Mesh(devices, (DATA, LABEL))):
    yield


def draw():
  keys = jax.random.split(jax.random.key(0), 5)
  shapes = (T, B, D), (D, 3 * H), (3 * H,), (H, 3 * H), (H,)
  return [jax.random.normal(k, shape) for k, shape in zip(keys, shapes)]


def by_definition(x_TD, kernel, bias, recurrent, candidate_bias):
  """States of one document, gate by gate."""
  h, states = np.zeros(H), []
  for x in np.asarray(x_TD, np.float64):
    xr, xz, xn = np.split(x @ kernel + bias, 3)
    ur, uz, un = np.split(h @ np.asarray(recurrent), 3)
    r, z = 1 / (1 + np.exp(-(xr + ur))), 1 / (1 + np.exp(-(xz + uz)))
    n = np.tanh(xn + r * (un + candidate_bias))
    h = (1 - z) * n + z * h
    states.append(h)
  return np.array(states)


@pytest.mark.parametrize('reverse', [False, True])
def test_definition_and_padding(reverse):
  x_TBD, *weights = draw()
  real_TB = jnp.asarray(REAL_TB, jnp.float32)
  h_TBH = np.asarray(gru(x_TBD, real_TB, *weights, reverse))
  for b, n in enumerate(LENGTHS):
    x_TD = np.asarray(x_TBD)[:n, b]
    expected = by_definition(x_TD[::-1] if reverse else x_TD, *weights)
    expected = expected[::-1] if reverse else expected
    np.testing.assert_allclose(h_TBH[:n, b], expected, atol=1e-5)
    np.testing.assert_array_equal(h_TBH[n:, b], 0)


def plain(x_TBD, real_TB, kernel, bias, recurrent, candidate_bias, reverse):
  """A scan that JAX differentiates by itself."""

  def step(h, inputs):
    x, real = inputs
    xr, xz, xn = jnp.split(x @ kernel + bias, 3, axis=1)
    ur, uz, un = jnp.split(h @ recurrent, 3, axis=1)
    r, z = jax.nn.sigmoid(xr + ur), jax.nn.sigmoid(xz + uz)
    n = jnp.tanh(xn + r * (un + candidate_bias))
    h = ((1 - z) * n + z * h) * real[:, None]
    return h, h

  return lax.scan(step, jnp.zeros((B, H)), (x_TBD, real_TB), reverse=reverse)[1]


@pytest.mark.parametrize('reverse', [False, True])
def test_gradient(reverse):
  x_TBD, *weights = draw()
  real_TB = jnp.asarray(REAL_TB, jnp.float32)
  w_TBH = jax.random.normal(jax.random.key(1), (T, B, H))

  def gradients(function):
    def loss(x_TBD, *weights):
      return (function(x_TBD, real_TB, *weights, reverse) * w_TBH).sum()

    return jax.grad(loss, argnums=range(5))(x_TBD, *weights)

  for ours, expected in zip(gradients(gru), gradients(plain)):
    np.testing.assert_allclose(ours, expected, 1e-5, 1e-5)


def test_the_loops_hold_one_product_each():
  x_TBD, *weights = draw()
  real_TB = jnp.ones((T, B))
  text = str(
    jax.make_jaxpr(
      jax.grad(
        lambda *arguments: gru(
          arguments[0], real_TB, *arguments[1:], False
        ).sum(),
        argnums=range(5),
      )
    )(x_TBD, *weights)
  )
  assert text.count('scan[') == 2
  # W x by gate; U h in its loop; U transposed in its own; dx, dW, dU.
  assert text.count('dot_general[') == 8


@pytest.mark.parametrize(('dtype', 'exact'), [('float32', 8), ('bfloat16', 0)])
def test_float32_products_are_not_rounded(dtype, exact):
  layer = GRU(D, H, reverse=False, rngs=nnx.Rngs(0))
  real_TB = jnp.ones((T, B), bool)
  run = jax.grad(lambda x: layer(x, real_TB).sum().astype(jnp.float32))
  text = str(jax.make_jaxpr(run)(draw()[0].astype(dtype)))
  assert text.count('dot_general[') == 8
  assert text.count('Precision.HIGHEST, Precision.HIGHEST') == exact


def bigru(layers, rate=0.0):
  config = BiGRUConfig(units=H, layers=layers, dropout=rate)
  return BiGRU(D, config, rngs=nnx.Rngs(0))


def test_layers_are_residual():
  x_TBD = draw()[0]
  model = bigru(layers=2)
  first = bigru(layers=1)  # of the same seed, hence the same first layer
  first.forwards[0], first.backwards[0] = model.forwards[0], model.backwards[0]
  below = first(x_TBD, jnp.asarray(REAL_TB), None)
  above = [
    layer(below, jnp.asarray(REAL_TB))
    for layer in (model.forwards[1], model.backwards[1])
  ]
  np.testing.assert_allclose(
    model(x_TBD, jnp.asarray(REAL_TB), None),
    below + jnp.concatenate(above, axis=2),
    atol=1e-6,
  )


@pytest.mark.parametrize('layers', [1, 2])
def test_a_document_stands_alone(layers):
  x_TBD = draw()[0]
  model = bigru(layers)
  run = jax.jit(lambda x_TBD, real_TB: model(x_TBD, real_TB, None))
  together = np.asarray(run(x_TBD, REAL_TB))
  for b, n in enumerate(LENGTHS):
    alone = run(x_TBD[:n, b : b + 1], jnp.ones((n, 1), bool))
    np.testing.assert_allclose(together[:n, b], alone[:, 0], atol=1e-6)
    np.testing.assert_array_equal(together[n:, b], 0)


def test_dropout_is_drawn_from_the_given_key():
  x_TBD = draw()[0]
  model = bigru(2, rate=0.5)

  @jax.jit
  def run(key):
    return model(x_TBD, jnp.asarray(REAL_TB), nnx.Rngs(dropout=key))

  first, again, other = (np.asarray(run(jax.random.key(i))) for i in (0, 0, 1))
  np.testing.assert_array_equal(first, again)
  assert (first != other).any()
  assert (first[REAL_TB] == 0).any()
  assert not (
    np.asarray(model(x_TBD, jnp.asarray(REAL_TB), None))[REAL_TB] == 0
  ).any()
  kinds = {type(v) for _, v in nnx.iter_graph(model)}
  assert nnx.Rngs not in kinds and nnx.RngState not in kinds


def test_bfloat16_products():
  x_TBD = draw()[0]
  layer = GRU(D, H, reverse=True, rngs=nnx.Rngs(0))
  real_TB = jnp.asarray(REAL_TB)
  half = layer(x_TBD.astype(jnp.bfloat16), real_TB)
  assert half.dtype == jnp.bfloat16
  np.testing.assert_allclose(
    half.astype(jnp.float32), layer(x_TBD, real_TB), atol=0.05
  )
