"""Defines strategies that decide which k labels are predicted for a document.

These are the strategies that Schultheis et al. 2022 compare in Section 5.5.
They work with any scorer, because they need only its lists.

The coverage strategy is greedy and visits one document after another. Algorithm
1 of the paper needs all probabilities of a document. Here, short lists are
enough:

- The scorer ranks labels for a window of documents at once, by the gains that
  labels have before the window. (CoverageStrategy defines gains.)
- Later, gains can only fall. So the gain by which the last label of a list was
  ranked is an upper bound for the gains of all labels that are not listed.
- As long as the present gain of the k-th best listed label is above this bound,
  the list is sufficient.
- A new window starts at the first document whose list may not be sufficient.

If the scorer's lists are exact, the selected labels are the labels of Algorithm
1, up to the rounding of float32 products.
"""

import dataclasses
from typing import NamedTuple

from jaxtyping import Float32, Float64, Int, Int32
import numpy as np

from xjax.core.rng import host_generator
from xjax.core.types import PAD
from xjax.run.strategies.ranked_documents import (
  RankedDocuments,
  floored,
  no_lists,
)

_LISTED = 10  # length of the lists, in multiples of k
_WINDOW, _LEAST = 512, 8  # largest and smallest number of documents of a window
_ROUNDING = 1e-6  # rounding error of a log gain, relative to 1 + |log gain|


@dataclasses.dataclass(frozen=True)
class StandardStrategy:
  """Selects the k labels with the highest scores."""


@dataclasses.dataclass(frozen=True, eq=False)
class WeightedStrategy:
  """Selects the k labels with the highest weight times probability.

  If weights are inverse propensities, this strategy is optimal for PSP@k
  (Wydmuch et al. 2021). If weights are utilities, this strategy is optimal for
  the sum of the utilities of correct labels (Schultheis et al., Section 4.2).

  Attributes:
    weights_L: float64 [L or more], finite, at least 0. A label of weight 0 is
      never selected. Positive weights are raised to at least 4e-18 times the
      largest weight.
  """

  weights_L: np.ndarray


@dataclasses.dataclass(frozen=True)
class BoundedRandomStrategy:
  """Draws k labels from the b * k best labels (Bradley & Smyth 2001).

  Each of the b * k labels with the highest scores has the same chance. The
  drawn labels are sorted by score.

  Attributes:
    b: a number that is at least 1.
    seed: the draw for a document depends on this seed and the document's row.
  """

  b: int = 2
  seed: int = 0


@dataclasses.dataclass(frozen=True)
class CoverageStrategy:
  """Selects the k labels with the highest gain in expected coverage.

  This is Algorithm 1 of Schultheis et al. 2022. A label j with probability p_j
  has the gain (f_j + beta) p_j. The number f_j starts at 1. After each document
  for which j was selected, f_j is multiplied by 1 - p_j. Documents are visited
  in the order document_order(seed, N).

  Attributes:
    beta: a number that is at least 0. With a larger beta, correct labels that
      are well covered already count more (Section 5.3 of the paper).
    seed: the seed of the order of documents.
  """

  beta: float = 0.0
  seed: int = 0


Strategy = (
  StandardStrategy | WeightedStrategy | BoundedRandomStrategy | CoverageStrategy
)


class Selection(NamedTuple):
  """Holds the labels that a strategy selected for N documents.

  Attributes:
    ids_NK: int32 labels, PAD where no more labels can be selected.
    ranks_NK: the values by which labels are ranked, in descending order: scores
      in float32, or log weight + log probability in float64. The values are
      -inf where ids are PAD.
    scores_NK: float32, scores of the scorer's kind, -inf where ids are PAD.
    asked_again: number of lists that the scorer computed for documents that
      already had a list.
  """

  ids_NK: np.ndarray
  ranks_NK: np.ndarray
  scores_NK: np.ndarray
  asked_again: int = 0


def choose(strategy: Strategy, documents: RankedDocuments, k: int) -> Selection:
  """Selects the labels of every document.

  Args:
    strategy: the strategy, with its settings.
    documents: N documents, with a scorer.
    k: number of labels per document. A document gets fewer labels if no other
      labels can be selected.
  """
  rows_N = np.arange(documents.n_documents)
  match strategy:
    case StandardStrategy():
      ids_NK, scores_NK = documents.topk(rows_N, k)
      return Selection(ids_NK, scores_NK, scores_NK)
    case BoundedRandomStrategy(b, seed):
      return _draw(*documents.topk(rows_N, b * k), k, seed)
    case WeightedStrategy(weights_L=weights_L):
      return _weighted(documents, rows_N, k, weights_L)
    case CoverageStrategy(beta, seed):
      order_N = document_order(seed, len(rows_N))
      return Selection(*Greedy(documents, k, beta).cover(order_N))


def document_order(seed: int, n: int) -> Int[np.ndarray, ' N']:
  """Returns the order in which the coverage strategy visits n documents.

  The order is a random permutation of 0, ..., n - 1. It depends only on the two
  arguments.
  """
  return host_generator(seed, 'coverage').permutation(n)


def _weighted(
  documents: RankedDocuments, rows_N: np.ndarray, k: int, weights_L: np.ndarray
) -> Selection:
  """Selects the k labels with the highest weight times probability."""
  # A label with weight 0 gets -inf, so that it is never selected.
  with np.errstate(divide='ignore'):
    logs_L = np.log(np.asarray(weights_L, np.float64))
  ids_NK, ranks_NK = documents.weighted(rows_N, k, logs_L)
  real_NK = ids_NK != PAD
  logs_NK = ranks_NK - np.where(real_NK, logs_L[ids_NK], 0)
  logits_NK = documents.logits(rows_N, ids_NK, logs_NK)
  scores_NK = np.where(real_NK, documents.scores_of(logits_NK), -np.inf)
  return Selection(ids_NK, ranks_NK, scores_NK.astype(np.float32))


def _draw(
  ids_NA: np.ndarray, scores_NA: np.ndarray, k: int, seed: int
) -> Selection:
  """Draws k of the A labels in each document's list, in the list's order."""
  ids_NK, scores_NK = no_lists(len(ids_NA), k)
  for row, n in enumerate((ids_NA != PAD).sum(axis=1)):
    generator = host_generator(seed, 'bounded_random', row)
    places = np.sort(generator.choice(n, min(k, n), replace=False))
    ids_NK[row, : len(places)] = ids_NA[row, places]
    scores_NK[row, : len(places)] = scores_NA[row, places]
  return Selection(ids_NK, scores_NK, scores_NK)


@dataclasses.dataclass(frozen=True, eq=False)
class Greedy:
  """Runs the coverage strategy.

  Attributes:
    documents: the documents, with the scorer.
    k: number of labels per document.
    beta: beta of the gains (f + beta) p.
    listed: length of the scorer's lists, or None for 10 * k.
    window: largest number of documents that the scorer ranks at once.
  """

  documents: RankedDocuments
  k: int
  beta: float
  listed: int | None = None
  window: int = _WINDOW

  def cover(
    self, order_N: Int[np.ndarray, ' N']
  ) -> tuple[
    Int32[np.ndarray, 'N K'],
    Float64[np.ndarray, 'N K'],
    Float32[np.ndarray, 'N K'],
    int,
  ]:
    """Selects labels for all N documents, one document after another.

    Args:
      order_N: rows of the documents, in the order in which they are visited.

    Returns:
      ids_NK: int32, sorted by descending gain, then by ascending index, with
        PAD where no other label has a gain above 0.
      log_gains_NK: float64, -inf where ids are PAD.
      scores_NK: float32, scores of the scorer's kind, -inf where ids are PAD.
      asked_again: as in Selection.
    """
    n_labels, usual = self.documents.scorer.n_labels, self.listed
    length = usual = min(usual or _LISTED * self.k, n_labels)
    width, done, ranked = self.window, 0, 0
    log_f_L = np.zeros(n_labels)
    selected = _Selected.none(len(order_N), self.k)
    while done < len(order_N):
      rows_N = order_N[done : done + width]
      lists = self._rank(rows_N, length, log_f_L)
      n = self._select(lists, rows_N, log_f_L, selected)
      done, ranked = done + n, ranked + len(rows_N)
      # If no document was done, the first document's list was too short, so the
      # length is doubled. The loop always terminates, because a list with all
      # labels is sufficient.
      length = usual if n else min(2 * length, n_labels)
      width = min(max(2 * n, _LEAST), self.window)
    scores_NK = self.documents.scores_of(selected.logits_NK)
    scores_NK[selected.ids_NK == PAD] = -np.inf
    return selected.ids_NK, selected.logs_NK, scores_NK, ranked - done

  def _rank(
    self, rows_N: np.ndarray, length: int, log_f_L: np.ndarray
  ) -> '_Lists':
    """Returns lists of the labels with the highest present gains."""
    logs_L = self._log_weights(log_f_L)
    floored_L = floored(logs_L)
    ids_NK, logs_NK = self.documents.weighted(rows_N, length, logs_L)
    weights_NK = np.where(ids_NK == PAD, 0, floored_L[ids_NK])
    logits_NK = self.documents.logits(rows_N, ids_NK, logs_NK - weights_NK)
    return _Lists(
      ids_NK,
      logs_NK,
      weights_NK,
      logits_NK,
      whole=length >= len(log_f_L),
      exact=bool((logs_L == floored_L).all()),
    )

  def _select(
    self,
    lists: '_Lists',
    rows_N: np.ndarray,
    log_f_L: np.ndarray,
    selected: '_Selected',
  ) -> int:
    """Selects labels for documents until a list may not be sufficient.

    Args:
      lists: the scorer's lists for a window of documents.
      rows_N: rows of these documents.
      log_f_L: log f_j of every label. This array is changed.
      selected: the labels that are selected so far. This object is changed.

    Returns:
      The number of documents that are done.
    """
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
    """Returns the log weights of labels, log(f + beta)."""
    return np.logaddexp(log_f, np.log(self.beta)) if self.beta else log_f


@dataclasses.dataclass(frozen=True, eq=False)
class _Selected:
  """Holds the selected labels of all N documents.

  Attributes:
    ids_NK: int32, PAD where no label is selected.
    logs_NK: float64, logarithms of the gains.
    logits_NK: float64, logits of the labels' probabilities.
  """

  ids_NK: np.ndarray
  logs_NK: np.ndarray
  logits_NK: np.ndarray

  @classmethod
  def none(cls, n: int, k: int) -> '_Selected':
    """Returns empty lists."""
    return cls(no_lists(n, k)[0], np.full((n, k), -np.inf), np.zeros((n, k)))


@dataclasses.dataclass(frozen=True, eq=False)
class _Lists:
  """Holds the labels that the scorer listed for a window of N documents.

  Attributes:
    ids_NK: int32, PAD where labels run out.
    logs_NK: float64, logarithms of the gains at the time of the ranking, -inf
      where ids are PAD.
    weights_NK: float64, logarithms of the weights by which the scorer ranked
      the labels, 0 where ids are PAD.
    logits_NK: float64, logits of the labels' probabilities.
    whole: whether each list is long enough for all labels.
    exact: whether every label was ranked by its own weight. If False, some
      small weights were replaced by a larger weight.
  """

  ids_NK: np.ndarray
  logs_NK: np.ndarray
  weights_NK: np.ndarray
  logits_NK: np.ndarray
  whole: bool
  exact: bool

  def best(
    self, place: int, log_weights_K: np.ndarray, k: int
  ) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns a document's k labels with the highest present gains.

    Args:
      place: place of the document in the window.
      log_weights_K: float64, the present log weights of the listed labels, with
        any value where ids are PAD.
      k: number of labels.

    Returns:
      The places of the labels in the list, and the labels' log gains. Labels
      are sorted by descending gain, then by ascending label. There are fewer
      than k labels if all other gains are 0. The result is None if a label that
      is not listed may be among the k best labels.
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
    """Returns True if no unlisted label can be among the k best labels.

    Args:
      place: place of the document in the window.
      logs: log gains of the best labels, at most k, in descending order.
      bound: upper bound for the log gains of unlisted labels.
      k: number of labels.
    """
    if place == 0 and self.exact:
      return True  # no weight has changed since the scorer ranked the labels
    if len(logs) < k:
      return bool(bound == -np.inf)
    rounding = _ROUNDING * (1 + abs(bound))
    # If gains are equal, an unlisted label may have the lower index. So the
    # gains must be above the bound by more than the rounding error. The list of
    # the window's first document is up to date. So for this document, gains
    # that are below the bound by less than the rounding error are enough.
    return bool(logs[-1] > bound + (-rounding if place == 0 else rounding))
