from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import make_mesh, padded_labels
from xjax.core.mesh_config import MeshConfig
from xjax.networks.heads.head import TokenFeatures
from xjax.networks.heads.label_attention import LabelAttention

LENGTHS = [5, 2, 1, 0]


def draw(tokens=5, seed=0):
  rng = np.random.default_rng(seed)
  hidden = rng.normal(size=(4, 5, 6)).astype(np.float32)
  hidden *= (np.arange(5) < np.array(LENGTHS)[:, None])[..., None]
  hidden = np.pad(hidden, [(0, 0), (0, tokens - 5), (0, 0)])
  rows = {
    'attention': jnp.asarray(rng.normal(size=(3, 6)), jnp.float32),
    'output': jnp.asarray(rng.normal(size=(3, 6)), jnp.float32),
    'bias': jnp.asarray(rng.normal(size=3), jnp.float32),
  }
  return TokenFeatures(jnp.asarray(hidden), jnp.array(LENGTHS, jnp.int32)), rows


@pytest.fixture(scope='module')
def head():
  with jax.set_mesh(make_mesh(MeshConfig())):
    return LabelAttention(3, 6, chunk=2, rngs=nnx.Rngs(0))


def by_definition(hidden_TD, rows):
  """One document's logits, from its label vectors, in float64."""
  u, w, b = (
    np.asarray(rows[name], np.float64)
    for name in ('attention', 'output', 'bias')
  )
  if not len(hidden_TD):
    return b
  score_TL = np.asarray(hidden_TD, np.float64) @ u.T
  alpha_TL = np.exp(score_TL - score_TL.max(axis=0))
  alpha_TL /= alpha_TL.sum(axis=0)
  vector_LD = alpha_TL.T @ hidden_TD
  return (vector_LD * w).sum(axis=1) + b


def test_definition(head):
  features, rows = draw()
  expected = [
    by_definition(np.asarray(h)[:n], rows)
    for h, n in zip(features.hidden_BTD, LENGTHS)
  ]
  np.testing.assert_allclose(head.logits(features, rows), expected, atol=1e-5)


def plain(hidden_BTD, rows):
  """The same in plain JAX, with [B, L, D] vectors, to differentiate."""
  score = jnp.einsum('BTD,LD->BTL', hidden_BTD, rows['attention'])
  real = jnp.arange(hidden_BTD.shape[1]) < jnp.array(LENGTHS)[:, None]
  alpha = jax.nn.softmax(jnp.where(real[..., None], score, -1e30), axis=1)
  vector = jnp.einsum('BTL,BTD->BLD', alpha, hidden_BTD)
  return jnp.einsum('BLD,LD->BL', vector, rows['output']) + rows['bias']


def test_gradient(head):
  features, rows = draw()
  weight = jnp.asarray(np.random.default_rng(1).normal(size=(4, 3)))

  def ours(hidden_BTD, rows):
    inputs = TokenFeatures(hidden_BTD, features.lengths_B)
    return (head.logits(inputs, rows) * weight).sum()

  gradients = jax.grad(ours, argnums=(0, 1))(features.hidden_BTD, rows)
  expected = jax.grad(lambda *x: (plain(*x) * weight).sum(), argnums=(0, 1))(
    features.hidden_BTD, rows
  )
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5),
    gradients,
    expected,
  )


def test_padding_changes_nothing(head):
  short, rows = draw()
  long, _ = draw(tokens=9)
  np.testing.assert_allclose(
    head.logits(short, rows), head.logits(long, rows), atol=1e-6
  )


def test_large_scores_do_not_overflow(head):
  features, rows = draw()
  rows['attention'] *= 1e4
  logits = head.logits(features, rows)
  expected = [
    by_definition(np.asarray(h)[:n], rows)
    for h, n in zip(features.hidden_BTD, LENGTHS)
  ]
  np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_bfloat16_products_keep_a_float32_softmax(head):
  features, rows = draw()
  half = features.replace(hidden_BTD=features.hidden_BTD.astype(jnp.bfloat16))
  logits, pull = jax.vjp(lambda f, r: head.logits(f, r), half, rows)
  assert logits.dtype == jnp.float32
  np.testing.assert_allclose(logits, head.logits(features, rows), atol=0.1)
  d_features, d_rows = pull(jnp.ones_like(logits))
  assert d_features.hidden_BTD.dtype == jnp.bfloat16
  assert {x.dtype for x in d_rows.values()} == {jnp.dtype('float32')}


@pytest.mark.parametrize(('dtype', 'exact'), [('float32', 6), ('bfloat16', 0)])
def test_float32_products_are_not_rounded(head, dtype, exact):
  features, rows = draw()
  inputs = features.replace(hidden_BTD=features.hidden_BTD.astype(dtype))
  run = jax.grad(lambda rows: head.logits(inputs, rows).sum())
  text = str(jax.make_jaxpr(run)(rows))
  assert text.count('dot_general[') == 6
  assert text.count('Precision.HIGHEST, Precision.HIGHEST') == exact


def test_rows_are_padded_and_biases_given():
  with jax.set_mesh(make_mesh(MeshConfig())):
    head = LabelAttention(
      130, 6, chunk=2, bias=np.arange(130.0), rngs=nnx.Rngs(0)
    )
  assert head.attention.shape == head.output.shape == (padded_labels(130), 6)
  np.testing.assert_array_equal(head.bias[:130], np.arange(130))
  np.testing.assert_array_equal(head.bias[130:], 0)
