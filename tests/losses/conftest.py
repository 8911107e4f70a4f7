"""What every loss must be: checked of each in its own file."""

from collections.abc import Callable
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@dataclasses.dataclass(frozen=True)
class Trial:
  """A loss to be tried.

  Attributes:
    loss: the ChunkLoss.
    reference: (z, y) -> its loss, by definition, in NumPy and float64.
  """

  loss: Callable
  reference: Callable

  def is_the_definition(self):
    logits_BC, targets_BC = draw()
    z, y = np.asarray(logits_BC, np.float64), np.asarray(targets_BC)
    loss_BC, _ = self.loss(logits_BC, targets_BC)
    np.testing.assert_allclose(loss_BC, self.reference(z, y), 1e-5)

  def derivative_is_the_slope(self):
    logits_BC, targets_BC = draw()
    slope_BC = jax.grad(lambda z: self.loss(z, targets_BC)[0].sum())(logits_BC)
    dlogits_BC = self.loss(logits_BC, targets_BC)[1]
    np.testing.assert_allclose(dlogits_BC, slope_BC, 1e-5, atol=1e-6)

  def documents_are_independent(self):
    logits_BC, targets_BC = draw()
    alone = jax.vmap(lambda z, y: self.loss(z[None], y[None]))
    for found, expected in zip(
      self.loss(logits_BC, targets_BC), alone(logits_BC, targets_BC)
    ):
      np.testing.assert_allclose(found, expected[:, 0], rtol=1e-6)

  def no_label_costs_nothing(self):
    logits_BC, targets_BC = draw()
    real_C = jnp.arange(7) < 4
    found = self.loss(
      jnp.where(real_C, logits_BC, -jnp.inf), targets_BC & real_C
    )
    expected = self.loss(logits_BC[:, :4], targets_BC[:, :4])
    for all_BC, real_BC in zip(found, expected):
      np.testing.assert_allclose(all_BC[:, :4], real_BC, rtol=1e-6)
      np.testing.assert_array_equal(all_BC[:, 4:], 0)

  def at(self, logit, target):
    """(loss, derivative) of one label."""
    found = self.loss(jnp.array([[logit]], jnp.float32), jnp.array([[target]]))
    return [float(x[0, 0]) for x in found]

  def check(self):
    """All that does not depend on what the loss is."""
    self.is_the_definition()
    self.derivative_is_the_slope()
    self.documents_are_independent()
    self.no_label_costs_nothing()


def draw(seed=0, documents=5, labels=7):
  rng = np.random.default_rng(seed)
  logits = rng.normal(size=(documents, labels), scale=3).astype(np.float32)
  return jnp.asarray(logits), jnp.asarray(rng.random(logits.shape) < 0.3)


@pytest.fixture(scope='session')
def loss_trial():
  return Trial
