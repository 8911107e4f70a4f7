"""Sums over labels: by hand, of slices, of replicates."""

import jax
import numpy as np

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


def test_names_of_bins():
  ends = {'0': [0], '1-9': [1, 9], '10-99': [10, 99], '100-999': [100, 999]}
  ends['1000+'] = [1000, 10**9]
  assert [bin_name(*each) for each in BINS] == list(ends)
  counts = np.array([0, 1, 9, 10, 99, 100, 999, 1000, 10**9])
  found = {name: counts[mask] for name, mask in in_bins(counts).items()}
  assert {name: each.tolist() for name, each in found.items()} == ends
