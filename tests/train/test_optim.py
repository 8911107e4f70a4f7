import jax.numpy as jnp
import numpy as np
import optax
import pytest

from xjax.train.config import NeuralTrain, Optimizer, Schedule
from xjax.train.optim import make_optimizer, make_schedule


def rates(**fields):
  config = NeuralTrain(**{'steps': 10, 'learning_rate': 1.0, **fields})
  schedule = make_schedule(config)
  return [float(schedule(step)) for step in range(11)]


def test_constant_after_a_warm_up_that_loses_no_step():
  np.testing.assert_allclose(rates(warmup=3), [0.25, 0.5, 0.75] + [1.0] * 8)


def test_linear_reaches_zero_after_the_last_step():
  found = rates(schedule=Schedule.LINEAR, warmup=2)
  np.testing.assert_allclose(found[:3], [1 / 3, 2 / 3, 1], rtol=1e-6)
  np.testing.assert_allclose(found[2:], np.linspace(1, 0, 9), atol=1e-6)


def test_cosine():
  expected = 0.5 * (1 + np.cos(np.pi * np.arange(11) / 10))
  np.testing.assert_allclose(
    rates(schedule=Schedule.COSINE), expected, atol=1e-6
  )


def update(config, grads, params):
  optimizer = make_optimizer(config)
  updates, _ = optimizer.update(grads, optimizer.init(params), params)
  return updates


def adam_input(config, grads):
  """What Adam is given: with b1 = b2 = 0 and a large eps, g / eps."""
  params = {name: jnp.zeros_like(g) for name, g in grads.items()}
  updates = update(config, grads, params)
  return {name: -u * config.eps for name, u in updates.items()}


def test_clipping_element_wise_and_by_norm():
  fields = {'learning_rate': 1.0, 'b1': 0.0, 'b2': 0.0, 'eps': 1e6}
  grads = {'a': jnp.array([3.0, -20.0]), 'b': jnp.array([4.0])}
  found = adam_input(NeuralTrain(clip_value=5.0, **fields), grads)
  np.testing.assert_allclose(found['a'], [3, -5], rtol=1e-4)
  found = adam_input(NeuralTrain(clip_norm=1.0, **fields), grads)
  np.testing.assert_allclose(
    found['a'], np.array([3, -20]) / np.sqrt(425), rtol=1e-4
  )
  found = adam_input(NeuralTrain(**fields), grads)
  np.testing.assert_allclose(found['a'], [3, -20], rtol=1e-4)


def test_first_adam_step_has_the_learning_rate():
  params = {'w': jnp.ones((2, 2))}
  updates = update(
    NeuralTrain(learning_rate=0.1), {'w': jnp.full((2, 2), 7.0)}, params
  )
  np.testing.assert_allclose(updates['w'], -0.1, rtol=1e-5)


def test_weight_decay_of_matrices_alone():
  params = {'w': jnp.ones((2, 2)), 'b': jnp.ones(2)}
  grads = {'w': jnp.zeros((2, 2)), 'b': jnp.zeros(2)}
  config = NeuralTrain(
    learning_rate=0.1, optimizer=Optimizer.ADAMW, weight_decay=0.5
  )
  updates = update(config, grads, params)
  np.testing.assert_allclose(updates['w'], -0.05, rtol=1e-6)
  np.testing.assert_array_equal(updates['b'], 0)


@pytest.mark.parametrize('optimizer', Optimizer)
def test_minimises(optimizer):
  config = NeuralTrain(learning_rate=0.1, optimizer=optimizer)
  tx = make_optimizer(config)
  params = {'w': jnp.array([[2.0, -3.0]])}
  state = tx.init(params)
  for _ in range(200):
    updates, state = tx.update({'w': 2 * params['w']}, state, params)
    params = optax.apply_updates(params, updates)
  assert float(jnp.abs(params['w']).max()) < 0.05
