"""Tests programs of steps with millions of labels, without such devices.

Lowered programs have the head's collectives, which are written in shard_map;
those that partitioning adds are in programs compiled for 8 CPU devices.
"""

import dataclasses

import jax
from jax.sharding import AbstractMesh, AxisType
import numpy as np
import pytest

from tests.fixtures.collectives import bytes_by_kind, lowered_collectives
from xjax.configs.xc_networks import amazon_3m_like
from xjax.core.mesh import DATA, LABEL, make_mesh, padded_labels
from xjax.core.mesh_config import MeshConfig
from xjax.data.schema import LabelSpace
from xjax.models.neural.neural_plan import plan_neural
from xjax.networks.rows.storage import Storage
from xjax.plan.costs import compiled_collectives
from xjax.plan.programs import batch_of, on_device
from xjax.plan.sizes import BERT_BASE, BatchShape
from xjax.train.neural_train import Dtype
from xjax.train.optimizer import make_optimizer
from xjax.train.step import make_train_step

LABELS, DOCUMENTS = 2_812_281, 1_717_899
POSITIVES = 64  # places for gold labels
# BERT base has 12 layers, but these take longer to lower and show no more.
TWO_LAYERS = dataclasses.replace(BERT_BASE, layers=2)


@pytest.fixture(scope='module')
def n_devices():
  return 8


def step_of(config, labels, architecture, mesh):
  """Returns (plan, function that lowers the step for a platform)."""
  counts = np.full(labels, 36 * DOCUMENTS // LABELS, np.int32)
  space = LabelSpace((), counts, DOCUMENTS, labels)
  plan = plan_neural(config, space, 0, mesh, architecture)
  train = config.train
  step = make_train_step(plan, make_optimizer(train), train.loss.build(), mesh)
  batch = batch_of(config, shape_of(config), mesh)
  key = jax.eval_shape(lambda: jax.random.key(0))

  def lowered(platform):
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
      traced = step.trace(plan.abstract, batch, key)
      return traced.lower(lowering_platforms=(platform,))

  return plan, lowered


def shape_of(config):
  size = config.train.batch_size
  return BatchShape(size, size, config.data.tokens.max_tokens, 0, POSITIVES)


def sent_of(config, dim, shape):
  """Returns {kind: bytes that a device gives to the head's collectives}."""
  documents, (data, label) = config.train.batch_size, shape
  own = documents // data
  bfloat16 = config.train.compute_dtype is not Dtype.FLOAT32
  gold = POSITIVES * 4 + 1  # a byte says whether the document is real
  return {
    'all-gather': own * (dim * (2 if bfloat16 else 4) + gold),
    'reduce-scatter': documents * dim * 4,
    'all-reduce': own * dim * 4 * (label > 1) + 4,  # the loss
  }


# cuDNN's attention lowers on a GPU alone; dropout avoids cuDNN's attention.
@pytest.mark.parametrize(
  ('platform', 'backend', 'shape', 'storage', 'dropout'),
  [
    ('tpu', 'tpu', (16, 16), Storage.BFLOAT16, 0.0),
    ('cuda', 'gpu', (8, 1), Storage.FLOAT8, 0.1),
  ],
)
def test_lowers_for_many_devices(
  platform, backend, shape, storage, dropout, monkeypatch
):
  # Attention is chosen for the default backend, which is a CPU here.
  monkeypatch.setattr(jax, 'default_backend', lambda: backend)
  config = amazon_3m_like()
  config.model.head.storage = storage
  config.model.encoder.attention_dropout = dropout
  mesh = AbstractMesh(shape, (DATA, LABEL), axis_types=(AxisType.Auto,) * 2)
  plan, lowered = step_of(config, LABELS, TWO_LAYERS, mesh)
  found = lowered_collectives(lowered(platform))

  assert bytes_by_kind(found) == sent_of(config, TWO_LAYERS.dim, shape)
  assert not any(one.looped for one in found)
  # No operand has the size of all labels, of a shard or of a chunk.
  documents, dim = config.train.batch_size, TWO_LAYERS.dim
  sizes = {n for one in found for operand in one.shapes for n in operand}
  assert sizes <= {documents, documents // shape[0], dim, POSITIVES}
  rows = padded_labels(LABELS) // mesh.size
  float8 = storage is Storage.FLOAT8  # each row has an exponent
  each = dim * storage.bytes + 4 + float8
  assert on_device(plan.abstract.params['head']) == rows * each


@pytest.mark.parametrize('shape', [(2, 4), (8, 1)])
def test_compiled_for_eight_devices(shape, all_devices):
  config = small_config()
  mesh = make_mesh(MeshConfig(*shape))
  plan, lowered = step_of(config, 4000, small_bert(config), mesh)
  found = compiled_collectives(lowered('cpu').compile().as_text())

  trained, _ = plan.split(plan.abstract.params)
  encoder = on_device(trained)
  count = 4  # an int32, the number of documents
  sent = sent_of(config, small_bert(config).dim, shape)
  sent['all-reduce'] += encoder + count
  assert bytes_by_kind(found) == sent
  assert not any(one.looped for one in found)
  rows = plan.abstract.params['head']['kernel'].shape[0]
  known = {rows, rows // 8, 4000, config.model.head.chunk}
  sizes = {n for one in found for operand in one.shapes for n in operand}
  assert not known & sizes


def small_config():
  """Returns a float32 config, as CPUs would send 16-bit numbers as 32 bits."""
  config = amazon_3m_like()
  config.data.tokens = dataclasses.replace(
    config.data.tokens, max_tokens=8, buckets=(8,)
  )
  config.model.encoder.dropout = config.model.pooling.dropout = 0.0
  config.model.head.chunk = 256
  config.train.batch_size = 16
  config.train.compute_dtype = Dtype.FLOAT32
  return config


def small_bert(config):
  """Returns a BERT that uses all rows; gradients of others are not sent."""
  return dataclasses.replace(
    TWO_LAYERS,
    vocab_size=50,
    dim=24,
    layers=1,
    heads=2,
    inner=40,
    positions=config.data.tokens.max_tokens,
    token_types=1,
  )
