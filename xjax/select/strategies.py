"""Which k labels are predicted for a document, given a scorer.

The strategies that Schultheis et al. 2022, Section 5.5, compare, for any
core.types.Scorer: each asks for nothing but its lists.

Coverage is greedy, document after document. Algorithm 1 of that paper asks for
all probabilities of a document. Here the scorer is asked for a window of
documents at once: for the best labels by the gains that they have before it.
Gains only fall. So the gain of the last label listed bounds that of all labels
that are not, and as long as the k-th best of the listed ones is above it,
nothing else is needed. At the first document of which that cannot be said, a
new window begins. The labels selected are those of Algorithm 1, up to the
rounding of float32 products, provided that the scorer's lists are exact.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from xjax.core.rng import host_generator
from xjax.core.types import PAD
from xjax.select.ranked_documents import RankedDocuments, floored, no_lists

_LISTED = 10  # labels asked for, in multiples of k
_WINDOW, _LEAST = 512, 8  # documents asked for at once, at most and at least
_ROUNDING = 1e-6  # of log gains, relative to them or to 1


@dataclasses.dataclass(frozen=True)
class StandardStrategy:
  """The k labels of highest score."""


@dataclasses.dataclass(frozen=True, eq=False)
class WeightedStrategy:
  """The k labels of highest weight times probability.

  With inverse propensities it is best for PSP@k (Wydmuch et al. 2021), with
  utilities for their sum over correct labels (Schultheis et al., Section 4.2).

  Attributes:
    weights_L: float64 [L or more], finite, at least 0; a label of weight 0 is
      never selected. Those below 4e-18 of the largest count as if they were
      that.
  """

  weights_L: np.ndarray


@dataclasses.dataclass(frozen=True)
class BoundedRandomStrategy:
  """k labels drawn from the b k of highest score (Bradley & Smyth 2001).

  All are as likely to be drawn. They are listed by score.

  Attributes:
    b: at least 1.
    seed: decides, with a document's row, what is drawn for it.
  """

  b: int = 2
  seed: int = 0


@dataclasses.dataclass(frozen=True)
class CoverageStrategy:
  """The k labels of highest gain in expected coverage (their Algorithm 1).

  The gain of label j is (f_j + beta) p_j. f_j is 1 at first; after a document
  for which j was selected, it is multiplied by 1 - p_j. Documents come in the
  order document_order(seed, N).

  Attributes:
    beta: at least 0: how much it counts that a label is right, however well it
      is covered (their Section 5.3).
    seed: of the order.
  """

  beta: float = 0.0
  seed: int = 0


Strategy = (
  StandardStrategy | WeightedStrategy | BoundedRandomStrategy | CoverageStrategy
)


class Chosen(NamedTuple):
  """What a strategy chose for N documents.

  Attributes:
    ids_NK: int32 labels, PAD where no more may be selected.
    ranks_NK: what they are ranked by, descending: float32 scores, or float64
      log weight + log probability; -inf where ids are PAD.
    scores_NK: float32 scores as the scorer gives them, likewise.
    asked_again: documents for which the scorer was asked more than once, each
      as often as that.
  """

  ids_NK: np.ndarray
  ranks_NK: np.ndarray
  scores_NK: np.ndarray
  asked_again: int = 0


def choose(strategy: Strategy, documents: RankedDocuments, k: int) -> Chosen:
  """The labels of every document.

  Args:
    strategy: how.
    documents: N of them.
    k: labels of each; fewer where labels run out.
  """
  rows_N = np.arange(documents.n_documents)
  match strategy:
    case StandardStrategy():
      ids_NK, scores_NK = documents.topk(rows_N, k)
      return Chosen(ids_NK, scores_NK, scores_NK)
    case BoundedRandomStrategy(b, seed):
      return _drawn(*documents.topk(rows_N, b * k), k, seed)
    case WeightedStrategy(weights_L=weights_L):
      return _weighted(documents, rows_N, k, weights_L)
    case CoverageStrategy(beta, seed):
      order_N = document_order(seed, len(rows_N))
      return Chosen(*Greedy(documents, k, beta).cover(order_N))


def document_order(seed: int, n: int) -> np.ndarray:
  """The order in which coverage visits n documents: a permutation.

  It follows from the two numbers alone. No seed stands for the file's order.
  """
  return host_generator(seed, 'coverage').permutation(n)


def _weighted(
  documents: RankedDocuments, rows_N: np.ndarray, k: int, weights_L: np.ndarray
) -> Chosen:
  with np.errstate(divide='ignore'):  # log 0: never selected
    logs_L = np.log(np.asarray(weights_L, np.float64))
  ids_NK, ranks_NK = documents.weighted(rows_N, k, logs_L)
  real_NK = ids_NK != PAD
  logs_NK = ranks_NK - np.where(real_NK, logs_L[ids_NK], 0)
  logits_NK = documents.logits(rows_N, ids_NK, logs_NK)
  scores_NK = np.where(real_NK, documents.scores_of(logits_NK), -np.inf)
  return Chosen(ids_NK, ranks_NK, scores_NK.astype(np.float32))


def _drawn(
  ids_NC: np.ndarray, scores_NC: np.ndarray, k: int, seed: int
) -> Chosen:
  """Draws k of each document's C labels, still by score."""
  ids_NK, scores_NK = no_lists(len(ids_NC), k)
  for row, n in enumerate((ids_NC != PAD).sum(axis=1)):
    draw = host_generator(seed, 'bounded_random', row)
    at = np.sort(draw.choice(n, min(k, n), replace=False))
    ids_NK[row, : len(at)] = ids_NC[row, at]
    scores_NK[row, : len(at)] = scores_NC[row, at]
  return Chosen(ids_NK, scores_NK, scores_NK)


@dataclasses.dataclass(frozen=True, eq=False)
class Greedy:
  """Selects k labels of each document.

  Attributes:
    documents: with the scorer.
    k: labels of each.
    beta: of the gains (f + beta) p.
    listed: labels asked for at a time; None: a multiple of k.
    window: documents asked for at a time, at most.
  """

  documents: RankedDocuments
  k: int
  beta: float
  listed: int | None = None
  window: int = _WINDOW

  def cover(
    self, order_N: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Goes through all N documents once.

    Args:
      order_N: their rows, as they are to be visited.

    Returns:
      ids_NK: int32, by gain descending, then index ascending; PAD where all
        other gains are 0.
      log_gains_NK: float64, -inf where ids are PAD.
      scores_NK: float32, as the scorer gives them, likewise.
      asked_again: documents asked for more than once, each as often as that.
    """
    n_labels, usual = self.documents.scorer.n_labels, self.listed
    listed = usual = min(usual or _LISTED * self.k, n_labels)
    width, done, asked = self.window, 0, 0
    log_f_L = np.zeros(n_labels)
    found = _Selected.none(len(order_N), self.k)
    while done < len(order_N):
      rows_N = order_N[done : done + width]
      lists = self._ask(rows_N, listed, log_f_L)
      n = self._go_on(lists, rows_N, log_f_L, found)
      done, asked = done + n, asked + len(rows_N)
      # A longer list has all there are in the end.
      listed = usual if n else min(2 * listed, n_labels)
      width = min(max(2 * n, _LEAST), self.window)
    scores_NK = self.documents.scores_of(found.logits_NK)
    scores_NK[found.ids_NK == PAD] = -np.inf
    return found.ids_NK, found.logs_NK, scores_NK, asked - done

  def _ask(
    self, rows_N: np.ndarray, listed: int, log_f_L: np.ndarray
  ) -> '_Lists':
    """The best labels by the gains of now."""
    logs_L = self._log_weights(log_f_L)
    counted_L = floored(logs_L)
    ids_NK, logs_NK = self.documents.weighted(rows_N, listed, logs_L)
    asked_NK = np.where(ids_NK == PAD, 0, counted_L[ids_NK])
    logits_NK = self.documents.logits(rows_N, ids_NK, logs_NK - asked_NK)
    return _Lists(
      ids_NK,
      logs_NK,
      asked_NK,
      logits_NK,
      whole=listed >= len(log_f_L),
      exact=bool((logs_L == counted_L).all()),
    )

  def _go_on(
    self,
    lists: '_Lists',
    rows_N: np.ndarray,
    log_f_L: np.ndarray,
    found: '_Selected',
  ) -> int:
    """Selects until lists do not do; changes log_f_L and found.

    Returns:
      How many documents are done.
    """
    for place, row in enumerate(rows_N):
      ids_K = lists.ids_NK[place]
      best = lists.best(place, self._log_weights(log_f_L[ids_K]), self.k)
      if best is None:
        return place
      at, logs = best
      logits = lists.logits_NK[place, at]
      found.ids_NK[row, : len(at)] = ids_K[at]
      found.logs_NK[row, : len(at)] = logs
      found.logits_NK[row, : len(at)] = logits
      log_f_L[ids_K[at]] -= np.logaddexp(0, logits)  # log(1 - p)
    return len(rows_N)

  def _log_weights(self, log_f: np.ndarray) -> np.ndarray:
    return np.logaddexp(log_f, np.log(self.beta)) if self.beta else log_f


@dataclasses.dataclass(frozen=True, eq=False)
class _Selected:
  """What is selected for each of all documents."""

  ids_NK: np.ndarray
  logs_NK: np.ndarray
  logits_NK: np.ndarray

  @classmethod
  def none(cls, n: int, k: int) -> '_Selected':
    return cls(no_lists(n, k)[0], np.full((n, k), -np.inf), np.zeros((n, k)))


@dataclasses.dataclass(frozen=True, eq=False)
class _Lists:
  """The labels listed for a window of N documents.

  Attributes:
    ids_NK: int32, PAD where labels run out.
    logs_NK: float64 logarithms of the gains they had then, -inf of PAD.
    asked_NK: float64 logarithms of the weights they had then; 0 of PAD.
    logits_NK: float64, of their probabilities.
    whole: whether a list has all labels there are.
    exact: whether every label was asked for with its own weight, none with a
      higher one.
  """

  ids_NK: np.ndarray
  logs_NK: np.ndarray
  asked_NK: np.ndarray
  logits_NK: np.ndarray
  whole: bool
  exact: bool

  def best(
    self, place: int, log_weights_K: np.ndarray, k: int
  ) -> tuple[np.ndarray, np.ndarray] | None:
    """The k best of a document's labels by the gains of now.

    Args:
      place: of the document in the window.
      log_weights_K: float64, the weights of its labels now; of PAD, anything.
      k: how many.

    Returns:
      Places in the list, by gain descending, then label ascending, and log
      gains; fewer where no other label has a gain. None: there may be better
      ones that are not listed.
    """
    ids_K, then_K = self.ids_NK[place], self.logs_NK[place]
    # A weight that is what it was leaves the gain as the scorer gave it.
    now_K = then_K + (log_weights_K - self.asked_NK[place])
    at = np.lexsort((ids_K, -now_K))[:k]
    at = at[now_K[at] > -np.inf]
    ended = self.whole or ids_K[-1] == PAD
    if not ended and not self._surely(place, now_K[at], then_K[-1], k):
      return None
    return at, now_K[at]

  def _surely(self, place: int, logs: np.ndarray, bound: float, k: int) -> bool:
    """Whether no label that is not listed has a gain above the k-th best."""
    if place == 0 and self.exact:
      return True  # all as the scorer ranked them, nothing was selected since
    if len(logs) < k:
      return bool(bound == -np.inf)
    rounding = _ROUNDING * (1 + abs(bound))
    # Of equal gains, the label of lower index may be the one not listed; right
    # after they were listed it is not.
    return bool(logs[-1] > bound + (-rounding if place == 0 else rounding))
