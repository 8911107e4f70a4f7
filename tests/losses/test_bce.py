"""The logarithms that absent labels share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.losses.bce import bce


def absent(logits_BC, weight_C=None):
  return jax.jit(bce.absent)(jnp.asarray(logits_BC, jnp.float32), weight_C)


@pytest.mark.parametrize('documents', [1, 3, 16, 24, 37, 48])
@pytest.mark.parametrize('scale', [1e-3, 3, 15])
def test_absent_labels_share_logarithms(documents, scale):
  rng = np.random.default_rng(documents)
  z_BC = rng.normal(size=(documents, 11), scale=scale).astype(np.float32)
  z_BC[0, 3] = -np.inf
  loss, dlogits_BC = absent(z_BC)
  exact_BC = z_BC.astype(np.float64)
  np.testing.assert_allclose(loss, np.logaddexp(0, exact_BC).sum(), rtol=1e-6)
  np.testing.assert_allclose(dlogits_BC, 1 / (1 + np.exp(-exact_BC)), rtol=1e-5)
  assert dlogits_BC[0, 3] == 0


@pytest.mark.parametrize('logit', [-80.0, -30.0, -17.0, 0.0, 17.0, 88.0, 1e4])
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
