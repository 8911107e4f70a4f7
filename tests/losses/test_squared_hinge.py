import jax.numpy as jnp
import numpy as np
import pytest

from xjax.losses.squared_hinge import squared_hinge


def reference(z, y):
  return np.maximum(0, 1 - np.where(y, 1, -1) * z) ** 2


def test_golden():
  margins_BC = jnp.array([[0.5, 0.5, 2.0, -1.0]])
  targets_BC = jnp.array([[True, False, True, True]])
  loss_BC, dmargins_BC = squared_hinge(margins_BC, targets_BC)
  np.testing.assert_array_equal(loss_BC, [[0.25, 2.25, 0, 4]])
  np.testing.assert_array_equal(dmargins_BC, [[-1, 3, 0, -4]])


def test_as_every_loss(loss_trial):
  loss_trial(squared_hinge, reference).check()


@pytest.mark.parametrize(
  ('margin', 'target', 'loss', 'derivative'),
  [
    (1e4, True, 0, 0),
    (1e4, False, 10001.0**2, 20002),
    (-1e4, True, 10001.0**2, -20002),
    (-1e4, False, 0, 0),
    (1.0, True, 0, 0),
    (-1.0, False, 0, 0),
  ],
)
def test_extremes(loss_trial, margin, target, loss, derivative):
  found = loss_trial(squared_hinge, reference).at(margin, target)
  np.testing.assert_allclose(found, [loss, derivative], rtol=1e-6)
