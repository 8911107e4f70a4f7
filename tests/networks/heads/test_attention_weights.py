from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import DATA, LABEL
from xjax.core.types import PAD
from xjax.networks.heads.attention_weights import attention_weights
from xjax.networks.heads.head import TokenFeatures
from xjax.networks.heads.label_attention import LabelAttention
from xjax.networks.topk import head_topk

B, T, D, L, K = 8, 7, 6, 300, 5
LENGTHS = np.array([7, 1, 3, 7, 5, 2, 6, 0], np.int32)


def features(dtype=np.float32):
  hidden_BTD = np.random.default_rng(0).normal(size=(B, T, D))
  real_BT = np.arange(T) < LENGTHS[:, None]
  hidden_BTD = jnp.asarray(hidden_BTD * real_BT[..., None], dtype)
  return TokenFeatures(hidden_BTD, jnp.asarray(LENGTHS))


def run(mesh, inputs=None, ids_BK=None):
  """Top-k lists, their weights, and label rows, of a head on a mesh."""
  devices = np.array(jax.devices()[: mesh[0] * mesh[1]]).reshape(mesh)
  with jax.set_mesh(jax.sharding.Mesh(devices, (DATA, LABEL))):
    head = LabelAttention(L, D, chunk=64, rngs=nnx.Rngs(1))
    head.attention[...] *= 3
    graphdef, params = nnx.split(head)

    @jax.jit
    def both(params, features):
      head = nnx.merge(graphdef, params)
      ids_GBK, scores_GBK = head_topk(head, features, K)
      ids = ids_GBK[0] if ids_BK is None else jnp.asarray(ids_BK)
      return ids, scores_GBK[0], attention_weights(head, features, ids)

    results = jax.block_until_ready(both(params, inputs or features()))
    rows = {name: np.asarray(x) for name, x in nnx.to_pure_dict(params).items()}
  return *map(np.asarray, results), rows


@pytest.mark.parametrize('mesh', [(1, 1), (8, 1), (2, 4), (1, 8)])
def test_the_weights_are_those_of_the_scores(mesh):
  ids, scores, alpha, rows = run(mesh)
  real = np.arange(T) < LENGTHS[:, None]
  np.testing.assert_allclose(
    alpha.sum(axis=2), (LENGTHS > 0)[:, None] * np.ones(K), atol=1e-6
  )
  assert not alpha[np.broadcast_to(~real[:, None], alpha.shape)].any()
  value_BKT = np.einsum(
    'BTD,BKD->BKT', np.asarray(features().hidden_BTD), rows['output'][ids]
  )
  logits = (alpha * value_BKT).sum(axis=2) + rows['bias'][ids]
  np.testing.assert_allclose(logits, scores, atol=1e-5)
  assert alpha.max() > 0.6 and np.unique(ids).size > K


def test_by_definition_for_any_labels_in_any_order():
  ids = np.random.default_rng(2).integers(0, L, (B, K)).astype(np.int32)
  _, _, alpha, rows = run((2, 4), ids_BK=ids)
  hidden = np.asarray(features().hidden_BTD, np.float64)
  for b, n in enumerate(LENGTHS):
    for k, label in enumerate(ids[b]):
      score = np.exp(hidden[b, :n] @ rows['attention'][label].astype(float))
      np.testing.assert_allclose(
        alpha[b, k, :n], score / score.sum(), atol=1e-6
      )


def test_padding_of_lists_and_of_batches_is_zero():
  ids = np.full((B, K), PAD, np.int32)
  ids[:, 0] = L - 1
  _, _, alpha, _ = run((1, 1), ids_BK=ids)
  np.testing.assert_allclose(alpha[:, 0].sum(axis=1), LENGTHS > 0, atol=1e-6)
  assert not alpha[:, 1:].any() and np.isfinite(alpha).all()


def test_rounded_products_have_float32_weights():
  inputs = features(jnp.bfloat16)
  ids, scores, alpha, rows = run((1, 1), inputs)
  assert alpha.dtype == np.float32
  np.testing.assert_allclose(alpha[0].sum(axis=1), 1, atol=1e-6)
  output = rows['output'].astype(jnp.bfloat16).astype(np.float32)
  hidden = np.asarray(inputs.hidden_BTD, np.float32)
  value_BKT = np.einsum('BTD,BKD->BKT', hidden, output[ids])
  logits = (alpha * value_BKT).sum(axis=2) + rows['bias'][ids]
  np.testing.assert_allclose(logits, scores, atol=1e-5)


def test_no_array_has_all_labels_and_documents():
  with jax.set_mesh(
    jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), (DATA, LABEL))
  ):
    head = LabelAttention(L, D, chunk=64, rngs=nnx.Rngs(1))
    ids = jnp.zeros((B, K), jnp.int32)
    program = jax.make_jaxpr(lambda f, i: attention_weights(head, f, i))(
      features(), ids
    )
  sizes = [v.aval.size for eqn in program.eqns for v in eqn.outvars]
  assert max(sizes) == B * K * max(T, D) < B * L
