"""The state on its mesh, and the step that changes it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from xjax.core.mesh import make_mesh, padded_labels, put_batch
from xjax.core.mesh_config import MeshConfig
from xjax.core.types import PAD
from xjax.losses.bce import bce
from xjax.losses.loss import LabelWeights
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.batch import TokenBatch
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding, NoEncoder
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.encoders.recurrent_cells import BiGRUConfig
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig, MeanConfig
from xjax.networks.pretrained.architecture import Activation, BertArchitecture
from xjax.networks.text_model import build
from xjax.train.neural_train import NeuralTrain
from xjax.train.optimizer import make_optimizer
from xjax.train.optimizer_config import AdamW, EMAConfig, SWAConfig
from xjax.train.parameters import by_path
from xjax.train.state import plan_state
from xjax.train.step import make_train_step, place_weights

MODEL = NeuralModel(
  EmbeddingConfig(dim=4, dropout=0.0, word_dropout=0.0),
  BiGRUConfig(units=3, dropout=0.0),
  head=LabelAttentionConfig(chunk=64),
)
SMALL = NeuralModel(
  MODEL.embedding, NoEncoder(), MeanConfig(), OneVsAllConfig(chunk=64)
)
DROPOUT = dataclasses.replace(
  SMALL, embedding=EmbeddingConfig(dim=4, dropout=0.5)
)
BERT = NeuralModel(
  NoEmbedding(),
  BertConfig(dropout=0.0, attention_dropout=0.0),
  ClsConfig(dropout=0.0),
  OneVsAllConfig(chunk=64),
)
WORDS, LABELS = 11, 20
SIZES = BertArchitecture(
  vocab_size=WORDS,
  dim=8,
  layers=2,
  heads=2,
  inner=12,
  activation=Activation.GELU,
  norm_eps=1e-12,
  pad_id=0,
  positions=8,
  token_types=1,
  position_offset=0,
)


@pytest.fixture(scope='module')
def n_devices():
  return 8


@pytest.fixture(scope='module')
def mesh(n_devices):
  return make_mesh(MeshConfig(data=2, label=4))


@pytest.fixture(scope='module')
def wide(n_devices):
  return make_mesh(MeshConfig(data=8))


def planned(mesh, config=None, model=MODEL):
  config = config or NeuralTrain()
  optimizer = make_optimizer(config)
  sizes = {'vocab_size': WORDS, 'n_labels': LABELS}
  if model is BERT:
    sizes['architecture'] = SIZES
  plan = plan_state(
    lambda rngs: build(model, **sizes, rngs=rngs),
    optimizer,
    mesh,
    config.freeze,
    config.average,
  )
  return plan, optimizer


def batch(rng, rows=16, width=6, real=None):
  lengths = rng.integers(1, width + 1, rows).astype(np.int32)
  tokens = rng.integers(2, WORDS, (rows, width)).astype(np.int32)
  tokens[np.arange(width) >= lengths[:, None]] = 0
  positives = np.full((rows, 4), PAD, np.int32)
  positives[:, 0] = rng.integers(0, LABELS, rows)
  mask = np.arange(rows) < (rows if real is None else real)
  doc = np.where(mask, np.arange(rows), PAD).astype(np.int32)
  positives[~mask] = PAD
  return TokenBatch(tokens, lengths, positives, mask, doc)


def start(mesh, plan):
  with jax.set_mesh(mesh):
    return jax.block_until_ready(plan.init(jax.random.key(0)))


def run(
  mesh,
  host_batch,
  accumulate=1,
  model=MODEL,
  steps=3,
  seed=1,
  config=None,
  weights=None,
  seen=lambda state: None,
):
  plan, optimizer = planned(mesh, config, model)
  weights = place_weights(weights, mesh)
  step = make_train_step(plan, optimizer, bce, mesh, accumulate, weights)
  state, found = start(mesh, plan), []
  seen(state)
  with jax.set_mesh(mesh):
    for _ in range(steps):
      placed = put_batch(host_batch, mesh)
      state, metrics = step(state, placed, jax.random.key(seed))
      # Steps that overlap on several CPU devices would deadlock.
      jax.block_until_ready((state, metrics))
      seen(state)
      found.append((float(metrics.loss), float(metrics.grad_norm)))
  return state, np.array(found)


def test_every_slot_has_its_parameters_sharding(mesh):
  config = NeuralTrain(optimizer=AdamW(weight_decay=0.1), clip_norm=1.0)
  plan, _ = planned(mesh, config)
  state = start(mesh, plan)
  params = by_path(state.params)
  split = [n for n, p in params.items() if any(p.sharding.spec)]
  assert len(split) == 3 and len(params) > len(split)
  slots = by_path(state.opt_state)
  seen = set()
  for name, param in params.items():
    for path, slot in slots.items():
      if path.endswith(f'/{name}'):
        assert slot.sharding == param.sharding, path
        assert slot.shape == param.shape
        seen.add(path)
  # mu and nu of every parameter; all else is the step counts.
  assert len(seen) == 2 * len(params)
  assert all(slots[path].shape == () for path in slots.keys() - seen)
  for name in split:
    shard = params[name].addressable_shards[0].data
    assert len(shard) == padded_labels(LABELS) // 4


def label_weights():
  rng = np.random.default_rng(7)
  return LabelWeights(*rng.uniform(0.2, 3, (2, LABELS)))


MEANS = NeuralTrain(average=EMAConfig(0.5))


@pytest.mark.parametrize(
  ('real', 'given'),
  [
    (16, {'model': SMALL}),
    (9, {'model': SMALL, 'config': MEANS, 'weights': label_weights()}),
  ],
)
def test_accumulation_is_the_big_batch(mesh, real, given):
  host = batch(np.random.default_rng(0), real=real)
  whole, metrics = run(mesh, host, **given)
  parts, summed = run(mesh, host, accumulate=4, **given)
  np.testing.assert_allclose(summed, metrics, rtol=1e-5)
  assert (whole.averages is None) == ('config' not in given)
  for tree in ('params', 'averages'):
    found = by_path(getattr(parts, tree))
    for name, param in by_path(getattr(whole, tree)).items():
      np.testing.assert_allclose(found[name], param, atol=1e-5, err_msg=name)


def test_weights_multiply_the_loss_of_labels(mesh):
  host, zero = batch(np.random.default_rng(0)), np.zeros(LABELS)
  _, plain = run(mesh, host, model=SMALL, steps=1)
  gold, others = (
    run(mesh, host, 1, SMALL, 1, weights=LabelWeights(*given))[1][0, 0]
    for given in ((zero + 2, zero), (zero, zero + 3))
  )
  np.testing.assert_allclose(gold / 2 + others / 3, plain[0, 0], rtol=1e-5)
  assert 0 < gold < others


def test_what_is_frozen_has_no_slots_no_updates_and_no_gradient(mesh):
  freeze = ('encoder/*', 'embedding/*', 'head/bias')
  config = NeuralTrain(freeze=freeze, average=EMAConfig())
  host, states = batch(np.random.default_rng(0)), []
  run(
    mesh,
    host,
    config=config,
    seen=lambda state: states.append(jax.tree.map(np.array, state)),
  )
  first, last = by_path(states[0].params), by_path(states[-1].params)
  moved = {name for name in first if (first[name] != last[name]).any()}
  assert moved == {'head/attention', 'head/output'}
  assert by_path(states[0].averages).keys() == moved
  slots = by_path(states[0].opt_state)
  assert sum(slot.ndim > 0 for slot in slots.values()) == 2 * len(moved)
  # The encoder's backward pass is not in the program.
  large = batch(np.random.default_rng(0), rows=64)
  assert operations(mesh, large, config) < 0.75 * operations(mesh, large, None)


@pytest.mark.thorough
def test_a_frozen_layer_of_a_stack_stands_still():
  host, one = batch(np.random.default_rng(0)), make_mesh(MeshConfig())
  optimizer = AdamW(weight_decay=0.1)

  def trained(*freeze):
    config = NeuralTrain(freeze=freeze, optimizer=optimizer, clip_norm=0.1)
    given = {'model': BERT, 'config': config, 'steps': 2}
    states = []
    _, metrics = run(
      one, host, **given, seen=lambda x: states.append(copied(x))
    )
    return metrics[0, 1], states[0], states[-1]

  def copied(state):
    return jax.tree.map(np.array, by_path(state.params))

  norm, before, after = trained('encoder/layers/0/*')
  for path, start in before.items():
    moved = start != after[path]
    if path.startswith('encoder/layers/'):
      assert not moved[0].any() and moved[1].any(), path
    else:
      assert moved.any(), path
  others = 'encoder/emb*', 'encoder/layers/1/*', 'pooling/*', 'head/*'
  whole = trained()[0] ** 2
  np.testing.assert_allclose(norm**2 + trained(*others)[0] ** 2, whole, 1e-5)


def operations(mesh, host, config):
  plan, optimizer = planned(mesh, config)
  step = make_train_step(plan, optimizer, bce, mesh)
  with jax.set_mesh(mesh):
    placed = put_batch(host, mesh)
    lowered = step.lower(plan.abstract, placed, jax.random.key(0))
  return lowered.compile().cost_analysis()['flops']


def test_averages_are_those_of_the_parameters(mesh):
  config = NeuralTrain(learning_rate=0.1, average=SWAConfig(start=2, every=2))
  params, means = [], []

  def seen(state):
    for tree, kept in ((state.params, params), (state.averages, means)):
      kept.append(jax.tree.map(np.array, by_path(tree)))
    placed = by_path(jax.tree.map(lambda x: x.sharding, state.params))
    for name, mean in by_path(state.averages).items():
      assert mean.sharding == placed[name]

  host = batch(np.random.default_rng(0))
  state, _ = run(mesh, host, 1, SMALL, 7, config=config, seen=seen)
  for step, mean in enumerate(means):
    taken = params[2 : step + 1 : 2] if step > 2 else [params[step]]
    assert mean.keys() == params[0].keys()
    for name, found in mean.items():
      expected = np.mean([p[name] for p in taken], axis=0)
      np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=name)
  for name, used in by_path(state.averaged_params()).items():
    np.testing.assert_array_equal(used, means[-1][name])
    assert (used != params[-1][name]).any()


def test_loss_is_the_mean_over_real_documents(wide):
  rng = np.random.default_rng(1)
  host = batch(rng, real=8)
  twice = jax.tree.map(lambda x: np.concatenate([x[:8], x[:8]]), host)
  _, padded = run(wide, host, model=SMALL, steps=1)
  _, doubled = run(wide, twice, model=SMALL, steps=1)
  # Documents count alike in either, and here are half as many.
  np.testing.assert_allclose(padded * [1, 2], doubled, rtol=1e-5)
  # Biases begin at 0 and outputs near it: about log 2 for each label.
  assert abs(padded[0, 0] - LABELS * np.log(2)) < 1


def test_a_document_counts_alike_in_every_batch(mesh):
  optimizer = optax.sgd(1.0)
  plan = plan_state(
    lambda rngs: build(SMALL, vocab_size=WORDS, n_labels=LABELS, rngs=rngs),
    optimizer,
    mesh,
  )
  step = make_train_step(plan, optimizer, bce, mesh, accumulate=2)
  whole = batch(np.random.default_rng(5))

  def moved(documents):
    mask = np.isin(whole.doc_B, documents)
    positives = np.where(mask[:, None], whole.positives_BP, PAD)
    host = dataclasses.replace(whole, mask_B=mask, positives_BP=positives)
    state = start(mesh, plan)
    before = jax.tree.map(np.array, by_path(state.params))
    with jax.set_mesh(mesh):
      placed = put_batch(host, mesh)
      state, _ = step(state, placed, jax.random.key(0))
    after = by_path(jax.block_until_ready(state).params)
    return {name: after[name] - before[name] for name in before}

  parts = [moved([3]), moved(range(4, 16)), moved(range(3))]
  for name, change in moved(range(16)).items():
    together = sum(part[name] for part in parts)
    np.testing.assert_allclose(together, change, atol=1e-6, err_msg=name)
    assert np.abs(change).max() > 1e-3


def test_randomness_follows_from_key_and_step(wide):
  host = batch(np.random.default_rng(3))
  _, first = run(wide, host, model=DROPOUT)
  _, again = run(wide, host, model=DROPOUT)
  np.testing.assert_array_equal(first, again)
  _, other = run(wide, host, model=DROPOUT, seed=2)
  assert (first != other).all()
  plan, optimizer = planned(wide, model=DROPOUT)
  step = make_train_step(plan, optimizer, bce, wide)
  losses = []
  for number in (0, 1):
    state = start(wide, plan)
    state = dataclasses.replace(
      state, step=jax.device_put(jnp.int32(number), plan.shardings.step)
    )
    with jax.set_mesh(wide):
      _, metrics = jax.block_until_ready(
        step(state, put_batch(host, wide), jax.random.key(1))
      )
    losses.append(float(metrics.loss))
  assert losses[0] != losses[1]


def test_state_is_donated_and_traced_once_per_shape(wide):
  plan, optimizer = planned(wide, model=SMALL)
  step = make_train_step(plan, optimizer, bce, wide)
  rng = np.random.default_rng(4)
  state = start(wide, plan)
  with jax.set_mesh(wide):
    for width in (4, 6, 4, 6, 4):
      before = state
      state, metrics = step(
        state, put_batch(batch(rng, width=width), wide), jax.random.key(0)
      )
      jax.block_until_ready((state, metrics))
      assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before))
  assert step._cache_size() == 2
  assert int(state.step) == 5
  assert state.step.sharding == plan.shardings.step
