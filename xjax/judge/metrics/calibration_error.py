"""Scores as probabilities: a sigmoid fitted to them, and how far off it is.

All is float64 NumPy, summed in one fixed order: the same decisions give the
same bits on one machine.
"""

from collections.abc import Callable
import dataclasses

from jaxtyping import Bool, Float, Int
import numpy as np

_BLOCK = 2**18  # decisions at a time: what is in between stays in the cache
_STEPS = 100
_NEAR = 1e-12  # Newton's estimate of twice the loss still to be gained
_SHORTEST = 1e-9  # of a step, where rounding hides that the loss falls


class CannotFit(ValueError):
  """No sigmoid that rises has the least loss; the message says why."""


@dataclasses.dataclass(frozen=True)
class Sigmoid:
  """p = 1 / (1 + exp(-(a z + b))) of a score z; a > 0, so that it rises.

  Attributes:
    a: per unit of score; 1 / T of a temperature T.
    b: shift; 0 of a temperature.
  """

  a: float
  b: float = 0.0

  def __call__(self, scores: Float[np.ndarray, '...']) -> np.ndarray:
    """float64 probabilities of scores; -inf is 0."""
    return sigmoid(self.a * np.asarray(scores, np.float64) + self.b)


IDENTITY = Sigmoid(1.0)


def sigmoid(logits: Float[np.ndarray, '...']) -> np.ndarray:
  """float64 1 / (1 + exp(-logits)), without overflow."""
  logits = np.asarray(logits, np.float64)
  # exp of a negative number on either side.
  small = np.exp(-np.abs(logits))
  return np.where(logits >= 0, 1, small) / (1 + small)


def fit_temperature(
  scores_N: Float[np.ndarray, ' N'], correct_N: Bool[np.ndarray, ' N']
) -> Sigmoid:
  """The temperature of least log loss (Guo et al. 2017, section 4.2).

  Of sigmoid(z / T), which is their eq. 9 for a decision between two.

  Args:
    scores_N: finite logits, one per decision.
    correct_N: whether each decision is right.

  Raises:
    CannotFit: there are no scores, they are all equal, all right or all wrong;
      one is not finite; their sign alone says which are right (T would be 0);
      or they do not rise with being right (T would be negative).
  """
  _check(scores_N, correct_N)
  if not (correct_N & (scores_N < 0) | ~correct_N & (scores_N > 0)).any():
    raise CannotFit('the sign of the scores alone tells which are correct')
  return _fit(scores_N, correct_N, (0.0, 1.0), shifted=False)


def fit_platt(
  scores_N: Float[np.ndarray, ' N'], correct_N: Bool[np.ndarray, ' N']
) -> Sigmoid:
  """Platt's sigmoid (1999), as Lin, Lin & Weng (2007) say to compute it.

  Its targets are not 1 and 0 but (n+ + 1) / (n+ + 2) and 1 / (n- + 2), of n+
  right and n- wrong decisions: with them there is a finite best fit even where
  a threshold separates the two.

  Args:
    scores_N: finite scores of any unit, one per decision.
    correct_N: whether each decision is right.

  Raises:
    CannotFit: there are no scores, they are all equal, all right or all wrong,
      or they do not rise with being right, or one is not finite.
  """
  _check(scores_N, correct_N)
  return _fit(scores_N, correct_N, platt_targets(correct_N), shifted=True)


def platt_targets(correct_N: Bool[np.ndarray, ' N']) -> tuple[float, float]:
  """What fit_platt takes for wrong and for right, instead of 0 and 1."""
  right = int(correct_N.sum())
  return 1 / (len(correct_N) - right + 2), (right + 1) / (right + 2)


def log_loss(
  fitted: Sigmoid,
  scores_N: Float[np.ndarray, ' N'],
  correct_N: Bool[np.ndarray, ' N'],
  targets: tuple[float, float] = (0.0, 1.0),
) -> float:
  """Mean of -t log p - (1 - t) log(1 - p), in nats; N is at least 1.

  Args:
    fitted: gives p.
    scores_N: finite scores.
    correct_N: chooses t.
    targets: t of wrong and of right decisions.
  """
  at = np.array([fitted.a, fitted.b])
  return _Loss(scores_N, correct_N, targets)(at)[0]


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


def _fit(
  scores_N: np.ndarray,
  correct_N: np.ndarray,
  targets: tuple[float, float],
  shifted: bool,
) -> Sigmoid:
  """Of least loss, found on scores moved and scaled into [-1, 1]."""
  low, high = targets
  centre = float(scores_N.mean(dtype=np.float64)) if shifted else 0.0
  widest = np.array([scores_N.min(), scores_N.max()], np.float64) - centre
  scale = float(np.abs(widest).max())
  loss = _Loss(scores_N, correct_N, targets, centre, scale)
  # The best of the flat ones. The loss is convex: where it falls from there,
  # and only there, the best of all rises.
  share = low + (high - low) * float(correct_N.mean(dtype=np.float64))
  start = np.array([0.0, np.log(share / (1 - share)) if shifted else 0.0])
  if loss(start)[1][0] >= 0:
    raise CannotFit('correct labels do not have the higher scores')
  a, b = _minimise(loss, start, 2 if shifted else 1)
  return Sigmoid(float(a / scale), float(b - a / scale * centre))


@dataclasses.dataclass(frozen=True)
class _Loss:
  """Log loss of (a, b) on (scores - centre) / scale.

  Called, it gives the mean, its gradient [2] and its Hessian [2, 2].
  """

  scores_N: np.ndarray
  correct_N: np.ndarray
  targets: tuple[float, float]
  centre: float = 0.0
  scale: float = 1.0

  def __call__(self, at: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    sums = np.zeros(6)
    for first in range(0, len(self.scores_N), _BLOCK):
      sums += self._block(at, slice(first, first + _BLOCK))
    loss, da, db, daa, dab, dbb = sums / len(self.scores_N)
    return float(loss), np.array([da, db]), np.array([[daa, dab], [dab, dbb]])

  def _block(self, at: np.ndarray, part: slice) -> np.ndarray:
    x = (self.scores_N[part].astype(np.float64) - self.centre) / self.scale
    t = np.where(self.correct_N[part], self.targets[1], self.targets[0])
    z = at[0] * x + at[1]
    small = np.exp(-np.abs(z))
    off = np.where(z >= 0, 1, small) / (1 + small) - t
    bend = small / (1 + small) ** 2  # p (1 - p), but never 0 by cancelling
    loss = np.maximum(z, 0) - t * z + np.log1p(small)
    terms = (loss, off * x, off, bend * x * x, bend * x, bend)
    return np.array([term.sum() for term in terms])


def _minimise(
  loss: Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]],
  at: np.ndarray,
  free: int,
) -> np.ndarray:
  """Newton's method with backtracking, over the first `free` parameters."""
  value, gradient, hessian = loss(at)
  for _ in range(_STEPS):
    step = np.zeros_like(at)
    step[:free] = -np.linalg.solve(hessian[:free, :free], gradient[:free])
    gain = -float(gradient @ step)
    if gain < _NEAR:
      return at + step  # what is left after this is its square
    length = 1.0
    tried = loss(at + step)
    while tried[0] > value - 1e-4 * length * gain and length > _SHORTEST:
      length /= 2
      tried = loss(at + length * step)
    at = at + length * step
    value, gradient, hessian = tried
  return at


@dataclasses.dataclass(frozen=True, eq=False)
class Reliability:
  """A reliability diagram: how often a probability comes true.

  Attributes:
    edges: float64 [bins + 1], from 0 to 1; a bin has its upper edge, the first
      one 0 as well.
    confidence: float64 [bins], mean probability in a bin; 0 in an empty one.
    accuracy: float64 [bins], share that is right; 0 in an empty one.
    counts: int64 [bins], decisions.
    ece: expected calibration error, a fraction; 0 of no decisions.
  """

  edges: Float[np.ndarray, ' edges']
  confidence: Float[np.ndarray, ' bins']
  accuracy: Float[np.ndarray, ' bins']
  counts: Int[np.ndarray, ' bins']
  ece: float


def reliability(
  probabilities_N: Float[np.ndarray, ' N'],
  correct_N: Bool[np.ndarray, ' N'],
  n_bins: int = 15,
) -> Reliability:
  """The diagram, and sum of counts / N |accuracy - confidence| over its bins.

  The expected calibration error of Naeini et al. 2015, in bins of equal width
  as in Guo et al. 2017 (eq. 3); of decisions between two, so a probability is
  that of being right, from 0 to 1, not from 1/2.

  Args:
    probabilities_N: from 0 to 1, one per decision.
    correct_N: whether each decision is right.
    n_bins: number of bins, at least 1.

  Raises:
    ValueError: a probability is not from 0 to 1.
  """
  inside = (probabilities_N >= 0) & (probabilities_N <= 1)
  if not inside.all():
    raise ValueError('probabilities must be from 0 to 1')
  edges = np.arange(n_bins + 1) / n_bins
  bins_N = np.searchsorted(edges[1:-1], probabilities_N)
  counts = np.bincount(bins_N, minlength=n_bins)
  filled = np.maximum(counts, 1)
  confidence = np.bincount(bins_N, probabilities_N, n_bins) / filled
  accuracy = np.bincount(bins_N, correct_N, n_bins) / filled
  gaps = counts * np.abs(accuracy - confidence)
  ece = float(gaps.sum() / max(len(bins_N), 1))
  return Reliability(edges, confidence, accuracy, counts, ece)
