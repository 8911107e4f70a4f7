"""Sums over labels: by hand, of slices, of replicates."""

import jax
import numpy as np
import pytest

from xjax.judge.metrics.exact import exact
from xjax.judge.metrics.label_sums import (
  BINS,
  LabelTable,
  bin_name,
  in_bins,
  label_sums,
)
from xjax.judge.metrics.metric import LabelMetric, SumLayout, metric_classes

# Five labels, of which the last is neither predicted nor gold.
CORRECT = np.array([2, 0, 1, 0, 0])
PREDICTED = np.array([4, 3, 1, 0, 0])
GOLD = np.array([2, 1, 4, 5, 0])
FORM = SumLayout(alphas=(0.0, 0.25, 1.0), draws=(1, 3))
N_DOCS = 10
EVERY = np.ones(5, bool)


F1 = 'MacroF1AtThreshold.over'


def every(form):
  kinds = [cls for cls in metric_classes() if issubclass(cls, LabelMetric)]
  ours = [cls for cls in kinds if cls.__module__.startswith('xjax.')]
  return tuple(metric for cls in ours for metric in cls.variants(form))


def summed(
  correct=CORRECT, predicted=PREDICTED, gold=GOLD, table=None, form=FORM
):
  parts = correct, predicted, gold, table or LabelTable.of(EVERY, {})
  with exact():
    found = label_sums(*parts, np.float64(N_DOCS), every(form))
    return jax.tree.map(np.asarray, found)


def test_by_hand():
  totals, _ = summed()
  f1 = [2 * 2 / (4 + 2), 0, 2 * 1 / (1 + 4), 0, 0]
  wanted = {
    'correct': 3,
    'predicted': 8,
    'MacroPrecision.over': 2 / 4 + 1,
    'MacroRecall.over': 1 + 1 / 4,
    F1: sum(f1),
    'WeightedF1.over': f1[0] * 2 + f1[2] * 4,
    'MacroFHalf.over': 1.25 * 2 / (0.25 * 2 + 4) + 1.25 / (0.25 * 4 + 1),
    'MacroFTwo.over': 5 * 2 / (4 * 2 + 4) + 5 / (4 * 4 + 1),
    'Coverage.over': 2,
    'AlphaCoverage.over[alpha=0.0]': 2,
    'AlphaCoverage.over[alpha=0.25]': 2,
    'AlphaCoverage.over[alpha=1.0]': 1,
    'SampledCoverage.over[n_drawn=1]': 0.2 + 0.1,
    'SampledCoverage.over[n_drawn=3]': (1 - 0.8**3) + (1 - 0.9**3),
    'Entropy.over': 2 * np.log2(2) + 0,
    'labels up to largest': 4,
  }
  found = {name: float(value) for name, value in totals.items()}
  assert found == pytest.approx(wanted, rel=1e-14)


def test_a_recall_that_is_met_to_the_last_bit():
  for correct, gold, alpha in ((51, 75, 0.68), (7, 10, 0.7), (1, 3, 1 / 3)):
    counts = (np.array([n]) for n in (correct, correct, gold))
    form = SumLayout(alphas=(alpha,), draws=())
    one = LabelTable.of(np.ones(1, bool), {})
    totals, _ = summed(*counts, one, form)
    assert totals[f'AlphaCoverage.over[alpha={alpha}]'] == 1


def test_counts_beyond_float32():
  big = np.array([2**24 + 1])
  totals, _ = summed(big, big, big, LabelTable.of(np.ones(1, bool), {}))
  assert float(totals['correct']) == 2**24 + 1


def test_labels_up_to_the_largest_are_those_of_the_slice():
  mask = np.array([1, 0, 1, 1, 1], bool)
  totals, _ = summed(*(x * mask for x in (CORRECT, PREDICTED, GOLD)))
  assert totals['labels up to largest'] == 4
  table = LabelTable.of(mask, {})
  totals, _ = summed(*(x * mask for x in (CORRECT, PREDICTED, GOLD)), table)
  assert totals['labels up to largest'] == 3
  none = np.zeros(5, np.int64)
  assert summed(none, none, none, table)[0]['labels up to largest'] == 0
  # Predicted, and never gold, is seen too.
  last = np.array([0, 0, 0, 0, 1])
  assert summed(none, last, none, table)[0]['labels up to largest'] == 4


def test_bins():
  bins = {'a': np.array([1, 1, 0, 0, 0], bool), 'b': ~EVERY}
  _, binned = summed(table=LabelTable.of(EVERY, bins))
  assert list(binned) == [F1]
  np.testing.assert_allclose(binned[F1], [2 / 3, 0])
  assert not summed()[1]


def test_replicates_are_sums_of_their_own():
  weights = np.array([1, 2, 0, 3])[:, None]
  bins = {'a': np.array([1, 1, 0, 0, 0], bool)}
  table = LabelTable.of(EVERY, bins)
  many = [x * weights for x in (CORRECT, PREDICTED, GOLD)]
  totals_R, binned_RF = summed(*many, table)
  for r in range(4):
    totals, binned = summed(*(x[r] for x in many), table)
    for name, value in totals.items():
      assert totals_R[name][r] == pytest.approx(float(value), abs=1e-14), name
    np.testing.assert_allclose(binned_RF[F1][r], binned[F1], atol=1e-14)


def test_labels_without_decisions_may_be_left_out():
  bins = {'a': np.array([1, 0, 1, 0, 1], bool)}
  table = LabelTable.of(EVERY, bins)
  kept = np.array([0, 1, 2, 3])
  whole = summed(table=table)
  counts = (x[kept] for x in (CORRECT, PREDICTED, GOLD))
  part = summed(*counts, table.take(kept))
  for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(part), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-15)


def test_names_of_bins():
  ends = {'0': [0], '1-9': [1, 9], '10-99': [10, 99], '100-999': [100, 999]}
  ends['1000+'] = [1000, 10**9]
  assert [bin_name(*each) for each in BINS] == list(ends)
  counts = np.array([0, 1, 9, 10, 99, 100, 999, 1000, 10**9])
  found = {name: counts[mask] for name, mask in in_bins(counts).items()}
  assert {name: each.tolist() for name, each in found.items()} == ends
