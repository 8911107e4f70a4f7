"""Defines the checks that every loss must pass, each in its own test file."""

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

  def parts_are_the_whole(self):
    """Checks that gold and absent together have the values of __call__."""
    logits_BC, targets_BC = draw()
    weight_C = jnp.linspace(0, 2, 7)
    loss_BC, dlogits_BC = self.loss(logits_BC, targets_BC)
    gold = [np.asarray(x) for x in self.loss.gold(logits_BC)]
    others_BC = jnp.where(targets_BC, -jnp.inf, logits_BC)
    for given in (None, weight_C):
      loss, d_others_BC = self.loss.absent(others_BC, given)
      weigh_C = 1 if given is None else given
      np.testing.assert_allclose(
        loss, jnp.where(targets_BC, 0, loss_BC * weigh_C).sum(), rtol=1e-6
      )
      np.testing.assert_array_equal(d_others_BC[targets_BC], 0)
      expected_BC = jnp.where(targets_BC, 0, dlogits_BC * weigh_C)
      np.testing.assert_allclose(d_others_BC, expected_BC, 1e-6, 1e-7)
    for found_BC, expected_BC in zip(gold, (loss_BC, dlogits_BC)):
      np.testing.assert_allclose(
        found_BC[targets_BC], expected_BC[targets_BC], rtol=1e-6
      )

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
    self.parts_are_the_whole()


def draw():
  rng = np.random.default_rng(0)
  logits = rng.normal(size=(5, 7), scale=3).astype(np.float32)
  return jnp.asarray(logits), jnp.asarray(rng.random(logits.shape) < 0.3)


@pytest.fixture(scope='session')
def loss_trial():
  return Trial
