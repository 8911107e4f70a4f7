"""The state on its mesh, and the step that changes it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import LABEL, MeshConfig, make_mesh, put_batch
from xjax.core.types import PAD, Batch
from xjax.losses.bce import bce
from xjax.models.build import build
from xjax.models.config import (
  BiGRUConfig,
  EmbeddingConfig,
  LabelAttentionConfig,
  NeuralModel,
)
from xjax.train.config import NeuralTrain, Optimizer
from xjax.train.optim import make_optimizer
from xjax.train.state import by_path, from_paths, plan_state
from xjax.train.step import make_train_step

MODEL = NeuralModel(
  EmbeddingConfig(dim=4, dropout=0.0, word_dropout=0.0),
  BiGRUConfig(units=3, dropout=0.0),
  head=LabelAttentionConfig(chunk=64),
)
DROPOUT = dataclasses.replace(
  MODEL, embedding=EmbeddingConfig(dim=4, dropout=0.5)
)
WORDS, LABELS = 11, 20


def planned(mesh, config=None, model=MODEL):
  optimizer = make_optimizer(config or NeuralTrain())
  plan = plan_state(
    lambda rngs: build(model, vocab_size=WORDS, n_labels=LABELS, rngs=rngs),
    optimizer,
    mesh,
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
  return Batch(tokens, lengths, positives, mask, doc)


def start(mesh, plan):
  with jax.set_mesh(mesh):
    return jax.block_until_ready(plan.init(jax.random.key(0)))


def run(mesh, host_batch, accumulate=1, model=MODEL, steps=3, seed=1):
  plan, optimizer = planned(mesh, model=model)
  step = make_train_step(plan, optimizer, bce, mesh, accumulate)
  state, found = start(mesh, plan), []
  with jax.set_mesh(mesh):
    for _ in range(steps):
      placed = put_batch(host_batch, mesh)
      state, metrics = step(state, placed, jax.random.key(seed))
      # Steps that overlap on several CPU devices would deadlock.
      jax.block_until_ready((state, metrics))
      found.append((float(metrics.loss), float(metrics.grad_norm)))
  return state, np.array(found)


@pytest.mark.parametrize('optimizer', Optimizer)
def test_every_slot_has_its_parameters_sharding(optimizer):
  mesh = make_mesh(MeshConfig(data=2, label=4))
  config = NeuralTrain(optimizer=optimizer, weight_decay=0.1, clip_norm=1.0)
  plan, _ = planned(mesh, config)
  state = start(mesh, plan)
  params = by_path(state.params)
  split = [n for n, p in params.items() if LABEL in p.sharding.spec]
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
    assert params[name].addressable_shards[0].data.shape[0] == 128 // 4


def test_plan_tells_the_state_without_making_it():
  mesh = make_mesh(MeshConfig(data=4, label=2))
  plan, _ = planned(mesh)
  state = start(mesh, plan)
  for planned_leaf, leaf in zip(
    jax.tree.leaves(plan.abstract), jax.tree.leaves(state), strict=True
  ):
    assert isinstance(planned_leaf, jax.ShapeDtypeStruct)
    assert planned_leaf.shape == leaf.shape
    assert planned_leaf.dtype == leaf.dtype
    assert planned_leaf.sharding == leaf.sharding
  assert jax.tree.structure(plan.abstract) == jax.tree.structure(state)


def test_paths_and_back():
  mesh = make_mesh(MeshConfig(data=8))
  plan, _ = planned(mesh)
  state = start(mesh, plan)
  names = by_path(state.params)
  assert 'embedding/table' in names
  assert all('value' not in name for name in names)
  again = from_paths(state.params, names)
  assert jax.tree.structure(again) == jax.tree.structure(state.params)
  with pytest.raises(KeyError):
    from_paths(state.params, {})


@pytest.mark.parametrize('real', [16, 9])
def test_accumulation_is_the_big_batch(real):
  mesh = make_mesh(MeshConfig(data=2, label=4))
  host = batch(np.random.default_rng(0), real=real)
  whole, metrics = run(mesh, host)
  parts, summed = run(mesh, host, accumulate=4)
  np.testing.assert_allclose(summed, metrics, rtol=1e-5)
  for name, param in by_path(whole.params).items():
    np.testing.assert_allclose(
      by_path(parts.params)[name], param, atol=1e-5, err_msg=name
    )


def test_loss_is_the_mean_over_real_documents():
  mesh = make_mesh(MeshConfig(data=8))
  rng = np.random.default_rng(1)
  host = batch(rng, real=8)
  twice = jax.tree.map(lambda x: np.concatenate([x[:8], x[:8]]), host)
  _, padded = run(mesh, host, steps=1)
  _, doubled = run(mesh, twice, steps=1)
  np.testing.assert_allclose(padded, doubled, rtol=1e-5)
  # Biases begin at 0 and outputs near it: about log 2 for each label.
  assert abs(padded[0, 0] - LABELS * np.log(2)) < 1


def test_learns():
  mesh = make_mesh(MeshConfig(data=8))
  _, metrics = run(mesh, batch(np.random.default_rng(2)), steps=20)
  losses = metrics[:, 0]
  assert losses[-1] < losses[0] - 0.05
  assert (np.diff(losses) < 0).all()


def test_randomness_follows_from_key_and_step():
  mesh = make_mesh(MeshConfig(data=8))
  host = batch(np.random.default_rng(3))
  _, first = run(mesh, host, model=DROPOUT)
  _, again = run(mesh, host, model=DROPOUT)
  np.testing.assert_array_equal(first, again)
  _, other = run(mesh, host, model=DROPOUT, seed=2)
  assert (first != other).all()
  plan, optimizer = planned(mesh, model=DROPOUT)
  step = make_train_step(plan, optimizer, bce, mesh)
  losses = []
  for number in (0, 1):
    state = start(mesh, plan)
    state = dataclasses.replace(
      state,
      step=jax.device_put(jnp.int32(number), plan.shardings.step),
    )
    with jax.set_mesh(mesh):
      _, metrics = jax.block_until_ready(
        step(state, put_batch(host, mesh), jax.random.key(1))
      )
    losses.append(float(metrics.loss))
  assert losses[0] != losses[1]


def test_state_is_donated_and_traced_once_per_shape():
  mesh = make_mesh(MeshConfig(data=8))
  plan, optimizer = planned(mesh)
  step = make_train_step(plan, optimizer, bce, mesh)
  rng = np.random.default_rng(4)
  state = start(mesh, plan)
  with jax.set_mesh(mesh):
    for width in (4, 6, 4, 6, 4):
      before = state
      state, metrics = step(
        state, put_batch(batch(rng, width=width), mesh), jax.random.key(0)
      )
      jax.block_until_ready((state, metrics))
      assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before))
  assert step._cache_size() == 2
  assert int(state.step) == 5
  assert state.step.sharding == plan.shardings.step
