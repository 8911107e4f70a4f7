from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import DATA, LABEL
from xjax.heads.added_labels import add_labels
from xjax.heads.contract import TokenFeatures
from xjax.heads.topk import head_topk
from xjax.heads.unified import Unified
from xjax.heads.zero_shot import ZeroShot

B, T, D, E, OLD, NEW = 8, 4, 6, 5, 125, 7
EMBEDDINGS = np.random.default_rng(0).normal(size=(OLD + NEW, E))
EMBEDDINGS = EMBEDDINGS.astype(np.float32)


def head_of(kind, n_labels):
  """A head whose labels from OLD on were not seen in training."""
  seen = np.arange(n_labels) < OLD - 3
  more = {}
  if kind is Unified:
    more = {'hidden': np.zeros(n_labels, bool), 'row_dropout': 0.0}
  head = kind(n_labels, D, E, chunk=32, seen=seen, rngs=nnx.Rngs(0), **more)
  rng = np.random.default_rng(1)
  for name in ('attention', 'output', 'bias'):
    if kind is Unified:
      row = vars(head)[name]
      own = rng.normal(size=(256, D)[: row.ndim]).astype(np.float32)
      own *= (np.arange(256) < OLD - 3).reshape(-1, *[1] * (row.ndim - 1))
      row[...] = jnp.asarray(own[: len(row)])
  if kind is Unified:
    head.unseen_scale[...] = 0.5
  head.descriptors[...] = (
    jnp.zeros_like(head.descriptors[...])
    .at[:n_labels]
    .set(EMBEDDINGS[:n_labels])
  )
  return head


@pytest.mark.parametrize('mesh', [(1, 1), (2, 4)])
@pytest.mark.parametrize('kind', [ZeroShot, Unified])
def test_as_if_they_had_been_there_unseen(kind, mesh):
  rng = np.random.default_rng(2)
  features = TokenFeatures(
    jnp.asarray(rng.normal(size=(B, T, D)), jnp.float32),
    jnp.full(B, T, jnp.int32),
  )
  devices = np.array(jax.devices()[: mesh[0] * mesh[1]]).reshape(mesh)
  with jax.set_mesh(jax.sharding.Mesh(devices, (DATA, LABEL))):
    few, all_ = head_of(kind, OLD), head_of(kind, OLD + NEW)
    before = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(few)))
    grown = add_labels(few, jnp.asarray(EMBEDDINGS[OLD:]))
    lists = [
      jax.tree.map(np.asarray, best(head, features)) for head in (all_, grown)
    ]
    assert grown.descriptors[...].sharding.spec[0] == LABEL
  assert (few.n_labels, grown.n_labels) == (OLD, OLD + NEW)
  assert len(few.descriptors) == 128 and len(grown.descriptors) == 256
  jax.tree.map(
    np.testing.assert_array_equal,
    nnx.to_pure_dict(nnx.state(few)),
    before,
  )
  np.testing.assert_array_equal(lists[1][0], lists[0][0])
  np.testing.assert_allclose(lists[1][1], lists[0][1], atol=1e-6)
  assert np.unique(lists[1][0][0, 0]).size == OLD + NEW


def best(head, features):
  graphdef, params = nnx.split(head)

  @jax.jit
  def run(params, features):
    head = nnx.merge(graphdef, params)
    return head_topk(head, head.prepare(features), OLD + NEW)

  return jax.block_until_ready(run(params, features))
