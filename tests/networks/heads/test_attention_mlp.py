"""The head of AttentionXML: its gradients, its rows and its first biases."""

from flax import nnx
import jax
import numpy as np

from tests.fixtures.attending_heads import D, L
from tests.fixtures.networks import on_mesh
from xjax.core.mesh import padded_labels
from xjax.networks.heads.attention_mlp import AttentionMLPConfig
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.head import HeadInputs


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
