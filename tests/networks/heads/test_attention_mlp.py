"""The head of AttentionXML: its gradients, its rows and its first biases."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.attending_heads import D, L, attention_mlp
from tests.fixtures.networks import assert_close, on_mesh
from xjax.core.mesh import padded_labels
from xjax.networks.heads.attention_mlp import AttentionMLPConfig
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.head import HeadInputs


def plain(hidden_BTD, lengths_B, params):
  """The logits in plain JAX, with the [B, L, D] vectors v."""
  score = jnp.einsum('BTD,LD->BTL', hidden_BTD, params['attention'][:L])
  real = jnp.arange(hidden_BTD.shape[1]) < lengths_B[:, None]
  alpha = jax.nn.softmax(jnp.where(real[..., None], score, -1e30), axis=1)
  x = jnp.einsum('BTL,BTD->BLD', alpha, hidden_BTD)
  last = len(params['kernels']) - 1
  for i in range(last + 1):
    x = x @ params['kernels'][i] + params['biases'][i]
    x = x if i == last else jax.nn.relu(x)
  return x[..., 0]


@pytest.mark.parametrize('mlp', [(5,), (7, 4)])
def test_logits_and_gradients(documents, mlp):
  features, _ = documents()
  weight_BL = jnp.asarray(np.random.default_rng(1).normal(size=(8, L)))
  with on_mesh():
    graphdef, params = nnx.split(attention_mlp(48, mlp))

    def ours(params, hidden_BTD):
      head = nnx.merge(graphdef, params)
      rows = nnx.to_pure_dict(split_head(head).rows)
      prepared = head.prepare(features.replace(hidden_BTD=hidden_BTD))
      rows = {name: x[:L] for name, x in rows.items()}
      logits_BL = head.logits(prepared, rows)
      return (logits_BL * weight_BL).sum(), logits_BL

    def theirs(params, hidden_BTD):
      values = nnx.to_pure_dict(params)
      logits_BL = plain(hidden_BTD, features.lengths_B, values)
      return (logits_BL * weight_BL).sum(), logits_BL

    (d_ours, found), (d_theirs, expected) = (
      jax.jit(jax.grad(f, argnums=(0, 1), has_aux=True))(
        params, features.hidden_BTD
      )
      for f in (ours, theirs)
    )
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert_close(d_ours, d_theirs, 0.0001, 0.0001)


def test_only_attention_rows_belong_to_labels_and_no_array_is_of_label_vectors(
  documents,
):
  with on_mesh():
    head = AttentionMLPConfig(chunk=9, mlp=(2,)).build(
      HeadInputs(D, L), nnx.Rngs(0)
    )
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
    head = AttentionMLPConfig(chunk=2, mlp=(4,)).build(
      HeadInputs(D, 3, bias_L=biases), nnx.Rngs(0)
    )
  probability = 1 / (1 + np.exp(-np.asarray(head.biases[-1][...])))
  np.testing.assert_allclose(probability, priors.mean(), rtol=1e-5)
  assert not head.biases[0][...].any()
