"""Computes sums over labels from each label's counts."""

from collections.abc import Mapping, Sequence
import dataclasses

import jax
from jaxtyping import Bool, Float, Int
import numpy as np

from xjax.judge.metrics.exact import Array, exact, namespace
from xjax.judge.metrics.metric import (
  CORRECT,
  PREDICTED,
  UP_TO_LARGEST,
  LabelMetric,
  PerLabel,
)

# Ranges of a label's number of training documents. Both ends are included, and
# None means that there is no upper end. Except for the bin of 0 documents,
# these are the bins of "Re-evaluating Extreme Multi-label Text Classification
# Methods in Tail Label Prediction" (anonymous ACL submission), section 4.
BINS = ((0, 0), (1, 9), (10, 99), (100, 999), (1000, None))


def bin_name(low: int, high: int | None) -> str:
  """Returns the name of a frequency bin: '1-9', '0' or '1000+'."""
  if high is None:
    return f'{low}+'
  return f'{low}-{high}' if low < high else f'{low}'


BIN_NAMES = tuple(bin_name(low, high) for low, high in BINS)


def in_bins(
  train_counts: Int[np.ndarray, ' L'],
) -> dict[str, Bool[np.ndarray, ' L']]:
  """Returns the labels of each frequency bin, bool [L], by name of the bin."""
  return {
    bin_name(low, high): (train_counts >= low)
    & (train_counts <= (np.inf if high is None else high))
    for low, high in BINS
  }


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LabelTable:
  """Holds the slice and the frequency bins of labels, for label_sums."""

  upto_L: Array  # int64, labels of the slice up to each index
  bins_FL: Array  # bool, the labels of each frequency bin

  @classmethod
  def of(
    cls,
    mask: Bool[np.ndarray, ' L'],
    bins: Mapping[str, Bool[np.ndarray, ' L']],
  ) -> 'LabelTable':
    """Makes the table of a slice."""
    none = np.zeros((0, len(mask)), bool)
    return cls(np.cumsum(mask), np.stack([*bins.values()]) if bins else none)

  def take(self, labels: Int[np.ndarray, ' H']) -> 'LabelTable':
    """Returns a table that has only the given labels."""
    return LabelTable(self.upto_L[labels], self.bins_FL[:, labels])


# With at most this many labels, NumPy computes the sums in less time than XLA
# needs to compile them.
_NUMPY_UP_TO = 1 << 19


def label_sums(
  correct_L: Int[Array, '*R L'],
  predicted_L: Int[Array, '*R L'],
  gold_L: Int[Array, '*R L'],
  table: LabelTable,
  n_docs: Float[Array, ''] | np.ndarray | np.floating,
  metrics: tuple[LabelMetric, ...],
) -> tuple[dict[str, Float[Array, '*R']], dict[str, Float[Array, '*R F']]]:
  """Computes the sums over labels for one set of decisions.

  A label that is neither predicted nor gold adds 0 to every sum and may be left
  out. Leading axes are replicates. n_docs includes documents without gold.

  Returns:
    totals: name -> sum over all labels. But `labels up to largest` is the
      number of labels of the slice up to the largest index of a predicted or
      gold label.
    binned: name -> one sum per bin, only for metrics with is_binned.
  """
  xp, counts = namespace(correct_L), (correct_L, predicted_L, gold_L)
  labels = PerLabel(*(x.astype(np.float64) for x in counts), n_docs)
  terms = {CORRECT: labels.correct_L, PREDICTED: labels.predicted_L}
  binned = {}
  for metric in metrics:
    for name, function in metric.sums().items():
      if name not in terms:
        terms[name] = function(labels)
      if metric.is_binned:
        bin_sums = [
          xp.where(bin_L, terms[name], 0).sum(-1) for bin_L in table.bins_FL
        ]
        if bin_sums:
          binned[name] = xp.stack(bin_sums, -1)
  totals = {
    name: xp.asarray(values_L.sum(-1)) for name, values_L in terms.items()
  }
  seen_L = xp.where(labels.predicted_L + labels.gold_L > 0, table.upto_L, 0)
  largest = seen_L.max(-1, initial=0)
  totals[UP_TO_LARGEST] = xp.asarray(largest, np.float64)
  return totals, binned


_compiled = jax.jit(label_sums, static_argnames='metrics')


def named_sums(
  correct_L: Int[Array, ' L'],
  predicted_L: Int[Array, ' L'],
  gold_L: Int[Array, ' L'],
  end: str,
  bins: Sequence[str],
  table: LabelTable,
  n_docs: int,
  metrics: tuple[LabelMetric, ...],
) -> dict[str, float]:
  """Computes label_sums, by `correct@5`, or `NAME@5[1-9]` for a bin."""
  compute = label_sums if len(correct_L) <= _NUMPY_UP_TO else _compiled
  with exact():
    totals, binned = compute(
      correct_L, predicted_L, gold_L, table, np.float64(n_docs), metrics
    )
    sums = {f'{name}{end}': float(value) for name, value in totals.items()}
    for name, values_F in binned.items():
      for bin_, value in zip(bins, np.asarray(values_F).tolist(), strict=True):
        sums[f'{name}{end}[{bin_}]'] = value
  return sums
