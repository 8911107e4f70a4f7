"""Tests the loss of sequences by hand and by its definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.losses.sequence import SequenceLoss, SequenceLossConfig

LOGITS = np.random.default_rng(0).normal(size=(3, 5, 7), scale=3)
TARGETS = np.random.default_rng(1).integers(0, 7, (3, 5))
REAL = np.arange(5) < np.array([[5], [2], [0]])
LOSSES = [SequenceLoss(), SequenceLoss(0.0, 0.0), SequenceLoss(1.5, 0.4)]


def loss_of(loss, logits):
  logs = jax.nn.log_softmax(logits)
  right = jnp.take_along_axis(logs, TARGETS[..., None], axis=-1)[..., 0]
  return loss(right, logs.mean(axis=-1), jnp.asarray(REAL))


def defined(loss, logits):
  """The loss of each document in float64."""
  q = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
  target = np.full(q.shape, loss.smoothing / q.shape[-1])
  target += (1 - loss.smoothing) * np.eye(q.shape[-1])[TARGETS]
  nats = -(target * np.log(q)).sum(axis=-1)
  of_symbols = (1 - np.exp(-nats)) ** loss.gamma * nats * REAL
  return of_symbols.sum(axis=1)


def test_a_symbol_by_hand():
  """Two symbols with probabilities 0.8 and 0.2; the first one is right."""
  right, mean = np.log(0.8), (np.log(0.8) + np.log(0.2)) / 2
  # 0.9 x 0.223144 + 0.1 x 0.916291 = 0.292458, and exp(-0.292458) = 0.746426.
  loss = (
    SequenceLossConfig().build().of_symbols(*map(jnp.float32, (right, mean)))
  )
  np.testing.assert_allclose(loss, 0.253574**2 * 0.292458, rtol=1e-5)
  plain = SequenceLoss(0.0, 0.0).of_symbols(*map(jnp.float32, (right, mean)))
  np.testing.assert_allclose(plain, 0.223144, rtol=1e-5)


@pytest.mark.parametrize('loss', LOSSES, ids=str)
def test_documents_have_the_loss_of_the_definition(loss):
  logits = jnp.asarray(LOGITS, jnp.float32)
  np.testing.assert_allclose(
    loss_of(loss, logits), defined(loss, LOGITS), 1e-5, 1e-7
  )


@pytest.mark.parametrize('loss', LOSSES, ids=str)
def test_the_gradient_is_the_slope(loss):
  logits = jnp.asarray(LOGITS, jnp.float32)
  slope = jax.grad(lambda z: loss_of(loss, z).sum())(logits)
  along = np.random.default_rng(2).normal(size=LOGITS.shape)
  ends = [defined(loss, LOGITS + step * along).sum() for step in (1e-6, -1e-6)]
  wanted = (ends[0] - ends[1]) / 2e-6
  np.testing.assert_allclose((slope * along).sum(), wanted, rtol=1e-4)


@pytest.mark.parametrize('gamma', [0.0, 0.5, 2.0])
def test_a_certain_symbol_costs_nothing_and_has_a_finite_slope(gamma):
  loss, zero = SequenceLoss(gamma, 0.0), jnp.float32(0)
  value, slope = jax.value_and_grad(loss.of_symbols)(zero, zero)
  assert value == 0 and np.isfinite(slope)
