"""Training steps on batches with shortlists."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.fixtures.networks import thorough
from xjax.core.mesh import make_mesh, put_batch
from xjax.core.mesh_config import MeshConfig
from xjax.core.types import PAD
from xjax.losses.bce import bce
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.batch import Shortlist, TokenBatch
from xjax.networks.encoders.encoder import NoEncoder
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import MeanConfig, NoPooling
from xjax.networks.rows.update import FusedAdam
from xjax.networks.text_model import build
from xjax.train.neural_train import NeuralTrain
from xjax.train.optimizer import label_row_optimizer, make_optimizer
from xjax.train.parameters import by_path
from xjax.train.state import plan_state
from xjax.train.step import make_train_step

WORDS, LABELS, B, T = 11, 20, 16, 6
EMBEDDING = EmbeddingConfig(dim=4, dropout=0.0, word_dropout=0.0)
ATTENTION = NeuralModel(
  EMBEDDING, NoEncoder(), NoPooling(), LabelAttentionConfig(chunk=4)
)
DENSE = NeuralModel(
  EMBEDDING, NoEncoder(), MeanConfig(), OneVsAllConfig(chunk=4)
)


@pytest.fixture(scope='module')
def n_devices():
  return 8


def batch(real, size):
  """Returns documents with one gold label each, and it is on their lists."""
  rng = np.random.default_rng(7)
  lengths = rng.integers(1, T + 1, B).astype(np.int32)
  tokens = rng.integers(2, WORDS, (B, T)).astype(np.int32)
  tokens[np.arange(T) >= lengths[:, None]] = 0
  mask = np.arange(B) < real
  gold = np.where(mask, rng.integers(0, LABELS, B), PAD)[:, None]
  lists = np.stack([rng.permutation(LABELS)[:size] for _ in range(B)])
  ids = np.concatenate([gold, np.where(lists == gold, PAD, lists)], axis=1)
  ids, gold = ids.astype(np.int32), gold.astype(np.int32)
  shortlist = Shortlist(ids, (ids == gold) & (ids != PAD))
  doc = np.where(mask, np.arange(B), PAD).astype(np.int32)
  return TokenBatch(tokens, lengths, gold, mask, doc, shortlist=shortlist)


def train(host, model, config, accumulate=1):
  """Returns the head's parameters before and after, and the losses."""
  mesh = make_mesh(MeshConfig(data=2, label=4))
  optimizer = make_optimizer(config)
  plan = plan_state(
    lambda rngs: build(model, vocab_size=WORDS, n_labels=LABELS, rngs=rngs),
    optimizer,
    mesh,
    rows=label_row_optimizer(config, np.ones(LABELS)),
  )
  step = make_train_step(plan, optimizer, bce, mesh, accumulate)
  with jax.set_mesh(mesh):
    state, losses = plan.init(jax.random.key(0)), []
    before = jax.tree.map(np.array, by_path(state.params))
    for _ in range(3):
      placed = put_batch(host, mesh)
      state, metrics = step(state, placed, jax.random.key(0))
      losses.append(float(jax.block_until_ready((state, metrics))[1].loss))
  return before, jax.tree.map(np.array, by_path(state.params)), losses


def test_micro_batches_have_their_own_shortlists():
  host, config = batch(real=14, size=6), NeuralTrain(learning_rate=0.1)
  before, after, losses = train(host, ATTENTION, config)
  _, parts, part_losses = train(host, ATTENTION, config, accumulate=2)
  np.testing.assert_allclose(part_losses, losses, rtol=1e-5)
  for name, exact in after.items():
    np.testing.assert_allclose(parts[name], exact, rtol=1e-4, atol=1e-4)
  # At the start, each label of a list costs about log 2.
  labels = (host.shortlist.ids_BA[:14] != PAD).sum() / 14
  assert abs(losses[0] - labels * np.log(2)) < 0.3
  assert (np.diff(losses) < 0).all()
  unasked = np.setdiff1d(np.arange(LABELS), host.shortlist.ids_BA[:14])
  for name in ('head/bias', 'head/output'):
    np.testing.assert_array_equal(after[name][unasked], before[name][unasked])


@pytest.mark.parametrize(
  ('model', 'name', 'fields'),
  [
    (DENSE, 'head/kernel', {}),
    thorough(ATTENTION, 'head/output', {'learning_rate': 0.01}),
  ],
)
def test_fused_rows_change_on_shortlists_only(model, name, fields):
  config = NeuralTrain(rows=FusedAdam(learning_rate=0.1), **fields)
  host = batch(real=3, size=2)
  before, after, losses = train(host, model, config)
  assert (np.diff(losses) < 0).all()
  changed = (after[name] != before[name]).all(axis=1)
  asked = np.setdiff1d(host.shortlist.ids_BA[:3], [PAD])
  np.testing.assert_array_equal(np.flatnonzero(changed), asked)
  if model is DENSE:
    without = dataclasses.replace(host, shortlist=None)
    _, everywhere, _ = train(without, model, config)
    changed = (everywhere[name] != before[name]).all(axis=1)
    assert changed[:LABELS].all()
  else:
    (words,) = (path for path in after if path.startswith('embedding/'))
    assert (after[words] != before[words]).any()
