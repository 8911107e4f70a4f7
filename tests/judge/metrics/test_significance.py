"""Intervals, p-values and corrections, beside slow ones and SciPy's."""

import itertools

import numpy as np
import pytest
import scipy.stats

from xjax.judge.metrics.significance import (
  Interval,
  holm,
  interval,
  paired_t_p,
  randomization_p,
)


def test_an_interval_by_hand():
  replicates = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
  middle = interval(replicates, 2.0, level=0.5)
  assert middle == Interval(1.0, 3.0, float(np.std(replicates, ddof=1)))
  # The replicates are all lower than the value: their bias is taken off.
  moved = interval(replicates, 7.0, level=0.5)
  assert (moved.low, moved.high, moved.error) == (6.0, 8.0, middle.error)


def test_replicates_without_a_value_are_left_out():
  some = np.array([np.nan, 1.0, 3.0, np.nan])
  found = interval(some, 2.0, level=1.0)
  assert (found.low, found.high) == (1.0, 3.0)
  assert found.error == pytest.approx(np.sqrt(2))
  assert interval(np.array([np.nan, np.nan, 3.0, 4.0, np.nan]), 3.5) is None
  assert interval(np.array([2.0]), 2.0) is None


def test_randomization_counts_what_is_no_smaller():
  ours, theirs = np.array([3.0, 1.0, 2.0, 5.0]), np.array([1.0, 3.0, 2.0, 2.0])
  # |differences| 2, 2, 0, 3; seen: 2.
  assert randomization_p(3.0, 1.0, ours, theirs) == (1 + 3) / (1 + 4)
  assert randomization_p(1.0, 3.0, theirs, ours) == (1 + 3) / (1 + 4)
  assert randomization_p(1.0, 1.0, ours, theirs) == 1


def test_rounding_does_not_break_ties():
  ours, theirs = np.full(9, 0.1 + 0.2), np.full(9, 0.1)
  assert randomization_p(0.3, 0.1, ours, theirs) == 1
  ours -= 1e-16
  assert randomization_p(0.3, 0.1, ours, theirs) == 1
  ours -= 1e-6
  assert randomization_p(0.3, 0.1, ours, theirs) == 1 / 10


def test_iterations_without_a_value_make_no_difference_significant():
  nothing = np.full(9, np.nan)
  assert randomization_p(3.0, 1.0, nothing, nothing) == 1


@pytest.mark.parametrize('n', [2, 11, 500])
def test_the_t_test_is_that_of_scipy(n):
  rng = np.random.default_rng(n)
  ours, theirs = rng.random((2, n))
  expected = scipy.stats.ttest_rel(ours, theirs).pvalue
  assert paired_t_p(ours, theirs) == pytest.approx(expected, rel=1e-12)
  assert paired_t_p(theirs, ours) == paired_t_p(ours, theirs)


def test_the_t_test_without_variance():
  values = np.linspace(0, 1, 12)
  assert paired_t_p(values, values) == 1
  assert paired_t_p(values + 0.25, values) == 0
  assert paired_t_p(values, values + 0.1) == 0  # up to rounding
  with pytest.raises(ValueError, match='needs at least two'):
    paired_t_p(values[:1], values[:1])


def test_holm_rejects_what_the_stepwise_procedure_rejects():
  levels = 0.001, 0.011, 0.0124, 0.026, 0.04, 0.2
  for p_values in itertools.permutations(levels, 4):
    rejected, left = set(), sorted(range(4), key=p_values.__getitem__)
    while left and p_values[left[0]] <= 0.05 / len(left):
      rejected.add(left.pop(0))
    corrected = holm(p_values)
    assert {i for i, p in enumerate(corrected) if p <= 0.05} == rejected
