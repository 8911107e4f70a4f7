"""Computes sums over labels from each label's counts."""

from collections.abc import Iterable, Mapping
import functools

from jaxtyping import Bool, Int
import numpy as np

from xjax.core.errors import ConfigError
from xjax.judge.metrics.metric import LabelCounts, LabelMetric, Value

# Ranges of a label's number of training documents, with both ends. Except for
# the bin of 0 documents, these are the bins of "Re-evaluating Extreme
# Multi-label Text Classification Methods in Tail Label Prediction" (anonymous
# ACL submission), section 4.
BINS = {
  '0': (0, 0),
  '1-9': (1, 9),
  '10-99': (10, 99),
  '100-999': (100, 999),
  '1000+': (1000, np.inf),
}


def in_bins(
  train_counts: Int[np.ndarray, ' L'],
) -> dict[str, Bool[np.ndarray, ' L']]:
  """Returns the labels of each frequency bin, bool [L], by name of the bin."""
  return {
    name: (train_counts >= low) & (train_counts <= high)
    for name, (low, high) in BINS.items()
  }


def label_sums(
  labels: LabelCounts,
  end: str,
  metrics: Iterable[LabelMetric],
  bins: Mapping[str, Bool[np.ndarray, ' L']],
) -> dict[str, Value]:
  """Computes the sums over labels for the set of decisions with a suffix `end`.

  They have names such as `NAME@5`, or `NAME@5[1-9]` for a bin, if the metric
  has is_binned. The sums of R replicates are [R].
  """
  sums = {}
  with np.errstate(divide='ignore', over='ignore', invalid='ignore'):
    for metric in metrics:
      for name, function in metric.sums().items():
        terms_L = function(labels)
        sums[f'{name}{end}'] = terms_L.sum(0)
        for bin_, bin_L in bins.items() if metric.is_binned else ():
          sums[f'{name}{end}[{bin_}]'] = terms_L[bin_L].sum(0)
  return sums


@functools.cache
def check_adds_zero(metric: LabelMetric) -> None:
  """Checks that a label adds 0 to a metric's sums if all its counts are 0.

  Labels that are neither predicted nor gold may be left out of the sums.
  """
  none = LabelCounts(*[np.zeros(1)] * 3, n_docs=1)
  with np.errstate(divide='ignore', over='ignore', invalid='ignore'):
    values = [function(none) for function in metric.sums().values()]
  if any(float(value_L[0]) for value_L in values):
    raise ConfigError(
      f'{type(metric).__qualname__}: {metric.name} must add 0 for a label '
      'that is neither predicted nor gold'
    )
