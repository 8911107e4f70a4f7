"""The head of AttentionXML: its gradients, its rows and its first biases."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np

from tests.fixtures.attending_heads import ALL, D, L, Perceptrons, attention_mlp
from tests.fixtures.networks import assert_close, on_mesh
from xjax.core.mesh import padded_labels
from xjax.networks.heads.attention_mlp import AttentionMLP
from xjax.networks.heads.chunks import split_head


def test_scores_of_one_hidden_layer_are_those_of_the_equations(
  trial_of, documents
):
  kind = Perceptrons(lambda chunk: attention_mlp(chunk, (5,)), ALL)
  features, params = documents()[0], kind.params()
  hidden_BTD = np.asarray(features.hidden_BTD, np.float64)
  expected = [
    kind.by_equations(params, hidden_TD[:n])
    for hidden_TD, n in zip(hidden_BTD, features.lengths_B)
  ]
  scores_BL = trial_of(kind.make, ALL).scores()
  np.testing.assert_allclose(scores_BL, expected, atol=2e-5)


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
  with on_mesh():
    graphdef, params = nnx.split(attention_mlp(48))

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
    assert_close(*gradients, 0.0001, 0.0001)


def test_only_attention_rows_belong_to_labels_and_no_array_is_of_label_vectors(
  documents,
):
  with on_mesh():
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
  with on_mesh():
    head = AttentionMLP(3, D, chunk=2, mlp=(4,), bias=biases, rngs=nnx.Rngs(0))
  probability = 1 / (1 + np.exp(-np.asarray(head.biases[-1][...])))
  np.testing.assert_allclose(probability, priors.mean(), rtol=1e-5)
  assert not head.biases[0][...].any()
