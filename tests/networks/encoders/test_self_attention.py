from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import assert_close, mesh_of, on_mesh, products
from xjax.core.mesh import DATA
from xjax.networks.heads.head import TokenFeatures
from xjax.networks.pooling import SelfAttention

B, T, D = 8, 6, 5
LENGTHS = np.array([6, 3, 1, 0, 2, 6, 5, 4], np.int32)


@pytest.fixture(autouse=True)
def mesh():
  with on_mesh():
    yield


def random_attention():
  model = SelfAttention(D, rngs=nnx.Rngs(0))
  model.bias[...] = jax.random.normal(jax.random.key(2), (D,))
  model.query[...] *= 9  # attention that is far from uniform
  return model


def draw(tokens=T):
  h_BTD = np.random.default_rng(0).normal(size=(B, T, D)).astype(np.float32)
  h_BTD *= (np.arange(T) < LENGTHS[:, None])[..., None]
  h_BTD = np.pad(h_BTD, [(0, 0), (0, tokens - T), (0, 0)])
  return TokenFeatures(jnp.asarray(h_BTD), jnp.asarray(LENGTHS))


def by_definition(h_TD, model):
  """A document's vector, token by token."""
  kernel, bias, query = (
    np.asarray(x[...], np.float64)
    for x in (model.kernel, model.bias, model.query)
  )
  if not len(h_TD):
    return np.zeros(D)
  scores = [np.tanh(h @ kernel + bias) @ query for h in h_TD]
  total = sum(np.exp(score) for score in scores)
  return sum(np.exp(score) / total * h for score, h in zip(scores, h_TD))


@pytest.mark.parametrize('tokens', [T, 9])
def test_definition(tokens):
  features, model = draw(tokens), random_attention()
  expected = [
    by_definition(np.asarray(h, np.float64)[:n], model)
    for h, n in zip(features.hidden_BTD, LENGTHS)
  ]
  document_BD = np.asarray(model(features))
  np.testing.assert_allclose(document_BD, expected, atol=1e-5)
  np.testing.assert_allclose(document_BD, model(draw()), atol=1e-6)
  # One token is the document.
  np.testing.assert_array_equal(document_BD[2], features.hidden_BTD[2, 0])
  # Time may be first.
  real_TB = jnp.arange(tokens)[:, None] < LENGTHS
  first = model.over_time(features.hidden_BTD.swapaxes(0, 1), real_TB)
  np.testing.assert_allclose(first, document_BD, atol=1e-6)


def gradients(graphdef, params, features):
  weight_BD = jax.random.normal(jax.random.key(1), (B, D))

  def loss(params, hidden_BTD):
    model = nnx.merge(graphdef, params)
    document_BD = model(TokenFeatures(hidden_BTD, features.lengths_B))
    return (document_BD * weight_BD).sum()

  run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
  compiled = run.lower(params, features.hidden_BTD).compile()
  results = jax.block_until_ready(compiled(params, features.hidden_BTD))
  return results, compiled.as_text()


def test_a_document_without_tokens_teaches_nothing():
  features, empty = draw(), LENGTHS == 0
  only = TokenFeatures(features.hidden_BTD[empty], features.lengths_B[empty])
  gradient = jax.grad(lambda model: model(only).sum())(random_attention())
  assert all((x == 0).all() for x in jax.tree.leaves(gradient))


@pytest.mark.parametrize('shape', [(8, 1), (2, 4)])
def test_meshes_agree_and_no_device_sees_the_documents_of_others(shape):
  graphdef, params = nnx.split(random_attention())
  expected, _ = gradients(graphdef, params, draw())
  params = jax.tree.map(np.asarray, params)
  mesh = mesh_of(*shape)
  with jax.set_mesh(mesh):
    sharding = jax.NamedSharding(mesh, jax.P(DATA))
    features = jax.device_put(jax.tree.map(np.asarray, draw()), sharding)
    sharded, text = gradients(graphdef, params, features)
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(expected))
  assert_close(sharded, expected, atol=1e-5)
  assert 'all-reduce' in text  # the gradients' sums
  for exchange in ('all-gather', 'all-to-all', 'collective-permute'):
    assert exchange not in text


def test_bfloat16_keeps_a_float32_softmax():
  features, model = draw(), random_attention()
  half = features.replace(hidden_BTD=features.hidden_BTD.astype(jnp.bfloat16))
  document_BD = model(half)
  assert document_BD.dtype == jnp.bfloat16
  np.testing.assert_allclose(
    document_BD.astype(jnp.float32), model(features), atol=0.1
  )


@pytest.mark.parametrize(('dtype', 'exact'), [('float32', 3), ('bfloat16', 0)])
def test_float32_products_are_not_rounded(dtype, exact):
  features, (graphdef, params) = draw(), nnx.split(random_attention())
  hidden_BTD = features.hidden_BTD.astype(dtype)

  def loss(params, hidden_BTD):
    tokens = TokenFeatures(hidden_BTD, features.lengths_B)
    return nnx.merge(graphdef, params)(tokens).sum().astype(jnp.float32)

  run = jax.grad(loss, argnums=(0, 1))
  assert products(run, params, hidden_BTD) == (3, exact)
