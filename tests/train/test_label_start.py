"""Tests that no compiled program contains the initial biases of labels."""

import dataclasses

from flax import nnx
import jax
import numpy as np
import pytest

from xjax.core.mesh import make_mesh, padded_labels
from xjax.core.mesh_config import MeshConfig
from xjax.core.types import PAD
from xjax.data.schema import LabelSpace
from xjax.models.contract import Config
from xjax.models.neural import neural_plan
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.encoder import NoEncoder
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.attention_mlp import AttentionMLPConfig
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import MeanConfig, NoPooling
from xjax.networks.rows.kahan import LEFT_OUT, PLACE, kahan_slots
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedSGD
from xjax.networks.text_model import build, smoothed_priors
from xjax.train.optimizer import FREQUENT
from xjax.train.optimizer_config import EMAConfig

WORDS, N_TRAIN = 9, 4000
MLP = AttentionMLPConfig(chunk=512, mlp=(4,))
HEADS = {
  'attention': (NoPooling(), LabelAttentionConfig(chunk=512), {}),
  'one_vs_all': (
    MeanConfig(),
    OneVsAllConfig(chunk=512, storage=Storage.COMPENSATED),
    {'rows': FusedSGD()},
  ),
}


@pytest.fixture(scope='module')
def n_devices():
  return 8


def space_of(labels):
  counts = np.arange(labels, dtype=np.int32) % (2 * FREQUENT)
  return LabelSpace((), counts, N_TRAIN, labels)


def config_of(head, **train):
  pooling, head, fields = (HEADS | {'mlp': (NoPooling(), MLP, {})})[head]
  config = Config()
  embedding = EmbeddingConfig(dim=4)
  return dataclasses.replace(
    config,
    model=NeuralModel(embedding, NoEncoder(), pooling, head),
    train=dataclasses.replace(config.train, **fields, **train),
  )


def planned(head, labels, **train):
  mesh = make_mesh(MeshConfig(2, 4))
  config = config_of(head, **train)
  return mesh, neural_plan.plan_neural(config, space_of(labels), WORDS, mesh)


@pytest.mark.parametrize('head', HEADS)
def test_rows_begin_as_the_model_alone_has_them(head):
  labels, config = 1700, config_of(head)
  mesh, plan = planned(head, labels)
  key, space = jax.random.key(3), space_of(labels)
  with jax.set_mesh(mesh):
    state = plan.init(key)
    model = build(
      config.model,
      vocab_size=WORDS,
      n_labels=labels,
      label_priors=smoothed_priors(space.train_counts, N_TRAIN),
      rngs=nnx.Rngs(key),
    )
  assert jax.tree.map(lambda x: x.sharding, state) == plan.shardings
  bias = np.asarray(state.params['head']['bias'])
  np.testing.assert_array_equal(bias, model.head.bias)
  assert len(set(bias[: 2 * FREQUENT])) == 2 * FREQUENT
  if head == 'one_vs_all':
    slots = kahan_slots(space.train_counts >= FREQUENT, 4)
    for name in (PLACE, LEFT_OUT):
      np.testing.assert_array_equal(state.row_slots[name], slots[name])
    assert (np.asarray(state.row_slots[PLACE]) != PAD).sum() > labels // 3


@pytest.mark.parametrize('head', [*HEADS, 'mlp'])
def test_programs_do_not_grow_with_labels(head, monkeypatch):
  """A head without biases of labels begins at the mean prior."""
  monkeypatch.setattr(
    neural_plan, 'with_label_start', lambda plan, biases: plan
  )
  texts = []
  for labels in (1, 1500):
    assert padded_labels(labels) == padded_labels(1)
    mesh, plan = planned(head, labels)
    with jax.set_mesh(mesh):
      texts.append(plan.init.lower(jax.random.key(0)).as_text())
      if head == 'mlp':
        state = plan.init(jax.random.key(0))
        bias = np.asarray(state.params['head']['biases'][1][...])
        counts = space_of(labels).train_counts
        mean = smoothed_priors(counts, N_TRAIN).mean()
        np.testing.assert_allclose(1 / (1 + np.exp(-bias)), mean, rtol=1e-5)
  few, many = map(len, texts)
  # One label has as many places for left-out parts as 1500 labels.
  assert abs(many - few) < 100 and many < 100_000


def test_means_begin_as_the_rows_do():
  mesh, plan = planned('attention', 9, average=EMAConfig())
  with jax.set_mesh(mesh):
    state = plan.init(jax.random.key(0))
  bias = state.params['head']['bias']
  assert np.asarray(bias).any()
  np.testing.assert_array_equal(state.averages['head']['bias'], bias)
