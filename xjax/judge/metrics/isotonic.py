"""Fits curves from scores to probabilities by isotonic regression.

All computations use float64 in NumPy and SciPy, so the same decisions give
exactly the same curve on the same machine.
"""

import dataclasses

from jaxtyping import Bool, Float
import numpy as np

from xjax.judge.metrics.calibration_error import Sigmoid, sigmoid

# A step of the regression is averaged with this many decisions that have the
# probabilities of Platt's sigmoid. So a step of few decisions is never 0 or 1.
_PRIOR = 2
# A step rises by at most this number of logits from its middle to its end. So
# different scores on a step have different probabilities, in the same order.
_RISE = 0.01
_TINY = 1e-12  # probabilities stay this far from 0 and 1


@dataclasses.dataclass(frozen=True)
class Curve:
  """Computes a probability that rises with the score.

  The logit of the probability is piecewise linear in the score.

  Attributes:
    knots: pairs (score, logit), at least one. Both numbers rise from each pair
      to the next. Between two pairs the logit is interpolated.
    a: slope of the logit before the first knot and after the last knot; above
      0.
  """

  knots: tuple[tuple[float, float], ...]
  a: float

  def __call__(
    self, scores: Float[np.ndarray, '...']
  ) -> Float[np.ndarray, '...']:
    """Returns float64 probabilities of the scores; a score of -inf gives 0."""
    return sigmoid(self.logits(scores))

  def logits(
    self, scores: Float[np.ndarray, '...']
  ) -> Float[np.ndarray, '...']:
    """Returns the float64 logits of the probabilities."""
    scores = np.asarray(scores, np.float64)
    at, logits = np.array(self.knots).T
    outside = scores - np.clip(scores, at[0], at[-1])
    return np.interp(scores, at, logits) + self.a * outside


def fit_isotonic(
  scores_N: Float[np.ndarray, ' N'],
  correct_N: Bool[np.ndarray, ' N'],
  platt: Sigmoid,
) -> Curve:
  """Fits a rising curve by isotonic regression.

  See Zadrozny & Elkan (2002). The regression is the rising step function with
  the smallest squared error. Here each step is also averaged with a few
  decisions of Platt's sigmoid, and each step rises a little.

  Args:
    scores_N: float, finite scores in any unit, one per decision; at least one.
    correct_N: bool, whether each decision is correct.
    platt: the sigmoid that fit_platt fits to the same decisions.
  """
  # SciPy's optimizers take a while to import, and only fits need them.
  from scipy.optimize import isotonic_regression

  at_S, of_N, counts_S = np.unique(
    np.asarray(scores_N, np.float64), return_inverse=True, return_counts=True
  )
  share_S = np.bincount(of_N, correct_N) / counts_S
  ends = isotonic_regression(share_S, weights=counts_S).blocks
  first, counts = ends[:-1], np.add.reduceat(counts_S, ends[:-1])
  sums = np.add.reduceat(np.stack([share_S, platt(at_S)]) * counts_S, first, 1)
  prior = sums[1] / counts
  shares = (sums[0] + _PRIOR * prior) / (counts + _PRIOR)
  # Steps of few decisions moved more than others, so the order may be lost.
  steps = isotonic_regression(shares, weights=counts)
  merged = steps.blocks
  low, high = at_S[first[merged[:-1]]], at_S[ends[merged[1:]] - 1]
  return Curve(_knots(low, high, steps.x[merged[:-1]]), platt.a)


def _knots(
  low: np.ndarray, high: np.ndarray, shares: np.ndarray
) -> tuple[tuple[float, float], ...]:
  """Returns the knots of steps.

  Args:
    low, high: float64, the lowest and the highest score of each step.
    shares: float64, the probability of each step, rising.
  """
  inside = np.clip(shares, _TINY, 1 - _TINY)
  logits = np.log(inside) - np.log1p(-inside)
  gaps = np.diff(logits, prepend=-np.inf, append=np.inf)
  rise = np.minimum(_RISE, np.minimum(gaps[:-1], gaps[1:]) / 4)
  ends = np.stack([low, high, logits - rise, logits + rise], 1).tolist()
  knots = []
  for left, right, bottom, top in ends:
    # A step of one score is one point.
    both = [(left, bottom), (right, top)]
    knots += both if left < right else [(left, (bottom + top) / 2)]
  return tuple(knots)
