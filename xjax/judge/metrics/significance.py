"""Computes confidence intervals and significance tests of metric values."""

from collections.abc import Sequence
import dataclasses

from jaxtyping import Float, Shaped
import numpy as np
import scipy.special

# Two numbers count as equal if their relative difference is below this number,
# because the rounding of a sum depends on the order of its terms.
_ROUNDING = 1e-10


@dataclasses.dataclass(frozen=True)
class Interval:
  """Holds a confidence interval of a value, and its standard error."""

  low: float
  high: float
  error: float


def interval(
  values_R: Float[np.ndarray, ' R'],
  value: float,
  level: float = 0.95,
  left_out_values: Float[np.ndarray, ' groups'] | None = None,
) -> Interval | None:
  """Computes the bias-corrected percentile interval of bootstrap replicates.

  The interval is shifted by the bootstrap's bias, the difference between the
  mean of the replicates and the value (Efron 1979, section 8).

  Coverage and macro-averages have a large bias, and vary less than the values
  on new documents would: labels with few documents are not in all replicates.
  So if the jackknife of `left_out_values`, the values without each of some
  groups of documents, gives a larger standard error, the interval is stretched
  by the ratio of the two errors.

  It is None if fewer than two, or fewer than half of the replicates, have a
  value. `level` is the share of the replicates inside the interval.
  """
  values = values_R[~np.isnan(values_R)]
  if len(values) < max(2, len(values_R) / 2):
    return None
  ends = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
  ends -= values.mean()
  error = values.std(ddof=1)
  wider = 0.0 if left_out_values is None else jackknife_error(left_out_values)
  if wider > error > 0:
    ends, error = ends * (wider / error), wider
  low, high = value + ends
  return Interval(float(low), float(high), float(error))


def jackknife_error(left_out_values: Float[np.ndarray, ' groups']) -> float:
  """Computes the standard error by the delete-a-group jackknife.

  It is sqrt((groups - 1) / groups * sum of squared deviations from the mean)
  (Quenouille 1956); 0 if a value is NaN, or if there are fewer than two groups.
  """
  if np.isnan(left_out_values).any() or len(left_out_values) < 2:
    return 0.0
  return float(np.sqrt((len(left_out_values) - 1) * left_out_values.var()))


def randomization_p(
  ours: float,
  theirs: float,
  ours_R: Float[np.ndarray, ' R'],
  theirs_R: Float[np.ndarray, ' R'],
) -> float:
  """Computes the two-sided p-value of approximate randomization.

  It is (1 + large) / (1 + R), where `large` is the number of iterations whose
  difference is at least the observed difference (Noreen 1989; Chalkidis et al.
  2019, section 5). An iteration without a value (NaN) counts in `large`, so
  that the p-value can only be too high.
  """
  values = np.abs([ours, theirs])
  least = abs(ours - theirs) - _ROUNDING * values.max()
  smaller = np.abs(ours_R - theirs_R) < least
  return (1 + int(np.sum(~smaller))) / (1 + len(smaller))


def paired_t_p(
  ours_L: Float[np.ndarray, ' L'], theirs_L: Float[np.ndarray, ' L']
) -> float:
  """Computes the two-sided p-value of the paired t-test of at least two values.

  With the F1 of labels, this is the macro t-test of Yang & Liu 1999, section
  4.3. Equal differences give 1 if they are 0, else 0.
  """
  difference_L = np.asarray(ours_L, np.float64) - theirs_L
  n = len(difference_L)
  if n < 2:
    raise ValueError(f'a t-test needs at least two pairs of values, not {n}')
  if not difference_L.any():
    return 1.0
  error = difference_L.std(ddof=1) / np.sqrt(n)
  if error <= _ROUNDING * np.abs(difference_L).max():
    return 0.0
  t = abs(difference_L.mean()) / error
  return float(2 * scipy.special.stdtr(n - 1, -t))


def holm(p_values: Sequence[float]) -> list[float]:
  """Corrects p-values for the number of tests (Holm 1979), in the same order.

  The i-th smallest of m p-values is multiplied by m - i + 1, and raised to the
  product of a smaller p-value, at most 1.
  """
  p_M = np.asarray(p_values, np.float64)
  order = np.argsort(p_M, kind='stable')
  raised = p_M[order] * np.arange(len(p_M), 0, -1)
  corrected = np.empty_like(p_M)
  corrected[order] = np.minimum(np.maximum.accumulate(raised), 1.0)
  return corrected.tolist()


def relative(
  ours: Shaped[np.ndarray, '...'], base: Shaped[np.ndarray, '...']
) -> Float[np.ndarray, '...']:
  """Computes (ours - base) / base; NaN where base is 0.

  "Re-evaluating Extreme Multi-label Text Classification Methods in Tail Label
  Prediction" (anonymous ACL submission), section 5.2 and Fig. 3.
  """
  base = np.asarray(base, np.float64)
  return (ours - base) / np.where(base > 0, base, np.nan)
