import jax.numpy as jnp
import numpy as np
import pytest

from xjax.losses.bce import bce


def log_likelihood(z, y):
  p = 1 / (1 + np.exp(-z))
  return -np.where(y, np.log(p), np.log1p(-p))


def test_golden():
  logits_BC = jnp.array([[0.0, jnp.log(3.0)]])
  loss_BC, dlogits_BC = bce(logits_BC, jnp.array([[True, False]]))
  # -log 1/2 and -log(1 - 3/4)
  np.testing.assert_allclose(loss_BC, [[np.log(2), np.log(4)]], rtol=1e-6)
  np.testing.assert_allclose(dlogits_BC, [[-0.5, 0.75]], rtol=1e-6)


def test_as_every_loss(loss_trial):
  loss_trial(bce, log_likelihood).check()


@pytest.mark.parametrize(
  ('logit', 'target', 'loss', 'derivative'),
  [
    (1e4, True, 0, 0),
    (1e4, False, 1e4, 1),
    (-1e4, True, 1e4, -1),
    (-1e4, False, 0, 0),
    (-20.0, False, np.exp(-20), np.exp(-20)),
  ],
)
def test_extremes(loss_trial, logit, target, loss, derivative):
  found = loss_trial(bce, log_likelihood).at(logit, target)
  np.testing.assert_allclose(found, [loss, derivative], rtol=1e-5)
