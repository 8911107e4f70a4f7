import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.losses.bce import bce


def draw(seed=0, documents=5, labels=7):
  rng = np.random.default_rng(seed)
  logits = rng.normal(size=(documents, labels), scale=3).astype(np.float32)
  return jnp.asarray(logits), jnp.asarray(rng.random(logits.shape) < 0.3)


def test_golden():
  logits_BC = jnp.array([[0.0, jnp.log(3.0)]])
  loss_B, dlogits_BC = bce(logits_BC, jnp.array([[True, False]]))
  # -log 1/2 - log(1 - 3/4)
  np.testing.assert_allclose(loss_B, [np.log(2) + np.log(4)], rtol=1e-6)
  np.testing.assert_allclose(dlogits_BC, [[-0.5, 0.75]], rtol=1e-6)


def test_is_the_likelihood():
  logits_BC, targets_BC = draw()
  p = 1 / (1 + np.exp(-np.asarray(logits_BC, np.float64)))
  expected = -np.where(targets_BC, np.log(p), np.log1p(-p)).sum(axis=1)
  np.testing.assert_allclose(bce(logits_BC, targets_BC)[0], expected, 1e-5)


def test_derivative():
  logits_BC, targets_BC = draw()
  expected = jax.grad(lambda z: bce(z, targets_BC)[0].sum())(logits_BC)
  np.testing.assert_allclose(bce(logits_BC, targets_BC)[1], expected, atol=1e-6)


def test_documents_are_independent():
  logits_BC, targets_BC = draw()
  alone = [bce(z[None], y[None]) for z, y in zip(logits_BC, targets_BC)]
  loss_B, dlogits_BC = bce(logits_BC, targets_BC)
  np.testing.assert_allclose(loss_B, [x[0][0] for x in alone], rtol=1e-6)
  np.testing.assert_array_equal(dlogits_BC, [x[1][0] for x in alone])


def test_no_label_costs_nothing():
  logits_BC, targets_BC = draw()
  real_C = jnp.arange(7) < 4
  loss_B, dlogits_BC = bce(
    jnp.where(real_C, logits_BC, -jnp.inf), targets_BC & real_C
  )
  expected, _ = bce(logits_BC[:, :4], targets_BC[:, :4])
  np.testing.assert_allclose(loss_B, expected, rtol=1e-6)
  np.testing.assert_array_equal(dlogits_BC[:, 4:], 0)


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
def test_extremes(logit, target, loss, derivative):
  found = bce(jnp.array([[logit]], jnp.float32), jnp.array([[target]]))
  np.testing.assert_allclose(found[0], [loss], rtol=1e-5)
  np.testing.assert_allclose(found[1], [[derivative]], rtol=1e-5)
