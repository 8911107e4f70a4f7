"""Compares the head of AttentionXML with its equations, streamed and padded."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import make_mesh, padded_labels
from xjax.core.mesh_config import MeshConfig
from xjax.networks.heads.attention_mlp import AttentionMLP
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.head import TokenFeatures

D, L = 6, 300
MLPS = [(5,), (7, 4)]
LAYOUTS = [(mesh, 48) for mesh in [(1, 1), (8, 1), (2, 4)]] + [((1, 1), 4000)]


def make(chunk, mlp=(7, 4)):
  head = AttentionMLP(L, D, chunk=chunk, mlp=mlp, rngs=nnx.Rngs(0))
  rng = np.random.default_rng(3)
  for param in (head.attention, *head.kernels, *head.biases):
    drawn = jnp.asarray(rng.normal(size=param.shape), jnp.float32)
    param[...] = drawn
  return head


def values(mlp=(7, 4)):
  with jax.set_mesh(make_mesh(MeshConfig(), 1)):
    params = nnx.to_pure_dict(nnx.state(make(48, mlp)))
  return jax.tree.map(lambda x: np.asarray(x, np.float64), params)


def by_equations(hidden_TD, params):
  """Returns one document's logits, label by label, from alpha and v."""
  logits = []
  for a_D in params['attention'][:L]:
    power_T = np.exp(hidden_TD @ a_D)
    x = (power_T / max(power_T.sum(), 1e-30)) @ hidden_TD
    last = len(params['kernels']) - 1
    for i in range(last + 1):
      x = x @ params['kernels'][i] + params['biases'][i]
      x = x if i == last else np.maximum(x, 0)
    logits.append(x[0])
  return np.array(logits)


def expected_of(documents, mlp):
  features, _ = documents()
  hidden_BTD = np.asarray(features.hidden_BTD, np.float64)
  return np.array(
    [
      by_equations(hidden_TD[:n], values(mlp))
      for hidden_TD, n in zip(hidden_BTD, features.lengths_B)
    ]
  )


@pytest.fixture(scope='module')
def trial(trial_of):
  return trial_of(make, np.ones(L, bool))


@pytest.fixture(scope='module')
def dense(trial):
  return trial.dense()


@pytest.mark.parametrize('mlp', MLPS)
def test_scores_are_those_of_the_equations(trial_of, documents, mlp):
  trial = trial_of(lambda chunk: make(chunk, mlp), np.ones(L, bool))
  expected = expected_of(documents, mlp)
  np.testing.assert_allclose(trial.scores(), expected, atol=2e-5)
  several = np.asarray(documents()[0].lengths_B) > 1
  spread_B = np.ptp(expected, axis=1)
  # In a document of one token, all labels attend to this token.
  assert spread_B[several].min() > 1 and not spread_B[~several].any()


@pytest.mark.parametrize(('mesh', 'chunk'), LAYOUTS)
def test_loss_is_the_dense_one(trial, dense, mesh, chunk):
  streamed = trial.streamed(mesh, chunk)
  np.testing.assert_allclose(streamed[0], dense[0], rtol=1e-6)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5),
    streamed[1:],
    dense[1:],
  )
  assert np.abs(streamed[1]['attention'][:L]).max(axis=1).min() > 0


def plain(hidden_BTD, lengths_B, params):
  """The logits in plain JAX, with the [B, L, D] vectors v."""
  score = jnp.einsum('BTD,LD->BTL', hidden_BTD, params['attention'][:L])
  real = jnp.arange(hidden_BTD.shape[1]) < lengths_B[:, None]
  alpha = jax.nn.softmax(jnp.where(real[..., None], score, -1e30), axis=1)
  x = jnp.einsum('BTL,BTD->BLD', alpha, hidden_BTD)
  for i in range(3):
    x = x @ params['kernels'][i] + params['biases'][i]
    x = x if i == 2 else jax.nn.relu(x)
  return x[..., 0]


def test_gradient(documents):
  features, _ = documents()
  weight_BL = jnp.asarray(np.random.default_rng(1).normal(size=(8, L)))
  with jax.set_mesh(make_mesh(MeshConfig(), 1)):
    graphdef, params = nnx.split(make(48))

    def ours(params, hidden_BTD):
      head = nnx.merge(graphdef, params)
      rows = nnx.to_pure_dict(split_head(head).rows)
      prepared = head.prepare(features.replace(hidden_BTD=hidden_BTD))
      rows = {name: x[:L] for name, x in rows.items()}
      return (head.logits(prepared, rows) * weight_BL).sum()

    def theirs(params, hidden_BTD):
      values = nnx.to_pure_dict(params)
      logits = plain(hidden_BTD, features.lengths_B, values)
      return (logits * weight_BL).sum()

    gradients = (
      jax.jit(jax.grad(f, argnums=(0, 1)))(params, features.hidden_BTD)
      for f in (ours, theirs)
    )
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, 1e-4, 1e-4), *gradients
    )


def test_padding_and_batch_mates_do_not_matter(trial, documents):
  before = trial.scores()
  longer = trial.scores(features=documents(tokens=9)[0])
  np.testing.assert_allclose(longer, before, atol=1e-5)
  features, _ = documents()
  few = np.array([3, 1])
  alone = TokenFeatures(features.hidden_BTD[few], features.lengths_B[few])
  np.testing.assert_allclose(
    trial.scores(features=alone), before[few], atol=1e-5
  )


def test_attention_weights_are_those_of_the_scores(trial, documents):
  ids_BK = np.random.default_rng(2).integers(0, L, (8, 5))
  alpha_BKT = trial.attention(ids_BK, (2, 4))
  features, _ = documents()
  hidden_BTD = np.asarray(features.hidden_BTD, np.float64)
  rows_BKD = values()['attention'][ids_BK]
  for b, n in enumerate(features.lengths_B):
    power_KT = np.exp(rows_BKD[b] @ hidden_BTD[b, :n].T)
    expected = power_KT / power_KT.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(alpha_BKT[b, :, :n], expected, atol=1e-5)
    assert not alpha_BKT[b, :, n:].any()


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_float32_products_are_not_rounded(documents, dtype):
  features, _ = documents()
  with jax.set_mesh(make_mesh(MeshConfig(), 1)):
    head = make(48)
    rows = {'attention': head.attention[...]}

    def logits(hidden_BTD):
      prepared = head.prepare(features.replace(hidden_BTD=hidden_BTD))
      return head.logits(prepared, rows)

    hidden_BTD = features.hidden_BTD.astype(dtype)
    assert logits(hidden_BTD).dtype == jnp.float32
    text = str(jax.make_jaxpr(jax.grad(lambda x: logits(x).sum()))(hidden_BTD))
  products = text.count('dot_general[')
  exact = text.count('Precision.HIGHEST, Precision.HIGHEST')
  assert products >= 8 and exact == (products if dtype == 'float32' else 0)


def test_only_attention_rows_belong_to_labels_and_no_array_is_of_label_vectors(
  documents,
):
  with jax.set_mesh(make_mesh(MeshConfig(), 1)):
    head = AttentionMLP(L, D, chunk=9, mlp=(2,), rngs=nnx.Rngs(0))
  rows = nnx.to_pure_dict(split_head(head).rows)
  assert rows.keys() == {'attention'}
  assert rows['attention'].shape == (padded_labels(L), D)
  limit = (6 / (L + D)) ** 0.5
  assert 0.9 * limit < np.abs(rows['attention']).max() <= limit
  prepared = head.prepare(documents()[0])
  program = jax.make_jaxpr(lambda f: head.logits(f, rows))(prepared)
  shapes = {v.aval.shape for eqn in program.eqns for v in eqn.outvars}
  assert (8, padded_labels(L), 2) in shapes
  assert (8, padded_labels(L), D) not in shapes


def test_the_last_bias_starts_at_the_logit_of_the_mean_prior():
  priors = np.array([0.5, 0.1, 0.003])
  biases = np.log(priors / (1 - priors))
  with jax.set_mesh(make_mesh(MeshConfig(), 1)):
    head = AttentionMLP(3, D, chunk=2, mlp=(4,), bias=biases, rngs=nnx.Rngs(0))
  probability = 1 / (1 + np.exp(-np.asarray(head.biases[-1][...])))
  np.testing.assert_allclose(probability, priors.mean(), rtol=1e-5)
  assert not head.biases[0][...].any()
