"""Which k labels are predicted for a document, given a scorer.

The strategies that Schultheis et al. 2022, Section 5.5, compare, for any
core.types.Scorer: each asks for nothing but its lists.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from xjax.core.rng import host_generator
from xjax.core.types import PAD
from xjax.select.greedy_coverage import Greedy
from xjax.select.ranked import Ranked, no_lists


@dataclasses.dataclass(frozen=True)
class Standard:
  """The k labels of highest score."""


@dataclasses.dataclass(frozen=True, eq=False)
class Weighted:
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
class BoundedRandom:
  """k labels drawn from the b k of highest score (Bradley & Smyth 2001).

  All are as likely to be drawn. They are listed by score.

  Attributes:
    b: at least 1.
    seed: decides, with a document's row, what is drawn for it.
  """

  b: int = 2
  seed: int = 0


@dataclasses.dataclass(frozen=True)
class Coverage:
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


Strategy = Standard | Weighted | BoundedRandom | Coverage


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


def choose(strategy: Strategy, documents: Ranked, k: int) -> Chosen:
  """The labels of every document.

  Args:
    strategy: how.
    documents: N of them.
    k: labels of each; fewer where labels run out.
  """
  rows_N = np.arange(documents.n_documents)
  match strategy:
    case Standard():
      ids_NK, scores_NK = documents.topk(rows_N, k)
      return Chosen(ids_NK, scores_NK, scores_NK)
    case BoundedRandom(b, seed):
      return _drawn(*documents.topk(rows_N, b * k), k, seed)
    case Weighted(weights_L=weights_L):
      return _weighted(documents, rows_N, k, weights_L)
    case Coverage(beta, seed):
      order_N = document_order(seed, len(rows_N))
      return Chosen(*Greedy(documents, k, beta).cover(order_N))


def document_order(seed: int, n: int) -> np.ndarray:
  """The order in which coverage visits n documents: a permutation.

  It follows from the two numbers alone. No seed stands for the file's order.
  """
  return host_generator(seed, 'coverage').permutation(n)


def _weighted(
  documents: Ranked, rows_N: np.ndarray, k: int, weights_L: np.ndarray
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
