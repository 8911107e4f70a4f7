"""Fits sigmoids and curves from scores to probabilities, and computes errors.

Numbers are float64, and are summed in a fixed order, so that the same decisions
give exactly the same numbers on the same machine.
"""

import dataclasses

from jaxtyping import Bool, Float, Int, Shaped
import numpy as np


class CannotFit(ValueError):
  """Says why no rising sigmoid minimises the loss."""


@dataclasses.dataclass(frozen=True)
class Sigmoid:
  """Computes p = 1 / (1 + exp(-(a z + b))) of a score z."""

  a: float
  b: float = 0.0

  def __call__(
    self, scores: Float[np.ndarray, '...']
  ) -> Float[np.ndarray, '...']:
    """Returns float64 probabilities of the scores; a score of -inf gives 0."""
    return sigmoid(self.logits(scores))

  def logits(
    self, scores: Float[np.ndarray, '...']
  ) -> Float[np.ndarray, '...']:
    return self.a * np.asarray(scores, np.float64) + self.b


IDENTITY = Sigmoid(1.0)


def sigmoid(logits: Float[np.ndarray, '...']) -> Float[np.ndarray, '...']:
  """Computes 1 / (1 + exp(-logits)) in float64, without overflow."""
  logits = np.asarray(logits, np.float64)
  # exp is computed only for numbers of at most 0, so that it cannot overflow.
  small = np.exp(-np.abs(logits))
  return np.where(logits >= 0, 1, small) / (1 + small)


def fit_platt(
  scores_N: Float[np.ndarray, ' N'], correct_N: Bool[np.ndarray, ' N']
) -> Sigmoid:
  """Fits the sigmoid of Platt (1999) as in Lin, Lin & Weng (2007).

  With n+ correct and n- wrong decisions, the targets are (n+ + 1) / (n+ + 2)
  and 1 / (n- + 2) instead of 1 and 0. So the best fit is finite, even if a
  threshold separates the decisions. There is no fit (CannotFit) if correct
  decisions do not tend to have higher scores.
  """
  # SciPy's optimizers take a while to import, and only fits need them.
  from scipy.optimize import minimize

  _check(scores_N, correct_N)
  low, high = platt_targets(correct_N)
  targets_N = np.where(correct_N, high, low)
  centre = float(scores_N.mean(dtype=np.float64))
  x_N = scores_N.astype(np.float64) - centre
  scale = float(np.abs(x_N).max())
  x_N /= scale
  # Start from the best constant function, where a = 0. The loss is convex. So
  # the best slope is above 0 if and only if the loss falls as a rises from 0.
  share = targets_N.mean()
  start = np.array([0.0, np.log(share / (1 - share))])
  a, b = start
  if _loss(start, x_N, targets_N)[1][0] < 0:
    arguments = {'jac': True, 'hess': _hessian, 'options': {'gtol': 1e-13}}
    a, b = minimize(
      _loss, start, (x_N, targets_N), 'trust-exact', **arguments
    ).x
  if a <= 0:  # the loss may fall by rounding alone
    raise CannotFit('correct labels do not tend to have higher scores')
  # Back to the unit of the scores, which were centred and scaled.
  return Sigmoid(float(a / scale), float(b - a / scale * centre))


def rises(
  scores_N: Float[np.ndarray, ' N'], correct_N: Bool[np.ndarray, ' N']
) -> bool:
  """Returns whether correct decisions tend to have higher scores."""
  if not 0 < correct_N.sum() < len(scores_N):
    return False
  scores_N = scores_N.astype(np.float64)
  return bool(scores_N[correct_N].mean() > scores_N[~correct_N].mean())


def _loss(
  at: np.ndarray, scores_N: np.ndarray, targets_N: np.ndarray
) -> tuple[float, np.ndarray]:
  """Computes the mean log loss of sigmoid(a z + b), and its gradient."""
  logits_N = at[0] * scores_N + at[1]
  off_N = sigmoid(logits_N) - targets_N
  gradient = np.array([np.mean(off_N * scores_N), np.mean(off_N)])
  return log_loss(logits_N, targets_N), gradient


def _hessian(
  at: np.ndarray, scores_N: np.ndarray, targets_N: np.ndarray
) -> np.ndarray:
  del targets_N
  logits_N = at[0] * scores_N + at[1]
  bend_N = sigmoid(logits_N) * sigmoid(-logits_N)  # without cancellation
  mixed = np.mean(bend_N * scores_N)
  return np.array(
    [[np.mean(bend_N * scores_N**2), mixed], [mixed, np.mean(bend_N)]]
  )


def platt_targets(correct_N: Bool[np.ndarray, ' N']) -> tuple[float, float]:
  """Returns two targets, of wrong decisions and of correct decisions."""
  right = int(correct_N.sum())
  return 1 / (len(correct_N) - right + 2), (right + 1) / (right + 2)


def log_loss(
  logits_N: Float[np.ndarray, ' N'], targets_N: Shaped[np.ndarray, ' N']
) -> float:
  """Computes the mean log loss of decisions, in nats.

  A decision with probability p and target t loses -t log p - (1 - t) log(1 -
  p). A target may be True or False.
  """
  return float(np.mean(np.logaddexp(0, logits_N) - targets_N * logits_N))


def _check(scores_N: np.ndarray, correct_N: np.ndarray) -> None:
  if not len(scores_N):
    raise CannotFit('no decisions to fit to')
  if not np.isfinite(scores_N).all():
    raise CannotFit('a score is not finite')
  if correct_N.all() or not correct_N.any():
    which = 'correct' if correct_N.any() else 'wrong'
    raise CannotFit(f'every listed label is {which}')
  if scores_N.min() == scores_N.max():
    raise CannotFit('all scores are equal')


# Labels of lower probability are seldom assigned or shown. Nearly all list
# entries are such labels, so they hide the errors of the others in the ECE.
ABOVE = 0.1
_BINS = 15  # of a reliability diagram


@dataclasses.dataclass(frozen=True, eq=False)
class Reliability:
  """Holds a reliability diagram: accuracy in bins of the probability."""

  # From 0 to 1; a bin includes its upper edge.
  edges: Float[np.ndarray, ' edges']
  confidence: Float[np.ndarray, ' bins']  # mean probability; 0 if empty
  accuracy: Float[np.ndarray, ' bins']  # correct share; 0 if empty
  counts: Int[np.ndarray, ' bins']  # number of decisions
  ece: float  # expected calibration error, a fraction; 0 without decisions
  ece_above: float | None  # of decisions above ABOVE, if there are any


def reliability(
  probabilities_N: Float[np.ndarray, ' N'], correct_N: Bool[np.ndarray, ' N']
) -> Reliability:
  """Computes the reliability diagram and the expected calibration error.

  The error is the sum over bins of (counts / N) |accuracy - confidence| (Naeini
  et al. 2015). The bins have equal width, as in Guo et al. 2017 (eq. 3). A
  probability is that of the label, not of the likelier outcome.
  """
  inside = (probabilities_N >= 0) & (probabilities_N <= 1)
  if not inside.all():
    raise ValueError('probabilities must be from 0 to 1')
  edges = np.arange(_BINS + 1) / _BINS
  counts, confidence, accuracy = _bins(edges, probabilities_N, correct_N)
  above_N = probabilities_N > ABOVE
  above = _bins(edges, probabilities_N[above_N], correct_N[above_N])
  return Reliability(
    edges,
    confidence,
    accuracy,
    counts,
    ece=_error(counts, confidence, accuracy),
    ece_above=_error(*above) if above_N.any() else None,
  )


def _bins(
  edges: np.ndarray, probabilities_N: np.ndarray, correct_N: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns counts, confidence and accuracy; see Reliability."""
  n_bins = len(edges) - 1
  bins_N = np.searchsorted(edges[1:-1], probabilities_N)
  counts = np.bincount(bins_N, minlength=n_bins)
  filled = np.maximum(counts, 1)
  confidence = np.bincount(bins_N, probabilities_N, n_bins) / filled
  return counts, confidence, np.bincount(bins_N, correct_N, n_bins) / filled


def _error(
  counts: np.ndarray, confidence: np.ndarray, accuracy: np.ndarray
) -> float:
  """Returns the expected calibration error of bins; 0 if all are empty."""
  gaps = counts * np.abs(accuracy - confidence)
  return float(gaps.sum() / max(counts.sum(), 1))


# A step of the regression is averaged with this many decisions that have the
# probabilities of Platt's sigmoid. So a step of few decisions is never 0 or 1.
_PRIOR = 2
# A step rises by at most this number of logits from its middle to its end. So
# different scores on a step have different probabilities, in the same order.
_RISE = 0.01
_TINY = 1e-12  # probabilities stay this far from 0 and 1


@dataclasses.dataclass(frozen=True)
class Curve:
  """Computes a probability whose logit is piecewise linear in the score."""

  # Pairs (score, logit), at least one. Both rise from each pair to the next.
  knots: tuple[tuple[float, float], ...]
  a: float  # slope outside the knots, above 0

  def __call__(
    self, scores: Float[np.ndarray, '...']
  ) -> Float[np.ndarray, '...']:
    return sigmoid(self.logits(scores))

  def logits(
    self, scores: Float[np.ndarray, '...']
  ) -> Float[np.ndarray, '...']:
    scores = np.asarray(scores, np.float64)
    at, logits = np.array(self.knots).T
    outside = scores - np.clip(scores, at[0], at[-1])
    return np.interp(scores, at, logits) + self.a * outside


def fit_isotonic(
  scores_N: Float[np.ndarray, ' N'],
  correct_N: Bool[np.ndarray, ' N'],
  platt: Sigmoid,
) -> Curve:
  """Fits a rising curve by isotonic regression (Zadrozny & Elkan 2002).

  Each step is also averaged with a few decisions of `platt`, the sigmoid of the
  same decisions, and each step rises a little.
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
  """Returns the knots of steps, from the bounds and the share of each step."""
  inside = np.clip(shares, _TINY, 1 - _TINY)
  logits = np.log(inside) - np.log1p(-inside)
  gaps = np.diff(logits, prepend=-np.inf, append=np.inf)
  # A step rises by less than half the gap to its neighbours: they stay apart.
  rise = np.minimum(_RISE, np.minimum(gaps[:-1], gaps[1:]) / 4)
  ends = np.stack([low, high, logits - rise, logits + rise], 1).tolist()
  knots = []
  for left, right, bottom, top in ends:
    # A step of one score is one point.
    both = [(left, bottom), (right, top)]
    knots += both if left < right else [(left, (bottom + top) / 2)]
  return tuple(knots)
