import collections

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from xjax.networks.rows.update import FusedSGD
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer import (
  FREQUENT,
  clip_outliers,
  label_row_optimizer,
  make_optimizer,
  make_schedule,
)
from xjax.train.optimizer_config import Adam, AdamW, EMAConfig, SWAConfig
from xjax.train.parameters import by_path
from xjax.train.step import update_mean


def rates(**fields):
  config = NeuralTrain(**{'steps': 10, 'learning_rate': 1.0, **fields})
  schedule = make_schedule(config)
  return [float(schedule(step)) for step in range(11)]


T = np.arange(11)
SCHEDULES = {
  'linear reaches zero after the last step': (
    {'schedule': Schedule.LINEAR, 'warmup': 2},
    [1 / 3, 2 / 3, *np.linspace(1, 0, 9)],
  ),
  'cosine': ({'schedule': Schedule.COSINE}, 0.5 * (1 + np.cos(np.pi * T / 10))),
  'constant after a warm-up that loses no step': (
    {'warmup': 3},
    [0.25, 0.5, 0.75] + [1.0] * 8,
  ),
}


@pytest.mark.parametrize('name', SCHEDULES)
def test_schedules(name):
  fields, expected = SCHEDULES[name]
  np.testing.assert_allclose(rates(**fields), expected, atol=2e-7)


def update(config, grads, params):
  optimizer = make_optimizer(config)
  updates, _ = optimizer.update(grads, optimizer.init(params), params)
  return updates


def adam_input(config, grads):
  """Returns the g that Adam gets; with b1 = b2 = 0, it steps by g / eps."""
  params = {name: jnp.zeros_like(g) for name, g in grads.items()}
  updates = update(config, grads, params)
  return {name: -u * config.optimizer.eps for name, u in updates.items()}


def test_clipping_element_wise_and_by_norm():
  fields = {'learning_rate': 1.0, 'optimizer': Adam(0.0, 0.0, 1e6)}
  grads = {'a': jnp.array([3.0, -20.0]), 'b': jnp.array([4.0])}
  found = adam_input(NeuralTrain(clip_value=5.0, **fields), grads)
  np.testing.assert_allclose(found['a'], [3, -5], rtol=1e-4)
  found = adam_input(NeuralTrain(clip_norm=1.0, **fields), grads)
  np.testing.assert_allclose(
    found['a'], np.array([3, -20]) / np.sqrt(425), rtol=1e-4
  )
  found = adam_input(NeuralTrain(**fields), grads)
  np.testing.assert_allclose(found['a'], [3, -20], rtol=1e-4)


def by_the_public_code(norms, factor):
  """Norms after clipping, by the rule of AttentionXML without its bound 1."""
  recent, clipped = collections.deque([np.inf], maxlen=5), []
  for norm in norms:
    largest = max(recent)
    clipped.append(min(norm, factor * largest))
    recent.append(min(norm, 2 * largest))
  return clipped


def test_outliers_are_clipped_by_recent_norms():
  growth = [1.0, 2.0, 0.5, 1.0, 1.5, 9.0, 40.0, 1e9, 1e9, 1e9, 1e9, 3.0, 0.0]
  norms = [*growth, *[1.0] * 6, 7.0, 5.0]
  optimizer = clip_outliers(5.0)
  state, clipped = optimizer.init(None), []
  direction = {'a': jnp.array([0.6, 0.0]), 'b': jnp.array([-0.8])}
  for norm in norms:
    grads = {name: x * norm for name, x in direction.items()}
    grads, state = jax.jit(optimizer.update)(grads, state)
    clipped.append(float(optax.tree.norm(grads)))
    np.testing.assert_allclose(
      grads['a'][0] * -0.8, grads['b'][0] * 0.6, rtol=1e-5
    )
  expected = by_the_public_code(norms, 5)
  np.testing.assert_allclose(clipped, expected, rtol=1e-5)
  assert sum(np.less(clipped, norms)) >= 4 and clipped[-1] == 5


def test_groups_learn_at_rates_of_their_own():
  params = {
    'encoder': {
      'embeddings': {'word': jnp.ones((2, 2))},
      'layers': {'bias': jnp.ones((3, 2)), 'kernel': jnp.ones((3, 2, 2))},
    },
    'head': {'kernel': jnp.ones((2, 2))},
  }
  config = NeuralTrain(
    learning_rate=0.1,
    optimizer=AdamW(weight_decay=0.5),
    rates=('encoder/layers/1/*=3', 'encoder/*=0.5'),
    layer_decay=0.25,
    freeze=('encoder/layers/0/*',),
  )
  grads = jax.tree.map(jnp.ones_like, params)
  found = by_path(update(config, grads, params))
  # Adam's first step is 1; AdamW adds 0.5 for a matrix of ones.
  layers = np.array([0, 3 * 0.25, 0.5])
  expected = {
    'encoder/embeddings/word': 0.5 * 0.25**3 * 1.5,
    'encoder/layers/bias': layers[:, None],
    'encoder/layers/kernel': 1.5 * layers[:, None, None],
    'head/kernel': 1.5,
  }
  assert found.keys() == expected.keys()
  for path, factor in expected.items():
    wanted = np.broadcast_to(-0.1 * factor, found[path].shape)
    np.testing.assert_allclose(found[path], wanted, rtol=1e-5)


STEPS = 12


def means(config):
  """The mean after each of some steps whose parameters are drawn."""
  drawn = np.random.default_rng(0).normal(size=(STEPS + 1, 3))
  drawn = drawn.astype(np.float32)

  @jax.jit
  def take(mean, newest, step):
    return update_mean(mean, newest, config.newest_share(step))

  found = [drawn[0]]
  for step in range(1, STEPS + 1):
    found.append(np.asarray(take(found[-1], drawn[step], jnp.int32(step))))
  return drawn, found


def test_a_parameter_that_stands_still_is_its_mean():
  still = mean = np.float32([0.1, 0.7, -1.3])
  for _ in range(100):
    mean = update_mean(mean, still, np.float32(0.001))
  np.testing.assert_array_equal(mean, still)


@pytest.mark.parametrize(
  ('start', 'every'), [(0, 1), (0, 5), (3, 2), (4, 4), (11, 3)]
)
def test_swa_is_the_plain_mean(start, every):
  drawn, found = means(SWAConfig(start, every))
  for step in range(STEPS + 1):
    taken = drawn[start : step + 1 : every] if step > start else drawn[[step]]
    np.testing.assert_allclose(found[step], taken.mean(axis=0), atol=1e-6)


@pytest.mark.parametrize('start', [0, 4])
def test_ema_is_the_weighted_mean(start):
  drawn, found = means(EMAConfig(0.75, start))
  expected = drawn[start].astype(np.float64)
  for step in range(start + 1, STEPS + 1):
    expected = 0.75 * expected + 0.25 * drawn[step]
    np.testing.assert_allclose(found[step], expected, atol=1e-6)


PLACES = [(seed, step) for seed in range(4) for step in range(8)]
COUNTS = np.array([0, FREQUENT - 1, FREQUENT, 9 * FREQUENT])


def test_the_rate_follows_the_schedule_from_its_own_peak():
  config = NeuralTrain(
    learning_rate=1e-3,
    steps=6,
    warmup=2,
    schedule=Schedule.LINEAR,
    rows=FusedSGD(learning_rate=0.6, weight_decay=0.25),
  )
  rows = label_row_optimizer(config, COUNTS)
  steps = [rows.scalars(jnp.int32(i), jax.random.key(0)) for i in range(7)]
  rates = [float(step.rate) for step in steps]
  expected = [0.2, 0.4, 0.6, 0.45, 0.3, 0.15, 0.0]
  assert rates == pytest.approx(expected, abs=1e-7)
  assert {float(step.decay) for step in steps} == {0.25}


def test_keys_are_of_the_given_one_alone():
  rows = label_row_optimizer(NeuralTrain(rows=FusedSGD()), COUNTS)
  keys = [jax.random.fold_in(jax.random.key(seed), i) for seed, i in PLACES]
  drawn = [int(rows.scalars(jnp.int32(0), key).key) for key in keys]
  again = [int(rows.scalars(jnp.int32(5), key).key) for key in keys]
  assert drawn == again
  assert len(set(drawn)) == len(PLACES)
