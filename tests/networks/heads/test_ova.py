import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import assert_close, on_mesh, products
from xjax.core.mesh import make_mesh, padded_labels
from xjax.core.mesh_config import MeshConfig
from xjax.losses.bce import bce
from xjax.networks.heads.chunks import ALL_DEVICES, split_head
from xjax.networks.heads.head import HeadInputs
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.heads.streaming import head_loss

B, D, L = 8, 6, 150


def random_head(chunk=64, dim=D, **fields):
  return OneVsAllConfig(chunk=chunk, **fields).build(
    HeadInputs(dim, L, bias_L=np.linspace(-2, 2, L)), nnx.Rngs(0)
  )


def draw(dim=D):
  rng = np.random.default_rng(0)
  document_BD = rng.normal(size=(B, dim)).astype(np.float32)
  return document_BD, rng.integers(0, L, (B, 4)).astype(np.int32)


def dense(document_BD, kernel_LD, bias_L):
  return document_BD @ kernel_LD.T + bias_L


@pytest.mark.parametrize(
  ('bottleneck', 'shape', 'chunk'),
  [(0, (1, 1), 7), (0, (8, 1), 64), (0, (2, 4), 7), (0, (1, 8), 64)]
  + [(D, (2, 4), 64)],
)
def test_loss_and_gradient_are_those_of_the_dense_layer(
  bottleneck, shape, chunk
):
  """A bottleneck is a product before the rows."""
  document_BD, positives_BP = draw(11 if bottleneck else D)
  mask_B = np.arange(B) < B - 1
  target_BL = (positives_BP[:, :, None] == np.arange(L)).any(axis=1)
  with on_mesh(*shape):
    head = random_head(chunk, document_BD.shape[1], bottleneck=bottleneck)
    graphdef, params = nnx.split(head)
    assert params['kernel'].shape == (padded_labels(L), D)

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1))
    def streamed(params, document_BD):
      head, gold = nnx.merge(graphdef, params), jnp.asarray(positives_BP)
      inputs = head.prepare(document_BD)
      return head_loss(head, inputs, gold, jnp.asarray(mask_B), bce)

    found = jax.block_until_ready(streamed(params, document_BD))

  def plain(params, document_BD):
    if bottleneck:
      document_BD = document_BD @ params['bottleneck'][...]
    z_BL = dense(document_BD, params['kernel'][:L], params['bias'][:L])
    cost_BL = jnp.logaddexp(0, z_BL) - target_BL * z_BL
    return cost_BL[mask_B].sum()

  given = jax.tree.map(np.asarray, params), document_BD
  expected = jax.value_and_grad(plain, argnums=(0, 1))(*given)
  np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
  assert_close(found[1], expected[1], atol=1e-5)


def test_rows_are_padded_and_biases_given():
  with jax.set_mesh(make_mesh(MeshConfig())):
    head = random_head()
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
  with on_mesh():
    head = random_head()
  rows = nnx.to_pure_dict(split_head(head).rows)
  document_BD = jnp.asarray(draw()[0], dtype)
  logits_BL = head.logits(document_BD, rows)
  assert logits_BL.dtype == jnp.float32

  def loss(rows, document_BD):
    return head.logits(document_BD, rows).sum()

  run = jax.grad(loss, argnums=(0, 1))
  assert products(run, rows, document_BD) == (3, exact)
