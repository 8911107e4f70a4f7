"""Losses of single labels, against their definitions and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import assert_close
from xjax.losses.bce import bce
from xjax.losses.focal import Focal
from xjax.losses.squared_hinge import squared_hinge


def log_likelihood(z, y):
  p = 1 / (1 + np.exp(-z))
  return -np.where(y, np.log(p), np.log1p(-p))


def focal(gamma, alpha=0.0):
  def loss(z, y):
    p = np.where(y, 1 / (1 + np.exp(-z)), 1 / (1 + np.exp(z)))
    weight = np.where(y, alpha, 1 - alpha) if alpha else 1
    return -weight * (1 - p) ** gamma * np.log(p)

  return loss


def hinge(z, y):
  return np.maximum(0, 1 - np.where(y, 1, -1) * z) ** 2


FOCAL = [(2.0, 0.25), (0.0, 0.0)]


@pytest.mark.parametrize(
  ('loss', 'reference'),
  [(bce, log_likelihood), (squared_hinge, hinge)]
  + [(Focal(*fields), focal(*fields)) for fields in FOCAL],
)
def test_every_loss_passes_the_trial(loss_trial, loss, reference):
  loss_trial(loss, reference).check()


# By hand: p_t of the focal loss is 3/4 and 1/4. Its loss is a_t (1 - p_t)^2
# -log p_t; its slope a_t (1 - p_t)^2 (2 p_t -log p_t + 1 - p_t), to the gold.
LOG3, LOG4 = np.log([3.0, 4.0])
FOCAL_LOSS = [np.log(4 / 3) / 64, 27 / 64 * LOG4]
FOCAL_SLOPE = [
  -1 / 64 * (1.5 * np.log(4 / 3) + 0.25),
  27 / 64 * (0.5 * LOG4 + 0.75),
]


@pytest.mark.parametrize(
  ('loss', 'logits', 'gold', 'expected', 'slopes'),
  [
    (bce, [0, LOG3], [1, 0], [np.log(2), LOG4], [-0.5, 0.75]),
    (Focal(2.0, 0.25), [LOG3, LOG3], [1, 0], FOCAL_LOSS, FOCAL_SLOPE),
    (
      squared_hinge,
      [0.5, 0.5, 2, -1],
      [1, 0, 1, 1],
      [0.25, 2.25, 0, 4],
      [-1, 3, 0, -4],
    ),
  ],
)
def test_golden(loss, logits, gold, expected, slopes):
  found = loss(jnp.array([logits], jnp.float32), jnp.array([gold], bool))
  rtol = {bce: 1e-6, squared_hinge: 0}.get(loss, 1e-5)
  assert_close([*found], [np.array([x]) for x in (expected, slopes)], rtol)


LARGE = [(1e4, 1, 0, 0), (1e4, 0, 1e4, 1), (-1e4, 1, 1e4, -1), (-1e4, 0, 0, 0)]
NEARLY_RIGHT = -20.0, 0, np.exp(-20), np.exp(-20)
HINGES = [
  *[(1e4, 1, 0, 0), (1e4, 0, 10001.0**2, 20002)],
  *[(-1e4, 1, 10001.0**2, -20002), (-1e4, 0, 0, 0)],
  *[(1.0, 1, 0, 0), (-1.0, 0, 0, 0)],
]


@pytest.mark.parametrize(
  ('loss', 'cases', 'rtol'),
  [
    (bce, [*LARGE, NEARLY_RIGHT], 1e-5),
    (Focal(0.0), [*LARGE, NEARLY_RIGHT], 1e-5),
    *[(Focal(gamma), LARGE, 1e-5) for gamma in (0.5, 2.0)],
    (squared_hinge, HINGES, 1e-6),
  ],
)
def test_extremes(loss_trial, loss, cases, rtol):
  for logit, target, *expected in cases:
    found = loss_trial(loss, None).at(logit, bool(target))
    np.testing.assert_allclose(found, expected, rtol=rtol)


def absent(logits_BC, weight_C=None):
  """The loss of labels that are not gold, which share logarithms."""
  return jax.jit(bce.absent)(jnp.asarray(logits_BC, jnp.float32), weight_C)


@pytest.mark.parametrize(('documents', 'scale'), [(3, 15), (16, 1e-3), (37, 3)])
def test_absent_labels_share_logarithms(documents, scale):
  rng = np.random.default_rng(documents)
  z_BC = rng.normal(size=(documents, 11), scale=scale).astype(np.float32)
  z_BC[0, 3] = -np.inf
  loss, dlogits_BC = absent(z_BC)
  exact_BC = z_BC.astype(np.float64)
  np.testing.assert_allclose(loss, np.logaddexp(0, exact_BC).sum(), rtol=1e-6)
  np.testing.assert_allclose(dlogits_BC, 1 / (1 + np.exp(-exact_BC)), rtol=1e-5)
  assert dlogits_BC[0, 3] == 0


@pytest.mark.parametrize('logit', [-80.0, -17.0, 88.0, 1e4])
def test_no_digit_of_an_absent_label_is_lost(logit):
  z_BC = np.full((32, 5), logit)
  loss, _ = absent(z_BC)
  np.testing.assert_allclose(loss, np.logaddexp(0, z_BC).sum(), rtol=1e-6)


def test_certain_and_uncertain_labels_share_a_logarithm():
  z_BC = np.array([-80.0, 1e4, -1e4, -40.0, 0.5, -np.inf, 30.0, -20.0])[:, None]
  loss, _ = absent(z_BC)
  np.testing.assert_allclose(loss, np.logaddexp(0, z_BC).sum(), rtol=1e-6)
  loss, _ = absent(np.full((16, 3), -np.inf))
  assert loss == 0


def test_a_logit_that_is_no_number_is_not_hidden():
  assert np.isnan(absent(np.array([[np.nan], [1.0]]))[0])
