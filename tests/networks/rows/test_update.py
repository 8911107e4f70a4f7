"""Rules by which label rows are changed, by hand."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from xjax.networks.rows.update import (
  FusedAdagrad,
  FusedAdam,
  FusedSGD,
  RowGradient,
)


def gradient(kernel_CD, bias_C):
  return RowGradient(jnp.array(kernel_CD), jnp.array(bias_C))


FIRST = gradient([[3.0, 4.0], [0.0, 0.0]], [0.0, 2.0])
SECOND = gradient([[-1.0, 2.0], [1.0, 0.0]], [5.0, 0.0])


def taken(rule, gradient, slots, step=0):
  """Where the rule goes, and what it remembers then."""
  slots = rule.update_slots(gradient, slots)
  return rule.direction(gradient, slots, jnp.int32(step)), slots


def test_momentum():
  plain = FusedSGD()
  assert plain.names == ()
  assert taken(plain, FIRST, plain.slots(2, 2)) == (FIRST, {})
  rule = FusedSGD(momentum=0.5)
  assert set(rule.names) == {'kernel_momentum', 'bias_momentum'}
  towards, slots = taken(rule, FIRST, rule.slots(2, 2))
  np.testing.assert_array_equal(towards.kernel_CD, FIRST.kernel_CD)
  towards, slots = taken(rule, SECOND, slots)
  np.testing.assert_array_equal(towards.kernel_CD, [[0.5, 4], [1, 0]])
  np.testing.assert_array_equal(towards.bias_C, [5, 1])
  np.testing.assert_array_equal(slots['kernel_momentum'], towards.kernel_CD)
  np.testing.assert_array_equal(slots['bias_momentum'], towards.bias_C)


def test_adagrad_by_row():
  rule = FusedAdagrad(eps=0.5)
  assert rule.names == ('squares',)
  towards, slots = taken(rule, FIRST, rule.slots(2, 2))
  # Means of squares over two weights and the bias: 25/3 and 4/3.
  squares = np.array([25 / 3, 4 / 3])
  np.testing.assert_allclose(slots['squares'], squares, rtol=1e-6)
  scale = 1 / (np.sqrt(squares) + 0.5)
  np.testing.assert_allclose(
    towards.kernel_CD, FIRST.kernel_CD * scale[:, None], rtol=1e-6
  )
  np.testing.assert_allclose(towards.bias_C, FIRST.bias_C * scale, rtol=1e-6)
  towards, slots = taken(rule, SECOND, slots)
  squares += [10, 1 / 3]
  np.testing.assert_allclose(slots['squares'], squares, rtol=1e-6)
  scale = 1 / (np.sqrt(squares) + 0.5)
  np.testing.assert_allclose(towards.bias_C, SECOND.bias_C * scale, rtol=1e-6)


def test_adam_is_that_of_optax():
  rule, reference = (
    FusedAdam(b1=0.8, b2=0.99, eps=1e-3),
    optax.scale_by_adam(0.8, 0.99, 1e-3),
  )
  slots, state = rule.slots(2, 2), reference.init(FIRST)
  for step, now in enumerate((FIRST, SECOND, FIRST)):
    towards, slots = taken(rule, now, slots, step)
    expected, state = reference.update(now, state)
    for moved, exact in zip(towards, expected):
      np.testing.assert_allclose(moved, exact, rtol=1e-6)


@pytest.mark.parametrize(
  'rule',
  [FusedSGD(), FusedSGD(momentum=0.9), FusedAdagrad(eps=1e-6), FusedAdam()],
)
def test_slots_have_a_row_per_label(rule):
  slots = rule.slots(5, 3)
  assert slots.keys() == set(rule.names)
  for slot in slots.values():
    assert slot.dtype == jnp.float32
    assert slot.shape in ((5,), (5, 3))
    np.testing.assert_array_equal(slot, 0)
