"""Label attention: extremes, rounded products, and weights of lists."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.attending_heads import (
  KINDS,
  D,
  L,
  label_attention,
  values_of,
)
from tests.fixtures.networks import equations, on_mesh
from xjax.core.types import PAD
from xjax.networks.heads.attend import attention_weights
from xjax.networks.heads.chunks import split_head
from xjax.networks.topk import head_topk

K, KIND = 5, KINDS['label attention']


@pytest.fixture
def head():
  with on_mesh():
    return label_attention(64)


@pytest.fixture
def features(documents):
  return documents()[0]


def rows_of(head):
  return nnx.to_pure_dict(split_head(head).rows)


def test_large_scores_do_not_overflow(head, features):
  head.attention[...] *= 1e4
  params = values_of(head)
  logits_BL = head.logits(features, rows_of(head))[:, :3]
  hidden_BTD = np.asarray(features.hidden_BTD, np.float64)
  for logits_L, hidden_TD, n in zip(logits_BL, hidden_BTD, features.lengths_B):
    expected_L = KIND.by_equations(params, hidden_TD[:n])[:3]
    np.testing.assert_allclose(logits_L, expected_L, atol=1e-4)


def test_bfloat16_products_keep_a_float32_softmax(head, features):
  rows = rows_of(head)
  half = features.replace(hidden_BTD=features.hidden_BTD.astype(jnp.bfloat16))
  logits, pull = jax.vjp(lambda f, r: head.logits(f, r), half, rows)
  assert logits.dtype == jnp.float32
  np.testing.assert_allclose(logits, head.logits(features, rows), atol=0.1)
  d_features, d_rows = pull(jnp.ones_like(logits))
  assert d_features.hidden_BTD.dtype == jnp.bfloat16
  assert {x.dtype for x in d_rows.values()} == {jnp.dtype('float32')}


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_weights_of_lists_make_their_scores(head, features, dtype):
  inputs = features.replace(hidden_BTD=features.hidden_BTD.astype(dtype))
  with on_mesh():
    ids_GBK, scores_GBK = head_topk(head, inputs, K)
    alpha_BKT = attention_weights(head, inputs, ids_GBK[0])
  assert alpha_BKT.dtype == np.float32
  real_B1 = (features.lengths_B > 0)[:, None] * np.ones(K)
  np.testing.assert_allclose(alpha_BKT.sum(axis=2), real_B1, atol=1e-6)
  hidden_BTD, output_LD = (
    np.asarray(x.astype(dtype), np.float32)
    for x in (features.hidden_BTD, head.output[...])
  )
  value_BKT = np.einsum('BTD,BKD->BKT', hidden_BTD, output_LD[ids_GBK[0]])
  logits_BK = (alpha_BKT * value_BKT).sum(axis=2) + head.bias[...][ids_GBK[0]]
  np.testing.assert_allclose(logits_BK, scores_GBK[0], atol=1e-5)
  assert alpha_BKT.max() > 0.6 and np.unique(ids_GBK).size > K


def test_padding_of_lists_and_of_batches_is_zero(trial_of, features):
  trial = trial_of(
    KINDS['label attention'].make, KINDS['label attention'].learnt
  )
  ids_BK = np.full((len(features.lengths_B), K), PAD)
  ids_BK[:, 0] = L - 1
  alpha_BKT = trial.attention(ids_BK)
  real_B = features.lengths_B > 0
  np.testing.assert_allclose(alpha_BKT[:, 0].sum(axis=1), real_B, atol=1e-6)
  assert not alpha_BKT[:, 1:].any() and np.isfinite(alpha_BKT).all()


def test_no_array_of_weights_has_all_labels_and_documents(head, features):
  ids_BK = jnp.zeros((len(features.lengths_B), K), jnp.int32)
  with on_mesh():
    program = jax.make_jaxpr(lambda f, i: attention_weights(head, f, i))(
      features, ids_BK
    )
  sizes = [v.aval.size for e in equations(program.jaxpr) for v in e.outvars]
  assert max(sizes) == ids_BK.size * D < len(ids_BK) * L
