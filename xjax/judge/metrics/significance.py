"""How sure a number is, and whether two differ."""

from collections.abc import Sequence
import dataclasses

import numpy as np
import scipy.special

# Numbers that differ by less than this share of them are the same: those of
# replicates are added up in another order.
_ROUNDING = 1e-10


@dataclasses.dataclass(frozen=True)
class Interval:
  """Where a number lies.

  Attributes:
    low: lower end.
    high: upper end.
    error: standard error.
  """

  low: float
  high: float
  error: float


def interval(
  values_R: np.ndarray,
  value: float,
  level: float = 0.95,
  left_out_values: np.ndarray | None = None,
) -> Interval | None:
  """The percentile interval of bootstrap replicates, about the value.

  It is moved by the value less the mean of the replicates (Efron 1979,
  section 8: their bias). Means and ratios over documents hardly have any; but a
  replicate lacks a third of the documents, so of labels with few documents
  fewer are found in it: coverage and macro-averages of most replicates, or
  all, are below the value. They also vary less than those of new documents
  would: where the jackknife finds a larger standard error, the interval is
  stretched to it.

  Args:
    values_R: float64 [R]; NaN for a replicate without a value, in which there
      is nothing to divide by: it is left out.
    value: of all documents, as often as they are.
    level: share of the replicates that lie within.
    left_out_values: float64 [groups], the values without each group of
      documents, groups of one size; None: no jackknife.

  Returns:
    None where fewer than half of the replicates, or fewer than two, have a
    value.
  """
  known = values_R[~np.isnan(values_R)]
  if len(known) < max(2, len(values_R) / 2):
    return None
  ends = np.quantile(known, [(1 - level) / 2, (1 + level) / 2]) - known.mean()
  error = known.std(ddof=1)
  wider = 0.0 if left_out_values is None else jackknife_error(left_out_values)
  if wider > error > 0:
    ends, error = ends * (wider / error), wider
  low, high = value + ends
  return Interval(float(low), float(high), float(error))


def jackknife_error(left_out_values: np.ndarray) -> float:
  """The standard error by the delete-a-group jackknife (Quenouille 1956).

  sqrt((groups - 1) / groups * sum of squares about the mean). 0 where a
  value is not known (NaN), or there is one group.
  """
  known = left_out_values[~np.isnan(left_out_values)]
  if len(known) < len(left_out_values) or len(known) < 2:
    return 0.0
  return float(np.sqrt((len(known) - 1) * known.var()))


def randomization_p(
  ours: float, theirs: float, ours_R: np.ndarray, theirs_R: np.ndarray
) -> float:
  """The p-value of approximate randomization, two-sided (Noreen 1989).

  (1 + the iterations whose difference is no smaller) / (1 + iterations).
  Chalkidis et al. 2019, section 5, test so.

  Args:
    ours: value of one system.
    theirs: of the other.
    ours_R: float64 [R], of the first in each iteration, in which some
      documents' outputs were exchanged. An iteration that has no value counts
      as one with a large difference: the p-value can only be too high.
    theirs_R: of the other.
  """
  values = np.abs([ours, theirs])
  least = abs(ours - theirs) - _ROUNDING * values.max()
  smaller = np.abs(ours_R - theirs_R) < least
  return (1 + int(np.sum(~smaller))) / (1 + len(smaller))


def paired_t_p(ours_L: np.ndarray, theirs_L: np.ndarray) -> float:
  """The p-value of the paired t-test, two-sided.

  Over the F1 of labels it is the macro t-test of Yang & Liu 1999, section 4.3.

  Args:
    ours_L: float64 [L], at least two.
    theirs_L: the same of the other system.

  Returns:
    1 where all are the same in both; 0 where all differ by the same, for
    which chance has no room.
  """
  difference_L = np.asarray(ours_L, np.float64) - theirs_L
  n = len(difference_L)
  if n < 2:
    raise ValueError(f'{n} pairs: a t-test needs two')
  if not difference_L.any():
    return 1.0
  error = difference_L.std(ddof=1) / np.sqrt(n)
  if error <= _ROUNDING * np.abs(difference_L).max():
    return 0.0
  t = abs(difference_L.mean()) / error
  return float(2 * scipy.special.stdtr(n - 1, -t))


def holm(p_values: Sequence[float]) -> list[float]:
  """P-values corrected for how many there are (Holm 1979), in their order.

  The i-th smallest of m is multiplied by m - i + 1; none is below a smaller
  one, nor above 1. Those at most alpha are significant at alpha together.
  """
  p_M = np.asarray(p_values, np.float64)
  order = np.argsort(p_M, kind='stable')
  raised = p_M[order] * np.arange(len(p_M), 0, -1)
  corrected = np.empty_like(p_M)
  corrected[order] = np.minimum(np.maximum.accumulate(raised), 1.0)
  return corrected.tolist()


def relative(ours: np.ndarray, base: np.ndarray) -> np.ndarray:
  """Improvement over a baseline as a share of it; NaN where that is 0.

  Paper on binned macro-F1, section 5.2 and Fig. 3.
  """
  base = np.asarray(base, np.float64)
  return (ours - base) / np.where(base > 0, base, np.nan)
