"""Attention of labels: gradients, extremes, and weights of lists."""

import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.heads import (
  KINDS,
  LENGTHS,
  REAL,
  B,
  D,
  K,
  L,
  T,
  hidden_states,
  label_attention,
  values_of,
)
from tests.fixtures.networks import assert_close, equations, on_mesh
from xjax.core.mesh import padded_labels
from xjax.networks.heads.attend import attend, attention_weights, token_mask
from xjax.networks.heads.attention_mlp import AttentionMLPConfig
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.head import HeadInputs, TokenFeatures
from xjax.networks.topk import head_topk

C = 3
KIND = KINDS['label attention']
REAL_BT = np.arange(T) < LENGTHS[:, None]


def features_of(dtype='float32'):
  hidden_BTD = jnp.asarray(hidden_states(), dtype)
  return TokenFeatures(hidden_BTD, jnp.asarray(LENGTHS))


def rows_of(head):
  return nnx.to_pure_dict(split_head(head).rows)


@pytest.fixture(scope='module')
def head():
  with on_mesh():
    return label_attention(64)


def draw(scale=1.0):
  """Hidden states, 0 at padding, and two rows for each label."""
  rows = np.random.default_rng(0).normal(size=(2, C, D)) * scale
  hidden_BTD = hidden_states() * REAL_BT[..., None]
  return jnp.asarray(hidden_BTD), *jnp.asarray(rows, jnp.float32)


def plain(hidden_BTD, attention_CD, output_CD=None):
  """The same with [B, C, D] vectors."""
  output_CD = attention_CD if output_CD is None else output_CD
  score_BTC = jnp.einsum('BTD,CD->BTC', hidden_BTD, attention_CD)
  score_BTC = jnp.where(REAL_BT[..., None], score_BTC, -1e30)
  alpha_BTC = jax.nn.softmax(score_BTC, axis=1)
  vector_BCD = jnp.einsum('BTC,BTD->BCD', alpha_BTC, hidden_BTD)
  return jnp.einsum('BCD,CD->BC', vector_BCD, output_CD)


def ours(hidden_BTD, *rows):
  return attend(hidden_BTD, token_mask(features_of()), *rows)


@pytest.mark.parametrize(('count', 'scale'), [(1, 0.3), (2, 3.0)])
def test_values_and_gradients_are_those_of_the_definition(count, scale):
  """Labels have one row for both purposes, or two."""
  arrays = draw(scale)[: 1 + count]
  weight_BC = np.random.default_rng(1).normal(size=(B, C))

  def run(function):
    def total(*arrays):
      return (function(*arrays) * weight_BC).sum()

    gradients = jax.grad(total, argnums=range(1 + count))
    return jax.jit(lambda *x: (function(*x), gradients(*x)))(*arrays)

  results, wanted = run(ours), run(plain)
  assert_close(results, wanted, 1e-5, 1e-5)
  assert all(np.abs(x).max() > 0.1 for x in jax.tree.leaves(wanted))


def test_rounded_inputs_have_rounded_gradients_of_their_own():
  hidden_BTD, rows_CD, _ = (x.astype(jnp.bfloat16) for x in draw())
  attended_BC, pull = jax.vjp(ours, hidden_BTD, rows_CD)
  assert attended_BC.dtype == jnp.float32
  gradients = pull(jnp.ones_like(attended_BC))
  wide = [x.astype(jnp.float32) for x in (hidden_BTD, rows_CD)]
  expected_BC, pull = jax.vjp(ours, *wide)
  np.testing.assert_allclose(attended_BC, expected_BC, atol=1e-2)
  for gradient, wanted in zip(gradients, pull(jnp.ones_like(expected_BC))):
    assert gradient.dtype == jnp.bfloat16
    np.testing.assert_allclose(gradient.astype(jnp.float32), wanted, atol=0.1)


def test_large_scores_do_not_overflow(head):
  rows = {name: row[:3] for name, row in rows_of(head).items()}
  rows['attention'] *= 1e4
  params = values_of(head)
  params['attention'] *= 1e4
  logits_BC = head.logits(features_of(), rows)
  hidden_BTD = hidden_states().astype(np.float64)
  for logits_C, hidden_TD, n in zip(logits_BC, hidden_BTD, LENGTHS):
    expected_C = KIND.by_equations(params, hidden_TD[:n])[:3]
    np.testing.assert_allclose(logits_C, expected_C, atol=1e-4)


def test_weights_of_lists_make_their_scores(head):
  inputs = features_of('bfloat16')
  with on_mesh():
    graphdef, params = nnx.split(head)

    @jax.jit
    def run(params, inputs):
      head = nnx.merge(graphdef, params)
      ids_GBK, scores_GBK = head_topk(head, inputs, K)
      return ids_GBK, scores_GBK, attention_weights(head, inputs, ids_GBK[0])

    ids_GBK, scores_GBK, alpha_BKT = run(params, inputs)
  assert alpha_BKT.dtype == np.float32
  real_BK = REAL[:, None] * np.ones(K)
  np.testing.assert_allclose(alpha_BKT.sum(axis=2), real_BK, atol=1e-6)
  hidden_BTD, output_LD = (
    np.asarray(x.astype('bfloat16'), np.float32)
    for x in (inputs.hidden_BTD, head.output[...])
  )
  value_BKT = np.einsum('BTD,BKD->BKT', hidden_BTD, output_LD[ids_GBK[0]])
  logits_BK = (alpha_BKT * value_BKT).sum(axis=2) + head.bias[...][ids_GBK[0]]
  np.testing.assert_allclose(logits_BK, scores_GBK[0], atol=1e-5)
  assert alpha_BKT.max() > 0.6 and np.unique(ids_GBK).size > K


def test_no_array_of_weights_has_all_labels_and_documents(head):
  ids_BK = jnp.zeros((B, K), jnp.int32)
  with on_mesh():
    run = functools.partial(attention_weights, head)
    program = jax.make_jaxpr(run)(features_of(), ids_BK)
  sizes = [v.aval.size for e in equations(program.jaxpr) for v in e.outvars]
  assert max(sizes) == ids_BK.size * D < B * L


def attention_mlp(labels, chunk, mlp, **inputs):
  with on_mesh():
    return AttentionMLPConfig(chunk=chunk, mlp=mlp).build(
      HeadInputs(D, labels, **inputs), nnx.Rngs(0)
    )


def test_only_attention_rows_of_the_mlp_belong_to_labels():
  """And no array is of label vectors."""
  head = attention_mlp(L, 9, (2,))
  rows = rows_of(head)
  assert rows.keys() == {'attention'}
  assert rows['attention'].shape == (padded_labels(L), D)
  limit = (6 / (L + D)) ** 0.5
  assert 0.9 * limit < np.abs(rows['attention']).max() <= limit
  prepared = head.prepare(features_of())
  program = jax.make_jaxpr(lambda f: head.logits(f, rows))(prepared)
  shapes = {v.aval.shape for eqn in program.eqns for v in eqn.outvars}
  assert (8, padded_labels(L), 2) in shapes
  assert (8, padded_labels(L), D) not in shapes


def test_the_last_bias_starts_at_the_logit_of_the_mean_prior():
  priors = np.array([0.5, 0.1, 0.003])
  biases = np.log(priors / (1 - priors))
  head = attention_mlp(3, 2, (4,), bias_L=biases)
  probability = 1 / (1 + np.exp(-np.asarray(head.biases[-1][...])))
  np.testing.assert_allclose(probability, priors.mean(), rtol=1e-5)
  assert not head.biases[0][...].any()
