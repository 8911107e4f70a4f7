"""The bins of labels by frequency."""

import numpy as np

from xjax.judge.metrics.label_sums import in_bins


def test_names_of_bins():
  ends = {'0': [0], '1-9': [1, 9], '10-99': [10, 99], '100-999': [100, 999]}
  ends['1000+'] = [1000, 10**9]
  counts = np.array([0, 1, 9, 10, 99, 100, 999, 1000, 10**9])
  found = {name: counts[mask] for name, mask in in_bins(counts).items()}
  assert {name: each.tolist() for name, each in found.items()} == ends
