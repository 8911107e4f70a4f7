"""Isotonic regression of scores: rising, never certain, as in scikit-learn."""

from hypothesis import given, settings, strategies as st
import numpy as np
from sklearn.isotonic import IsotonicRegression

from xjax.judge.metrics.calibration_error import (
  CannotFit,
  Curve,
  Sigmoid,
  fit_isotonic,
  fit_platt,
  sigmoid,
)


def fitted(scores, correct):
  return fit_isotonic(scores, correct, fit_platt(scores, correct))


def drawn(n, seed=0):
  rng = np.random.default_rng(seed)
  scores = rng.normal(0, 3, n).astype(np.float32)
  return scores, rng.random(n) < 0.6 * sigmoid(2.0 * scores)


EXTREME = st.sampled_from([-1e30, -1, 0, 1e-30, 1, 2, 1e30])
SCORES = st.floats(-50, 50, width=32) | EXTREME


def test_between_knots_the_logit_is_a_line_and_outside_too():
  curve = Curve(((0.0, -1.0), (2.0, 3.0)), 0.5)
  np.testing.assert_allclose(
    curve(np.array([-np.inf, -2, 0, 1, 2, 4, np.inf])),
    sigmoid(np.array([-np.inf, -2, -1, 1, 3, 4, np.inf])),
  )


def test_as_scikit_learn_has_it():
  scores, correct = drawn(20_000)
  theirs = IsotonicRegression().fit(scores, correct).predict(scores)
  ours = fitted(scores, correct)(scores)
  # Steps of few decisions are nearer to the sigmoid than theirs.
  assert np.mean(np.abs(ours - theirs)) < 0.003
  assert np.abs(ours - theirs)[(theirs > 0.05) & (theirs < 0.55)].max() < 0.05


def test_few_scores_have_their_own_shares():
  scores = np.repeat([1.0, 2.0, 4.0], 1000)
  correct = np.tile(np.arange(1000) < 100, 3)
  correct[1000:2000] = np.arange(1000) < 600
  correct[2000:] = np.arange(1000) < 650
  shown = fitted(scores, correct)(np.array([1.0, 2.0, 4.0]))
  np.testing.assert_allclose(shown, [0.1, 0.6, 0.65], atol=2e-3)


def test_the_same_bits_again():
  assert fitted(*drawn(5000)) == fitted(*drawn(5000))


def test_steps_keep_the_order_of_their_scores():
  scores, correct = drawn(3000)
  shown = fitted(scores, correct)(np.unique(scores))
  assert (np.diff(shown) > 0).all()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(SCORES, st.booleans()), min_size=2, max_size=60))
def test_any_decisions_give_a_rising_curve(pairs):
  scores = np.array([z for z, _ in pairs], np.float32)
  correct = np.array([c for _, c in pairs])
  try:
    curve = fitted(scores, correct)
  except CannotFit:
    return
  knots = np.array(curve.knots)
  assert np.isfinite(knots).all() and (np.diff(knots, axis=0) > 0).all()
  shown = curve(np.concatenate([[-np.inf], np.unique(scores), [np.inf]]))
  assert (np.diff(shown) >= 0).all()
  assert shown[0] == 0 and shown[-1] == 1
  assert ((shown[1:-1] > 0) & (shown[1:-1] < 1)).all()


def test_a_constant_prior_is_no_fault():
  curve = fit_isotonic(
    np.array([1.0, 2.0]), np.array([False, True]), Sigmoid(1e-9, 0.0)
  )
  low, high = curve(np.array([1.0, 2.0]))
  assert 0 < low < 0.5 < high < 1
