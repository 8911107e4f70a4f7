from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import DATA, LABEL
from xjax.networks.encoders.cnn import CNN, CNNConfig

T, B, D, F = 7, 8, 4, 5
LENGTHS = np.array([7, 6, 1, 3, 7, 2, 5, 0])
REAL_TB = np.arange(T)[:, None] < LENGTHS
WIDTHS = [1, 3, 4, 9]  # the last is wider than any document


def mesh_of(data, label):
  devices = np.array(jax.devices()[: data * label]).reshape(data, label)
  return jax.sharding.Mesh(devices, (DATA, LABEL))


@pytest.fixture(autouse=True)
def mesh():
  with jax.set_mesh(mesh_of(1, 1)):
    yield


def cnn_of(width=3, rate=0.0):
  model = CNN(D, CNNConfig(F, width, rate), rngs=nnx.Rngs(0))
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


def test_a_document_stands_alone():
  x_TBD, model = draw(), cnn_of(4)
  together = np.asarray(model(x_TBD, jnp.asarray(REAL_TB), None))
  for b, n in ((0, 7), (3, 3)):
    alone = model(x_TBD[:n, b : b + 1], jnp.ones((n, 1), bool), None)
    np.testing.assert_allclose(together[:n, b], alone[:, 0], atol=1e-6)


def gradients(function, *args):
  w_TBF = jax.random.normal(jax.random.key(1), (T, B, F))
  run = jax.grad(lambda *args: (function(*args) * w_TBF).sum(), argnums=(0, 1))
  return jax.block_until_ready(jax.jit(run)(*args))


def split():
  graphdef, params = nnx.split(cnn_of())

  def states(params, x_TBD):
    return nnx.merge(graphdef, params)(x_TBD, jnp.asarray(REAL_TB), None)

  return states, params


def test_gradient():
  states, params = split()

  def plain(params, x_TBD):
    x_TBD = jnp.where(REAL_TB[..., None], x_TBD, 0)
    padded = jnp.pad(x_TBD, [(1, 1), (0, 0), (0, 0)])
    summed = sum(padded[k : k + T] @ params['kernel'][k] for k in range(3))
    return jnp.tanh(summed + params['bias'][...]) * REAL_TB[..., None]

  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5),
    gradients(states, params, draw()),
    gradients(plain, params, draw()),
  )


@pytest.mark.parametrize('shape', [(8, 1), (2, 4)])
def test_meshes_agree_and_no_device_sees_the_documents_of_others(shape):
  states, params = split()
  expected = gradients(states, params, draw())
  mesh = mesh_of(*shape)
  with jax.set_mesh(mesh):
    sharding = jax.NamedSharding(mesh, jax.P(None, DATA))
    x_TBD = jax.device_put(np.asarray(draw()), sharding)
    params = jax.tree.map(np.asarray, params)
    sharded = gradients(states, params, x_TBD)
    run = jax.jit(lambda *arguments: gradients(states, *arguments))
    text = run.lower(params, x_TBD).compile().as_text()
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), sharded, expected
  )
  assert 'all-reduce' in text  # the gradients' sums
  for exchange in ('all-gather', 'all-to-all', 'collective-permute'):
    assert exchange not in text


def test_dropout_is_drawn_from_the_given_key():
  x_TBD, model = draw(), cnn_of(rate=0.5)

  def run(seed):
    rngs = nnx.Rngs(dropout=jax.random.key(seed))
    return np.asarray(model(x_TBD, jnp.asarray(REAL_TB), rngs))

  np.testing.assert_array_equal(run(0), run(0))
  assert (run(0) != run(1)).any()
  assert (run(0)[REAL_TB] == 0).any()
  assert not (
    np.asarray(model(x_TBD, jnp.asarray(REAL_TB), None))[REAL_TB] == 0
  ).any()


def test_bfloat16_products():
  x_TBD, model = draw(), cnn_of()
  half = model(x_TBD.astype(jnp.bfloat16), jnp.asarray(REAL_TB), None)
  assert half.dtype == jnp.bfloat16
  np.testing.assert_allclose(
    half.astype(jnp.float32),
    model(x_TBD, jnp.asarray(REAL_TB), None),
    atol=0.05,
  )


@pytest.mark.parametrize(('dtype', 'exact'), [('float32', 3), ('bfloat16', 0)])
def test_float32_products_are_not_rounded(dtype, exact):
  model = cnn_of()
  graphdef, params = nnx.split(model)

  def loss(params, x_TBD):
    model = nnx.merge(graphdef, params)
    return model(x_TBD, jnp.asarray(REAL_TB), None).sum().astype(jnp.float32)

  run = jax.grad(loss, argnums=(0, 1))
  text = str(jax.make_jaxpr(run)(params, draw().astype(dtype)))
  assert text.count('conv_general_dilated[') == 3
  assert text.count('Precision.HIGHEST, Precision.HIGHEST') == exact
