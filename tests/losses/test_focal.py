import jax.numpy as jnp
import numpy as np
import pytest

from xjax.losses.bce import bce
from xjax.losses.focal import Focal


def reference(gamma, alpha=0.0):
  def loss(z, y):
    p = np.where(y, 1 / (1 + np.exp(-z)), 1 / (1 + np.exp(z)))
    weight = np.where(y, alpha, 1 - alpha) if alpha else 1
    return -weight * (1 - p) ** gamma * np.log(p)

  return loss


def test_golden():
  logits_BC = jnp.array([[jnp.log(3.0), jnp.log(3.0)]])
  targets_BC = jnp.array([[True, False]])
  loss_BC, dlogits_BC = Focal(2.0, 0.25)(logits_BC, targets_BC)
  # p_t is 3/4 and 1/4: a_t (1 - p_t)^2 -log p_t.
  gold, other = np.log(4 / 3) / 64, 27 / 64 * np.log(4)
  np.testing.assert_allclose(loss_BC, [[gold, other]], rtol=1e-5)
  # a_t (1 - p_t)^2 (2 p_t -log p_t + 1 - p_t), towards the gold.
  slopes = [
    [
      -1 / 64 * (1.5 * np.log(4 / 3) + 0.25),
      27 / 64 * (0.5 * np.log(4) + 0.75),
    ]
  ]
  np.testing.assert_allclose(dlogits_BC, slopes, rtol=1e-5)


@pytest.mark.parametrize(
  ('gamma', 'alpha'), [(2.0, 0.0), (2.0, 0.25), (0.5, 0.0), (0.0, 0.0)]
)
def test_as_every_loss(loss_trial, gamma, alpha):
  loss_trial(Focal(gamma, alpha), reference(gamma, alpha)).check()


def test_without_gamma_it_is_cross_entropy():
  logits_BC = jnp.linspace(-30, 30, 9)[None]
  targets_BC = jnp.arange(9)[None] % 2 == 0
  for found, expected in zip(
    Focal(0.0)(logits_BC, targets_BC), bce(logits_BC, targets_BC)
  ):
    np.testing.assert_allclose(found, expected, 1e-5, atol=1e-6)


def test_equal_ones_are_one_key():
  assert {Focal(2.0), Focal(2.0)} == {Focal(2.0, 0.0)}


@pytest.mark.parametrize('gamma', [0.0, 0.5, 2.0])
@pytest.mark.parametrize(
  ('logit', 'target', 'loss', 'derivative'),
  [
    (1e4, True, 0, 0),
    (1e4, False, 1e4, 1),
    (-1e4, True, 1e4, -1),
    (-1e4, False, 0, 0),
  ],
)
def test_extremes(loss_trial, gamma, logit, target, loss, derivative):
  found = loss_trial(Focal(gamma), reference(gamma)).at(logit, target)
  np.testing.assert_allclose(found, [loss, derivative], rtol=1e-5)


def test_digits_of_what_is_nearly_right(loss_trial):
  found, _ = loss_trial(Focal(2.0), reference(2.0)).at(-8.0, False)
  p = 1 / (1 + np.exp(8))
  np.testing.assert_allclose(found, -(p**2) * np.log1p(-p), rtol=1e-5)
