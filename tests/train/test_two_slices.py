"""Between slices, steps sum gradients, and one-vs-all heads send documents."""

import dataclasses
import functools

import jax
import pytest

from tests.fixtures.collectives import bytes_by_kind
from xjax.configs.chalkidis2019 import eurlex57k_bert, eurlex57k_bigru_lwan
from xjax.configs.xc_networks import amazon_3m_like
from xjax.core.mesh import abstract_mesh, make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.plan.chips import CHIPS
from xjax.plan.compiler import compiled, make_target
from xjax.plan.costs import compiled_collectives
from xjax.plan.programs import on_device, planned_state, train_step
from xjax.plan.sizes import BERT_BASE, BatchShape, RunSizes

WORDS, POSITIVES, DIM = 8000, 16, 128
BERT = dataclasses.replace(
  BERT_BASE, vocab_size=WORDS, dim=DIM, layers=2, heads=2, inner=256
)
# As many documents as tokens: compilers then confuse the two axes of an array
# most easily.
DOCUMENTS = TOKENS = 64
SHAPE = BatchShape(DOCUMENTS, DOCUMENTS, TOKENS, 0, POSITIVES)
SIZES = RunSizes(4271, 45_000, 0, WORDS, BERT, {SHAPE: 1})
SMALL = 64 * 1024  # bytes of scalars, biases and norms, padded for a TPU


@pytest.fixture(scope='module')
def n_devices():
  return 8


def bert():
  config, heads = eurlex57k_bert(), eurlex57k_bigru_lwan().model
  config.model = dataclasses.replace(
    config.model, pooling=heads.pooling, head=heads.head
  )
  return config


CONFIGS = {
  'bert': bert,
  'bigru': eurlex57k_bigru_lwan,
  'one_vs_all': eurlex57k_bert,
  'fused_rows': amazon_3m_like,
}


def config_of(name, mesh):
  config = CONFIGS[name]()
  config.train.batch_size, config.mesh = DOCUMENTS, mesh
  return config


def check(config, mesh, collectives):
  """Checks what crosses slices, by the bytes of the gradients of a device."""
  plan = planned_state(config, SIZES, mesh)
  trained, _ = plan.split(plan.abstract.params)
  summed, on_all = on_device(trained), config.model.head.on_all_devices
  if on_all:
    summed -= on_device({k: v for k, v in trained.items() if k == 'head'})
  sent = bytes_by_kind([one for one in collectives if one.nodes > 1])
  # Four devices of a slice may each send a part of the gradient, in float32.
  assert summed / 4.3 < sent.pop('all-reduce') < 1.3 * summed + SMALL, sent
  documents = sent.pop('all-gather', 0) + sent.pop('reduce-scatter', 0)
  assert not sent
  # Features with gold labels, and the features' gradients.
  most = DOCUMENTS * (4 * DIM + 4 * POSITIVES + 1) + DOCUMENTS * DIM * 4
  assert (documents > 0) == on_all and documents <= most


def test_between_fake_slices(all_devices):
  config = config_of('bert', MeshConfig(4, 2, slices=2))
  config.model.encoder.dropout = config.model.encoder.attention_dropout = 0.0
  step = train_step(config, SIZES, SHAPE, jax.devices()).lower().compile()
  slices = {place: place // 4 for place in range(8)}
  found = compiled_collectives(step.as_text(), slices)
  check(config, make_mesh(config.mesh), found)


@pytest.mark.chips
def test_between_slices_of_tpus():
  target = make_target(CHIPS['v5e'], 0, '4x4', 2)
  configs = {name: config_of(name, MeshConfig(8, 4)) for name in CONFIGS}
  steps = {
    name: functools.partial(train_step, config, SIZES, SHAPE)
    for name, config in configs.items()
  }
  found = compiled(target, steps)
  for name, config in configs.items():
    mesh = abstract_mesh(config.mesh, target.devices, target.slices)
    check(config, mesh, found[name].collectives)
