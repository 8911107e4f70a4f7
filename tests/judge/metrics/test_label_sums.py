"""Sums over labels at the limits of rounding, and the bins of labels."""

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
from xjax.judge.metrics.labels import AlphaCoverage


def totals(correct, gold, metrics=()):
  """The sums over one label, whose predictions are all correct."""
  counts = (np.array([n]) for n in (correct, correct, gold))
  table = LabelTable.of(np.ones(1, bool), {})
  with exact():
    found, _ = label_sums(*counts, table, np.float64(10), metrics)
    return jax.tree.map(np.asarray, found)


def test_a_recall_that_is_met_to_the_last_bit():
  for correct, gold, alpha in ((51, 75, 0.68), (7, 10, 0.7), (1, 3, 1 / 3)):
    found = totals(correct, gold, (AlphaCoverage(alpha),))
    assert found[f'AlphaCoverage.over[alpha={alpha}]'] == 1


def test_counts_beyond_float32():
  assert float(totals(2**24 + 1, 2**24 + 1)['correct']) == 2**24 + 1


def test_names_of_bins():
  ends = {'0': [0], '1-9': [1, 9], '10-99': [10, 99], '100-999': [100, 999]}
  ends['1000+'] = [1000, 10**9]
  assert [bin_name(*each) for each in BINS] == list(ends)
  counts = np.array([0, 1, 9, 10, 99, 100, 999, 1000, 10**9])
  found = {name: counts[mask] for name, mask in in_bins(counts).items()}
  assert {name: each.tolist() for name, each in found.items()} == ends
