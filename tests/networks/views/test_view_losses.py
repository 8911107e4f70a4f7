"""The loss of a model with views: on any mesh, with padding and shortlists."""

import dataclasses
import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import make_mesh, put_batch
from xjax.core.mesh_config import MeshConfig
from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.losses.bce import bce
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.batch import Shortlist, TokenBatch
from xjax.networks.encoders.encoder import NoEncoder
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import MeanConfig
from xjax.networks.text_model import build
from xjax.networks.views.hierarchy_views import HierarchyViews, NoViews
from xjax.train.neural_train import NeuralTrain
from xjax.train.optimizer import make_optimizer
from xjax.train.parameters import VIEW_NAMES, by_path, from_paths
from xjax.train.state import plan_state
from xjax.train.step import make_train_step

B, T, WORDS, L = 16, 6, 30, 9
TREE = Hierarchy.of(
  [Label(str(i), parents=(str(i // 3),)) for i in range(1, L)] + [Label('0')]
)
MODEL = NeuralModel(
  EmbeddingConfig(dim=8),
  NoEncoder(),
  MeanConfig(),
  OneVsAllConfig(chunk=4),
  views=HierarchyViews(
    heads=2, name_tokens=3, segment=5, threshold=0.2, weight=0.5
  ),
)


def model_of(config=MODEL):
  options = {'vocab_size': WORDS, 'n_labels': L, 'hierarchy': TREE}
  return lambda rngs: build(config, rngs=rngs, **options)


def drawn(real=B, shortlist=False):
  rng = np.random.default_rng(0)
  lengths = rng.integers(1, T + 1, B).astype(np.int32)
  tokens = rng.integers(2, WORDS, (B, T)).astype(np.int32)
  tokens[np.arange(T) >= lengths[:, None]] = 0
  positives = rng.integers(0, L, (B, 3)).astype(np.int32)
  positives[:, 1:] = np.where(positives[:, 1:] > 5, PAD, positives[:, 1:])
  mask = np.arange(B) < real
  positives[~mask] = PAD
  doc = np.where(mask, np.arange(B), PAD).astype(np.int32)
  batch = TokenBatch(tokens, lengths, positives, mask, doc)
  if shortlist:
    ids = np.tile(np.arange(L, dtype=np.int32), (B, 1))
    gold = (positives[:, :, None] == ids[:, None]).any(axis=1)
    batch = dataclasses.replace(batch, shortlist=Shortlist(ids, gold))
  return batch


def start(mesh):
  """A plan, and a state whose labels have names."""
  optimizer = make_optimizer(NeuralTrain())
  plan = plan_state(model_of(), optimizer, mesh)
  with jax.set_mesh(mesh):
    state = plan.init(jax.random.key(0))
    params = by_path(state.params)
    names = np.random.default_rng(3).integers(PAD, WORDS, (L, 3))
    params[VIEW_NAMES] = jax.device_put(
      jnp.asarray(names, jnp.int32), params[VIEW_NAMES].sharding
    )
    params = from_paths(state.params, params)
  return plan, optimizer, dataclasses.replace(state, params=params)


@functools.cache
def loss_and_grads(shape=(1, 1), shortlist=False):
  """The loss of 13 documents and 3 rows of padding, and its gradients."""
  batch = drawn(13, shortlist)
  mesh = make_mesh(MeshConfig(*shape), jax.devices()[: shape[0] * shape[1]])
  plan, _, state = start(mesh)
  trained, frozen = plan.split(state.params)

  @jax.jit
  def compute(trained, batch):
    def loss(trained):
      model = nnx.merge(plan.graphdef, trained, frozen)
      return model.loss(batch, bce, nnx.Rngs(dropout=7))

    return jax.value_and_grad(loss)(trained)

  with jax.set_mesh(mesh):
    total, grads = jax.block_until_ready(
      compute(trained, put_batch(batch, mesh))
    )
  return float(total), jax.tree.map(np.asarray, by_path(grads))


def assert_same(ours, theirs):
  np.testing.assert_allclose(ours[0], theirs[0], 1e-5)
  assert ours[1].keys() == theirs[1].keys()
  for path, grad in ours[1].items():
    np.testing.assert_allclose(grad, theirs[1][path], 1e-5, 1e-5, err_msg=path)


@pytest.mark.parametrize(
  'shape', [pytest.param((8, 1), marks=pytest.mark.thorough), (2, 4)]
)
def test_a_mesh_gives_the_loss_of_one_device(shape):
  assert_same(loss_and_grads(shape), loss_and_grads())


def test_a_shortlist_of_all_labels_gives_the_same_loss():
  assert_same(loss_and_grads(shortlist=True), loss_and_grads())


def test_a_step_is_traced_once_and_leaves_the_taxonomy_as_it_is():
  mesh = make_mesh(MeshConfig(), jax.devices()[:1])
  plan, optimizer, state = start(mesh)
  step = make_train_step(plan, optimizer, bce, mesh)
  before = jax.tree.map(np.array, by_path(state.params))
  with jax.set_mesh(mesh):
    for real in (B, 9, B):
      batch = put_batch(drawn(real), mesh)
      state, metrics = step(state, batch, jax.random.key(0))
      assert np.isfinite(metrics.loss)
  assert step._cache_size() == 1
  after = by_path(state.params)
  changed = {p for p, x in after.items() if (before[p] != np.array(x)).any()}
  names = 'pieces', 'nodes', 'paths', 'counted'
  assert after.keys() - changed == {f'views/labels/{name}' for name in names}


def test_predictions_read_no_views():
  mesh = make_mesh(MeshConfig(), jax.devices()[:1])
  with jax.set_mesh(mesh):
    plain = model_of(dataclasses.replace(MODEL, views=NoViews()))(nnx.Rngs(0))
    model = model_of()(nnx.Rngs(0))
    batch = put_batch(drawn(), mesh)
    features = [np.asarray(x.features(batch)) for x in (plain, model)]
  np.testing.assert_array_equal(*features)
  ours, theirs = (by_path(nnx.state(x, nnx.Param)) for x in (plain, model))
  assert all(np.array_equal(x, theirs[path]) for path, x in ours.items())
  views = {path for path in theirs if path.startswith('views/')}
  assert theirs.keys() - ours.keys() == views
