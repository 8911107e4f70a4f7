"""Sums over labels of what each label's counts say."""

from collections.abc import Mapping, Sequence
from functools import partial

from flax import struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np

from xjax.judge.metrics.contract import (
  CORRECT,
  PREDICTED,
  UP_TO_LARGEST,
  LabelMetric,
  PerLabel,
)
from xjax.judge.metrics.exact import exact

# By training documents, from and to (None: no end); the paper on binned
# macro-F1, section 4, begins at 1.
BINS = ((0, 0), (1, 9), (10, 99), (100, 999), (1000, None))


def bin_name(low: int, high: int | None) -> str:
  """'1-9', '0' or '1000+'."""
  if high is None:
    return f'{low}+'
  return f'{low}-{high}' if low < high else f'{low}'


BIN_NAMES = tuple(bin_name(low, high) for low, high in BINS)


def in_bins(train_counts: np.ndarray) -> dict[str, np.ndarray]:
  """Bin name -> bool [L], labels by their number of training documents."""
  return {
    bin_name(low, high): (train_counts >= low)
    & (train_counts <= (np.inf if high is None else high))
    for low, high in BINS
  }


@struct.dataclass
class LabelTable:
  """What sums over labels need to know of the labels.

  Attributes:
    upto_L: int64, how many labels of the slice there are up to each.
    bins_FL: bool, the labels of each frequency bin.
  """

  upto_L: jax.Array | np.ndarray
  bins_FL: jax.Array | np.ndarray

  @classmethod
  def of(cls, mask: np.ndarray, bins: Mapping[str, np.ndarray]) -> 'LabelTable':
    """Of a slice, bool [L], and its bins, each bool [L]."""
    none = np.zeros((0, len(mask)), bool)
    return cls(np.cumsum(mask), np.stack([*bins.values()]) if bins else none)

  def take(self, labels: np.ndarray) -> 'LabelTable':
    """The columns of these labels."""
    return LabelTable(self.upto_L[labels], self.bins_FL[:, labels])


@partial(jax.jit, static_argnames='metrics')
def label_sums(
  correct_L: Int[Array | np.ndarray, '*R L'],
  predicted_L: Int[Array | np.ndarray, '*R L'],
  gold_L: Int[Array | np.ndarray, '*R L'],
  table: LabelTable,
  n_docs: Float[Array, ''] | np.ndarray | np.floating,
  metrics: tuple[LabelMetric, ...],
) -> tuple[dict[str, Float[Array, '*R']], dict[str, Float[Array, '*R F']]]:
  """Sums over labels for one set of decisions.

  Labels that are neither predicted nor gold add nothing and may be left out.

  Args:
    correct_L: predicted and gold; leading axes are replicates.
    predicted_L: documents that the label is predicted for.
    gold_L: documents that have it.
    table: of these labels.
    n_docs: documents there are, those without gold as well.
    metrics: whose sums are taken.

  Returns:
    name -> float64 sum: `correct`, `predicted`, `labels up to largest` and
    those of the metrics; and name -> the sums of each bin, of those that are
    told by bin.
  """
  labels = PerLabel(
    *(jnp.asarray(x, jnp.float64) for x in (correct_L, predicted_L, gold_L)),
    jnp.asarray(n_docs),
  )
  each = {CORRECT: labels.correct_L, PREDICTED: labels.predicted_L}
  binned = {}
  for metric in metrics:
    for name, function in metric.sums().items():
      if name not in each:
        each[name] = function(labels)
      if metric.is_binned:
        of_bins = [
          jnp.where(bin_L, each[name], 0).sum(-1) for bin_L in table.bins_FL
        ]
        if of_bins:
          binned[name] = jnp.stack(of_bins, -1)
  totals = {name: values_L.sum(-1) for name, values_L in each.items()}
  seen_L = jnp.where(labels.predicted_L + labels.gold_L > 0, table.upto_L, 0)
  totals[UP_TO_LARGEST] = seen_L.max(-1, initial=0).astype(jnp.float64)
  return totals, binned


def named_sums(
  correct_L: Int[Array | np.ndarray, ' L'],
  predicted_L: Int[Array | np.ndarray, ' L'],
  gold_L: Int[Array | np.ndarray, ' L'],
  decisions: str,
  bins: Sequence[str],
  table: LabelTable,
  n_docs: int,
  metrics: tuple[LabelMetric, ...],
) -> dict[str, float]:
  """The sums of one set of decisions by name.

  Args:
    correct_L: as for label_sums.
    predicted_L: the same.
    gold_L: the same.
    decisions: what ends the names: `correct@5`; a bin comes after it.
    bins: names of the bins of the table.
    table: as for label_sums.
    n_docs: documents there are.
    metrics: whose sums are taken.
  """
  with exact():
    totals, binned = label_sums(
      correct_L, predicted_L, gold_L, table, np.float64(n_docs), metrics
    )
    sums = {f'{kind}{decisions}': float(v) for kind, v in totals.items()}
    for kind, values_F in binned.items():
      for bin_, value in zip(bins, np.asarray(values_F).tolist(), strict=True):
        sums[f'{kind}{decisions}[{bin_}]'] = value
  return sums
