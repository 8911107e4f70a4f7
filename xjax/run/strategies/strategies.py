"""Defines strategies that decide which k labels are predicted for a document.

Schultheis et al. 2022 compare them in Section 5.5. They need only the lists of
a scorer.

The coverage strategy is greedy and visits one document after another. Algorithm
1 of the paper needs all probabilities of a document. Here, short lists are
enough:

- The scorer ranks labels for a window of documents at once, by the gains that
  labels have before the window. (See covering for gains.)
- Later, gains can only fall. So the gain by which the last label of a list was
  ranked bounds the gains of all labels that are not listed. A list suffices
  while the present gain of the k-th best listed label is above this bound; a
  new window starts at the first document whose list may not suffice.

If the scorer's lists are exact, the selected labels are the labels of Algorithm
1, up to the rounding of float32 products.
"""

from collections.abc import Callable
import dataclasses
from typing import NamedTuple

from jaxtyping import Float, Float32, Float64, Int, Int32
import numpy as np

from xjax.core.ranking import Query, RanksDocuments, RankWeights
from xjax.core.rng import host_generator
from xjax.core.types import AS_LOGITS, PAD, ScoreKind
from xjax.data.documents import Documents
from xjax.judge.metrics.calibration_error import sigmoid as probability_of

_BLOCK = 1024  # number of documents whose lists are compared at a time
# The logarithm of the largest float32 number below 1. It is the upper limit of
# log probabilities that are computed from float32 products with weights.
_HIGHEST = -(2.0**-24)
_SMALLEST = -40.0  # log of the smallest weight, if the largest weight is 1


@dataclasses.dataclass(frozen=True, eq=False)
class RankedDocuments:
  scorer: RanksDocuments
  documents: Documents
  # a and b: a margin z has the probability sigmoid(a z + b).
  sigmoid: tuple[float, float] = AS_LOGITS
  # Some labels [N, known] of each document, and their scores without weights,
  # from which their probabilities are computed: products with weights have
  # fewer correct digits.
  known: tuple[np.ndarray, np.ndarray] | None = None
  on_block: Callable[[int], None] | None = None  # see Query.on_block

  def weighted(
    self,
    rows_N: Int[np.ndarray, ' N'],
    k: int,
    log_weights_L: Float64[np.ndarray, ' L_or_more'],
  ) -> tuple[Int32[np.ndarray, 'N K'], Float[np.ndarray, 'N K']]:
    """Returns the k labels with the highest weight times probability.

    A log weight of -inf excludes a label. The result has log weight + log
    probability. Ids are PAD, and logs -inf, where labels run out.
    """
    log_weights_L = log_weights_L[: self.scorer.n_labels]
    top = float(log_weights_L.max(initial=-np.inf))
    if top == -np.inf:  # there is nothing to select
      return no_lists(len(rows_N), k)
    weights_L = np.exp(floored(log_weights_L) - top).astype(np.float32)
    weights = RankWeights(weights_L)
    if self.scorer.score_kind is ScoreKind.MARGIN:
      weights = RankWeights(weights_L, self.sigmoid)
    query = Query(k, weights=weights, on_block=self.on_block)
    lists = self.scorer.rank(self.documents.part(rows_N), query)
    ids_NK, scores_NK = lists.ids_GNK[0], lists.scores_GNK[0]
    if self.scorer.score_kind is ScoreKind.PROBABILITY:
      scores_NK = _log(np.where(ids_NK == PAD, 0, scores_NK))
    return ids_NK, scores_NK.astype(np.float64) + top

  def logits(
    self,
    rows_N: Int[np.ndarray, ' N'],
    ids_NK: Int32[np.ndarray, 'N K'],
    logs_NK: Float[np.ndarray, 'N K'],
  ) -> Float[np.ndarray, 'N K']:
    """Returns the logits of listed labels' probabilities; any value for PAD.

    `logs_NK` are log probabilities from products with weights, which have few
    correct digits if a probability is near 1.
    """
    logs_NK = np.minimum(logs_NK, _HIGHEST)
    logits_NK = logs_NK - np.log(-np.expm1(logs_NK))
    if self.known is None:
      return logits_NK
    for start in range(0, len(rows_N), _BLOCK):
      part = slice(start, start + _BLOCK)
      known_ids, known_scores = (array[rows_N[part]] for array in self.known)
      same = ids_NK[part, :, None] == known_ids[:, None]  # [N, K, known]
      places_NK = same.argmax(-1)
      scores_NK = np.take_along_axis(known_scores, places_NK, 1)
      logits_NK[part] = np.where(
        same.any(-1), self._logits_of(scores_NK), logits_NK[part]
      )
    return logits_NK

  def _logits_of(self, scores: np.ndarray) -> np.ndarray:
    """Converts scores of the scorer's kind to float64 logits."""
    scores = scores.astype(np.float64)
    match self.scorer.score_kind:
      case ScoreKind.LOGIT:
        return scores
      case ScoreKind.MARGIN:
        return self.sigmoid[0] * scores + self.sigmoid[1]
      case ScoreKind.PROBABILITY:
        scores = np.maximum(scores, 0)  # the score of PAD is -inf
        return _log(scores) - _log(1 - scores)

  def scores_of(
    self, logits: Float[np.ndarray, '...']
  ) -> Float32[np.ndarray, '...']:
    """Converts logits to float32 scores of the scorer's kind."""
    match self.scorer.score_kind:
      case ScoreKind.LOGIT:
        scores = logits
      case ScoreKind.MARGIN:
        scores = (logits - self.sigmoid[1]) / self.sigmoid[0]
      case ScoreKind.PROBABILITY:
        scores = probability_of(logits)
    return scores.astype(np.float32)


def no_lists(
  n: int, k: int
) -> tuple[Int32[np.ndarray, 'N K'], Float32[np.ndarray, 'N K']]:
  """Returns empty lists, in which ids are PAD and scores are -inf."""
  return np.full((n, k), PAD, np.int32), np.full((n, k), -np.inf, np.float32)


def floored(
  log_weights_L: Float64[np.ndarray, ' L'],
) -> Float64[np.ndarray, ' L']:
  """Returns finite log weights, at most 40 below the largest; -inf stays."""
  least = log_weights_L.max(initial=-np.inf) + _SMALLEST
  never_L = log_weights_L == -np.inf
  return np.where(never_L, -np.inf, np.maximum(log_weights_L, least))


def _log(values: np.ndarray) -> np.ndarray:
  """Returns logarithms, -inf for 0, without a warning."""
  with np.errstate(divide='ignore'):
    return np.log(values)


_LISTED = 10  # length of the lists, in multiples of k
_WINDOW, _LEAST = 512, 8  # largest and smallest number of documents of a window
_ROUNDING = 1e-6  # rounding error of a log gain, relative to 1 + |log gain|


class Selection(NamedTuple):
  ids_NK: np.ndarray  # int32, PAD where no more labels can be selected
  # float64, in descending order: log weight + log probability; -inf for PAD.
  ranks_NK: np.ndarray
  scores_NK: np.ndarray  # float32, of the scorer's kind; -inf for PAD


def select_by_coverage(
  documents: RankedDocuments, k: int, beta: float = 0.0, seed: int = 0
) -> Selection:
  """Selects the k labels with the highest gain in expected coverage.

  This is Algorithm 1 of Schultheis et al. 2022. A label j with probability p_j
  has the gain (f_j + beta) p_j. The number f_j starts at 1. After each document
  for which j was selected, f_j is multiplied by 1 - p_j. Documents are visited
  in the order document_order(seed, N). With a larger beta, at least 0, correct
  labels that are well covered already count more (Section 5.3 of the paper).
  """
  order_N = document_order(seed, len(documents.documents))
  return Selection(*GreedyCoverage(documents, k, beta).cover(order_N))


def document_order(seed: int, n: int) -> Int[np.ndarray, ' N']:
  """Returns the random order of n documents, which depends only on the seed."""
  return host_generator(seed, 'coverage').permutation(n)


def select_by_weight(
  documents: RankedDocuments, k: int, weights_L: np.ndarray
) -> Selection:
  """Selects the k labels with the highest weight times probability.

  If weights are inverse propensities, this strategy is optimal for PSP@k
  (Wydmuch et al. 2021). If weights are utilities, this strategy is optimal for
  the sum of the utilities of correct labels (Schultheis et al., Section 4.2).

  Weights [L or more] are finite and at least 0. A label of weight 0 is never
  selected. Positive weights are raised to at least 4e-18 times the largest.
  """
  rows_N = np.arange(len(documents.documents))
  # A label with weight 0 gets -inf, so that it is never selected.
  with np.errstate(divide='ignore'):
    logs_L = np.log(np.asarray(weights_L, np.float64))
  ids_NK, ranks_NK = documents.weighted(rows_N, k, logs_L)
  real_NK = ids_NK != PAD
  logs_NK = ranks_NK - np.where(real_NK, logs_L[ids_NK], 0)
  logits_NK = documents.logits(rows_N, ids_NK, logs_NK)
  scores_NK = np.where(real_NK, documents.scores_of(logits_NK), -np.inf)
  return Selection(ids_NK, ranks_NK, scores_NK.astype(np.float32))


@dataclasses.dataclass(frozen=True, eq=False)
class GreedyCoverage:
  documents: RankedDocuments
  k: int
  beta: float  # of the gains (f + beta) p
  listed: int | None = None  # length of the scorer's lists; None for 10 * k
  window: int = _WINDOW  # most documents that the scorer ranks at once

  def cover(
    self, order_N: Int[np.ndarray, ' N']
  ) -> tuple[
    Int32[np.ndarray, 'N K'],
    Float64[np.ndarray, 'N K'],
    Float32[np.ndarray, 'N K'],
  ]:
    """Selects labels for all N documents, one after another, in an order.

    Returns the values of Selection. The ranks are gains, all above 0; labels of
    equal gain are sorted by index.
    """
    n_labels, usual = self.documents.scorer.n_labels, self.listed
    length = usual = min(usual or _LISTED * self.k, n_labels)
    width, done = self.window, 0
    log_f_L = np.zeros(n_labels)
    selected = _Selected.none(len(order_N), self.k)
    while done < len(order_N):
      rows_N = order_N[done : done + width]
      lists = self._rank(rows_N, length, log_f_L)
      n = self._select(lists, rows_N, log_f_L, selected)
      done += n
      # If no document was done, the first document's list was too short, so the
      # length is doubled. The loop always terminates, because a list with all
      # labels is sufficient.
      length = usual if n else min(2 * length, n_labels)
      width = min(max(2 * n, _LEAST), self.window)
    scores_NK = self.documents.scores_of(selected.logits_NK)
    scores_NK[selected.ids_NK == PAD] = -np.inf
    return selected.ids_NK, selected.logs_NK, scores_NK

  def _rank(
    self, rows_N: np.ndarray, length: int, log_f_L: np.ndarray
  ) -> '_WindowLists':
    """Returns lists of the labels with the highest present gains."""
    logs_L = self._log_weights(log_f_L)
    floored_L = floored(logs_L)
    ids_NK, logs_NK = self.documents.weighted(rows_N, length, logs_L)
    weights_NK = np.where(ids_NK == PAD, 0, floored_L[ids_NK])
    logits_NK = self.documents.logits(rows_N, ids_NK, logs_NK - weights_NK)
    return _WindowLists(
      ids_NK,
      logs_NK,
      weights_NK,
      logits_NK,
      whole=length >= len(log_f_L),
      exact=bool((logs_L == floored_L).all()),
    )

  def _select(
    self,
    lists: '_WindowLists',
    rows_N: np.ndarray,
    log_f_L: np.ndarray,
    selected: '_Selected',
  ) -> int:
    """Selects until a list may not suffice; returns the number of documents."""
    for place, row in enumerate(rows_N):
      ids_K = lists.ids_NK[place]
      best = lists.best(place, self._log_weights(log_f_L[ids_K]), self.k)
      if best is None:
        return place
      at, logs = best
      logits = lists.logits_NK[place, at]
      selected.ids_NK[row, : len(at)] = ids_K[at]
      selected.logs_NK[row, : len(at)] = logs
      selected.logits_NK[row, : len(at)] = logits
      log_f_L[ids_K[at]] -= np.logaddexp(0, logits)  # log(1 - p)
    return len(rows_N)

  def _log_weights(self, log_f: np.ndarray) -> np.ndarray:
    return np.logaddexp(log_f, np.log(self.beta)) if self.beta else log_f


@dataclasses.dataclass(frozen=True, eq=False)
class _Selected:
  ids_NK: np.ndarray
  logs_NK: np.ndarray  # of the gains
  logits_NK: np.ndarray  # of the labels' probabilities

  @classmethod
  def none(cls, n: int, k: int) -> '_Selected':
    return cls(no_lists(n, k)[0], np.full((n, k), -np.inf), np.zeros((n, k)))


@dataclasses.dataclass(frozen=True, eq=False)
class _WindowLists:
  """Holds the labels that the scorer listed for a window of N documents."""

  ids_NK: np.ndarray
  logs_NK: np.ndarray  # of the gains when they were ranked, -inf for PAD
  weights_NK: np.ndarray  # logs of the weights in this ranking, 0 for PAD
  logits_NK: np.ndarray  # of the labels' probabilities
  whole: bool  # whether each list is long enough for all labels
  # Whether every label was ranked by its own weight. If False, some small
  # weights were replaced by a larger weight.
  exact: bool

  def best(
    self, place: int, log_weights_K: np.ndarray, k: int
  ) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns a document's k labels of the highest present gains, log gains.

    The labels are places in the list of the document at `place` in the window,
    by descending gain, then ascending index, without gains of 0. None: a label
    that is not listed may be among the k best.
    """
    ids_K, old_K = self.ids_NK[place], self.logs_NK[place]
    # If a weight has not changed, 0 is added. So the gain is exactly the gain
    # that the scorer computed.
    gains_K = old_K + (log_weights_K - self.weights_NK[place])
    at = np.lexsort((ids_K, -gains_K))[:k]
    at = at[gains_K[at] > -np.inf]
    complete = self.whole or ids_K[-1] == PAD
    if not complete and not self._suffices(place, gains_K[at], old_K[-1], k):
      return None
    return at, gains_K[at]

  def _suffices(
    self, place: int, logs: np.ndarray, bound: float, k: int
  ) -> bool:
    """Can no unlisted label be among the k best labels?

    `logs` are descending log gains; `bound` is that of unlisted labels.
    """
    if place == 0 and self.exact:
      return True  # no weight has changed since the scorer ranked the labels
    if len(logs) < k:
      return bool(bound == -np.inf)
    rounding = _ROUNDING * (1 + abs(bound))
    # If gains are equal, an unlisted label may have the lower index, so gains
    # must be above the bound by more than the rounding error. The list of the
    # window's first document is up to date: there, gains may be below by less.
    return bool(logs[-1] > bound + (-rounding if place == 0 else rounding))
