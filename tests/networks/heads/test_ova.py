from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import DATA, LABEL, make_mesh, padded_labels
from xjax.core.mesh_config import MeshConfig
from xjax.losses.bce import bce
from xjax.networks.heads.chunks import ALL_DEVICES, split_head
from xjax.networks.heads.ova import OneVsAll
from xjax.networks.heads.streaming import head_loss
from xjax.networks.topk import head_topk

B, D, L = 8, 6, 150


def mesh_of(data, label):
  devices = np.array(jax.devices()[: data * label]).reshape(data, label)
  return jax.sharding.Mesh(devices, (DATA, LABEL))


def random_head(mesh, chunk=64):
  with jax.set_mesh(mesh):
    return OneVsAll(
      L, D, chunk=chunk, bias=np.linspace(-2, 2, L), rngs=nnx.Rngs(0)
    )


def draw():
  rng = np.random.default_rng(0)
  document_BD = rng.normal(size=(B, D)).astype(np.float32)
  return document_BD, rng.integers(0, L, (B, 4)).astype(np.int32)


def dense(document_BD, kernel_LD, bias_L):
  return document_BD @ kernel_LD.T + bias_L


def test_definition():
  mesh = mesh_of(1, 1)
  head = random_head(mesh)
  document_BD, _ = draw()
  rows = nnx.to_pure_dict(split_head(head).rows)
  logits_BL = head.logits(jnp.asarray(document_BD), rows)[:, :L]
  expected_BL = dense(
    document_BD,
    np.asarray(rows['kernel'], np.float64)[:L],
    np.asarray(rows['bias'], np.float64)[:L],
  )
  np.testing.assert_allclose(logits_BL, expected_BL, atol=1e-5)
  with jax.set_mesh(mesh):
    ids_BK, scores_BK = (x[0] for x in head_topk(head, document_BD, 7))
  order_BK = np.argsort(-expected_BL, axis=1, kind='stable')[:, :7]
  np.testing.assert_array_equal(ids_BK, order_BK)
  np.testing.assert_allclose(
    scores_BK, np.take_along_axis(expected_BL, order_BK, axis=1), atol=1e-5
  )


def gradients(mesh, chunk):
  document_BD, positives_BP = draw()
  graphdef, params = nnx.split(random_head(mesh, chunk))

  def loss(params, document_BD):
    head = nnx.merge(graphdef, params)
    mask_B = jnp.arange(B) < B - 1
    return head_loss(head, document_BD, jnp.asarray(positives_BP), mask_B, bce)

  with jax.set_mesh(mesh):
    run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
    return jax.block_until_ready(run(params, document_BD))


def test_loss_and_gradient_are_those_of_the_dense_layer():
  loss, (d_params, d_document_BD) = gradients(mesh_of(1, 1), 64)
  document_BD, positives_BP = draw()
  rows = nnx.to_pure_dict(split_head(random_head(mesh_of(1, 1))).rows)
  target_BL = np.zeros((B, L))
  target_BL[np.arange(B)[:, None], positives_BP] = 1

  def plain(rows, document_BD):
    z_BL = dense(document_BD, rows['kernel'][:L], rows['bias'][:L])
    cost_BL = jnp.logaddexp(0, z_BL) - target_BL * z_BL
    return cost_BL[: B - 1].sum()

  expected, (d_rows, d_expected_BD) = jax.value_and_grad(plain, argnums=(0, 1))(
    rows, document_BD
  )
  np.testing.assert_allclose(loss, expected, rtol=1e-6)
  np.testing.assert_allclose(d_document_BD, d_expected_BD, atol=1e-5)
  for name, d in d_rows.items():
    np.testing.assert_allclose(d_params[name][...], d, atol=1e-5)


@pytest.mark.parametrize(
  ('shape', 'chunk'), [((1, 1), 7), ((8, 1), 64), ((2, 4), 7), ((1, 8), 64)]
)
def test_meshes_and_chunks_agree(shape, chunk):
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5),
    gradients(mesh_of(*shape), chunk),
    gradients(mesh_of(1, 1), 64),
  )


def test_bottleneck_is_a_product_before_the_rows():
  wide_BE = np.random.default_rng(1).normal(size=(B, 11)).astype(np.float32)
  _, positives_BP = draw()
  target_BL = np.zeros((B, L), bool)
  target_BL[np.arange(B)[:, None], positives_BP] = True
  with jax.set_mesh(mesh_of(2, 4)):
    head = OneVsAll(L, 11, chunk=64, bottleneck=D, rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(head)
    assert params['kernel'].shape == (padded_labels(L), D)

    def loss(params, wide_BE):
      head, mask_B = nnx.merge(graphdef, params), jnp.ones(B, bool)
      gold_BP = jnp.asarray(positives_BP)
      return head_loss(head, head.prepare(wide_BE), gold_BP, mask_B, bce)

    value_and_gradients = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(
      params, wide_BE
    )

  def plain(params, wide_BE):
    document_BD = wide_BE @ params['bottleneck'][...]
    z_BL = dense(document_BD, params['kernel'][:L], params['bias'][:L])
    return (jnp.logaddexp(0, z_BL) - target_BL * z_BL).sum()

  params = jax.tree.map(np.asarray, params)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5),
    value_and_gradients,
    jax.value_and_grad(plain, argnums=(0, 1))(params, wide_BE),
  )


def test_rows_are_padded_and_biases_given():
  head = random_head(make_mesh(MeshConfig()))
  assert head.kernel.shape == (padded_labels(L), D)
  np.testing.assert_allclose(head.bias[:L], np.linspace(-2, 2, L), rtol=1e-6)
  np.testing.assert_array_equal(head.bias[L:], 0)
  specs = nnx.to_pure_dict(nnx.get_partition_spec(nnx.state(head)))
  assert specs == {
    'kernel': jax.P(ALL_DEVICES, None),
    'bias': jax.P(ALL_DEVICES),
  }
  length = np.linalg.norm(head.kernel[:L], axis=1).mean()
  assert 0.7 < length < 1.3


@pytest.mark.parametrize(('dtype', 'exact'), [('float32', 3), ('bfloat16', 0)])
def test_float32_products_are_not_rounded(dtype, exact):
  head = random_head(mesh_of(1, 1))
  rows = nnx.to_pure_dict(split_head(head).rows)
  document_BD = jnp.asarray(draw()[0], dtype)
  logits_BL = head.logits(document_BD, rows)
  assert logits_BL.dtype == jnp.float32

  def loss(rows, document_BD):
    return head.logits(document_BD, rows).sum()

  run = jax.grad(loss, argnums=(0, 1))
  text = str(jax.make_jaxpr(run)(rows, document_BD))
  assert text.count('dot_general[') == 3
  assert text.count('Precision.HIGHEST, Precision.HIGHEST') == exact
