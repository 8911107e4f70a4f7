"""Fitted sigmoids, rising curves, reliability: slow loops and scikit-learn."""

import math

from hypothesis import example, given, settings, strategies as st
import numpy as np
import pytest
from sklearn.calibration import _sigmoid_calibration
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from xjax.judge.metrics import calibration_error
from xjax.judge.metrics.calibration_error import (
  CannotFit,
  Curve,
  Sigmoid,
  fit_isotonic,
  fit_platt,
  log_loss,
  platt_targets,
  reliability,
  sigmoid,
)


def drawn(n, a, b, seed=0, spread=3.0):
  """Scores whose probability of being right is sigmoid(a z + b)."""
  rng = np.random.default_rng(seed)
  scores = rng.normal(0, spread, n).astype(np.float32)
  return scores, rng.random(n) < sigmoid(a * scores + b)


def risen(n):
  """Scores whose probability of being right rises to 0.6."""
  rng = np.random.default_rng(0)
  scores = rng.normal(0, 3, n).astype(np.float32)
  return scores, rng.random(n) < 0.6 * sigmoid(2.0 * scores)


def fitted(scores, correct):
  return fit_isotonic(scores, correct, fit_platt(scores, correct))


@pytest.mark.parametrize('seed', range(2))
@pytest.mark.parametrize(('a', 'b'), [(1, 0), (0.02, -3), (6, 1)])
def test_platt_as_scikit_learn_has_it(a, b, seed):
  scores, correct = drawn(800, a, b, seed)
  found = fit_platt(scores, correct)
  # Theirs stops early: it is at most as good, and nearly the same.
  theirs = Sigmoid(*(-v for v in _sigmoid_calibration(scores, correct)))
  targets = platt_targets(correct)
  t = np.where(correct, targets[1], targets[0])
  losses = [log_loss(f.logits(scores), t) for f in (found, theirs)]
  assert losses[0] <= losses[1] + 1e-15
  assert losses[0] == pytest.approx(losses[1], abs=1e-6)
  # Run to the end, with a decision of weight t and one of weight 1 - t each.
  exact = LogisticRegression(C=np.inf, solver='newton-cholesky', tol=1e-12).fit(
    np.tile(scores.astype(np.float64), 2)[:, None],
    np.repeat([1, 0], len(scores)),
    sample_weight=np.concatenate([t, 1 - t]),
  )
  assert found.a == pytest.approx(exact.coef_[0, 0], rel=1e-6)
  assert found.b == pytest.approx(exact.intercept_[0], rel=1e-6, abs=1e-6)


def test_scores_far_from_zero_and_of_another_unit():
  scores, correct = drawn(2000, 1, 0)
  found = fit_platt(scores.astype(np.float64), correct)
  moved = fit_platt(1e-3 * scores.astype(np.float64) + 1e4, correct)
  assert moved.a == pytest.approx(1e3 * found.a, rel=1e-6)
  assert moved.b == pytest.approx(found.b - 1e7 * found.a, rel=1e-6)


def test_the_same_bits_again():
  scores, correct = drawn(5000, 0.5, 1)
  for fit in (fit_platt, fitted):
    assert fit(scores, correct) == fit(scores.copy(), correct.copy())


FINITE = st.floats(-50, 50, width=32)
EXTREME = st.sampled_from([-1e30, -1, -1e-30, 0, 1e-30, 2, 1e30])
# The loss of these falls by rounding alone.
ROUNDING = [(-1e30, True), *[(-1.0, False)] * 2, *[(-1.0, True)] * 4]
ROUNDING += [(1e30, True), (1e-30, False), *[(1e-30, True)] * 3]


@settings(max_examples=50, deadline=None)
@example(ROUNDING)
@given(st.lists(st.tuples(EXTREME, st.booleans()), min_size=1, max_size=12))
def test_extreme_scores_give_finite_sigmoids(pairs):
  scores = np.array([z for z, _ in pairs], np.float32)
  correct = np.array([c for _, c in pairs])
  try:
    fit = fit_platt(scores, correct)
  except CannotFit:
    return
  assert fit.a > 0 and math.isfinite(fit.a) and math.isfinite(fit.b)
  probabilities = fit(np.sort(scores))
  assert ((probabilities >= 0) & (probabilities <= 1)).all()
  assert (np.diff(probabilities) >= 0).all()


def test_log_loss_by_hand():
  logits, targets = np.array([2.0, -1.0, 0.5]), np.array([1.0, 0.25, 0.0])
  p = 1 / (1 + np.exp(-logits))
  expected = -targets * np.log(p) - (1 - targets) * np.log(1 - p)
  assert log_loss(logits, targets) == pytest.approx(expected.mean(), abs=1e-12)
  huge = np.array([1e30, -1e30], np.float32)
  right = np.array([True, False])
  assert log_loss(huge, right) == 0
  assert log_loss(huge, ~right) == pytest.approx(1e30)


@pytest.mark.parametrize(
  ('scores', 'correct', 'says'),
  [
    ([], [], 'no decisions'),
    ([1, -1], [True, True], 'every listed label is correct'),
    ([1, -1], [False, False], 'every listed label is wrong'),
    ([2, 2, 2], [True, False, True], 'all scores are equal'),
    ([1, np.inf, -1], [True, False, True], 'not finite'),
    ([1, np.nan, -1], [True, False, True], 'not finite'),
    ([3, -1, -2, 1], [False, True, False, False], 'do not tend to have higher'),
  ],
)
def test_where_nothing_can_be_fitted_it_says_why(scores, correct, says):
  with pytest.raises(CannotFit, match=says):
    fit_platt(np.array(scores, np.float32), np.array(correct, bool))


def test_separated_scores_have_a_sigmoid():
  scores = np.array([4, 3, -1, -2], np.float32)
  correct = np.array([True, True, False, False])
  found = fit_platt(scores, correct)
  assert platt_targets(correct) == (1 / 4, 3 / 4)
  means = found(scores[:2]).mean() + found(scores[2:]).mean()
  np.testing.assert_allclose(means, 1)  # what the targets allow


def test_a_diagram_by_hand(monkeypatch):
  monkeypatch.setattr(calibration_error, '_BINS', 4)
  found = reliability(
    np.array([0, 0.1, 0.25, 0.3, 0.5, 0.9, 1.0]),
    np.array([False, True, False, True, True, False, True]),
  )
  np.testing.assert_array_equal(found.edges, [0, 0.25, 0.5, 0.75, 1])
  np.testing.assert_array_equal(found.counts, [3, 2, 0, 2])
  assert found.counts.dtype == np.int64
  np.testing.assert_allclose(found.confidence, [0.35 / 3, 0.4, 0, 0.95])
  np.testing.assert_allclose(found.accuracy, [1 / 3, 1, 0, 0.5])
  # (|1 - .35| + |2 - .8| + |1 - 1.9|) / 7
  assert found.ece == pytest.approx((0.65 + 1.2 + 0.9) / 7)


def test_extremes_of_reliability():
  none = reliability(np.zeros(0), np.zeros(0, bool))
  assert none.ece == 0 and none.counts.tolist() == [0] * 15
  assert not np.isnan([none.confidence, none.accuracy]).any()
  certain = np.array([1.0, 1.0, 0.0])
  assert reliability(certain, certain == 1).ece == 0
  assert reliability(certain, certain == 0).ece == 1
  for wrong in (1.5, -0.1, np.nan):
    with pytest.raises(ValueError, match='from 0 to 1'):
      reliability(np.array([0.5, wrong]), np.array([True, False]))


def test_between_knots_the_logit_is_a_line_and_outside_too():
  curve = Curve(((0.0, -1.0), (2.0, 3.0)), 0.5)
  np.testing.assert_allclose(
    curve(np.array([-np.inf, -2, 0, 1, 2, 4, np.inf])),
    sigmoid(np.array([-np.inf, -2, -1, 1, 3, 4, np.inf])),
  )


def test_isotonic_regression_as_scikit_learn_has_it():
  scores, correct = risen(20_000)
  theirs = IsotonicRegression().fit(scores, correct).predict(scores)
  ours = fitted(scores, correct)(scores)
  # Steps of few decisions are nearer to the sigmoid than theirs.
  assert np.mean(np.abs(ours - theirs)) < 0.003
  assert np.abs(ours - theirs)[(theirs > 0.05) & (theirs < 0.55)].max() < 0.05


@settings(max_examples=60, deadline=None)
@given(
  st.lists(st.tuples(FINITE | EXTREME, st.booleans()), min_size=2, max_size=60)
)
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
