"""The labels that a scorer ranks for documents, whichever are asked for."""

from collections.abc import Callable, Iterable
import dataclasses
import functools

import numpy as np

from xjax.core.distributed import rank_documents
from xjax.core.types import AS_LOGITS, PAD, Batch, ScoreKind, Scorer
from xjax.judge.metrics.calibration_error import sigmoid as probability_of

# Rows of documents -> batches that hold each once, of which doc_B is the place
# among the rows asked for. This process's part of them; all have as many.
BatchesOf = Callable[[np.ndarray], Iterable[Batch]]

_BLOCK = 1024  # documents of which lists are compared at a time
_NEARLY_1 = -(2.0**-24)  # log of the highest probability told from a product
_SMALLEST = -40.0  # log of the smallest weight, where the largest is 1


@dataclasses.dataclass(frozen=True, eq=False)
class RankedDocuments:
  """N documents and the labels that a scorer ranks for them.

  Attributes:
    scorer: ranks labels.
    batches_of: makes batches of documents.
    n_documents: N; rows are below it.
    sigmoid: a and b of margins' probabilities sigmoid(a z + b).
    known: int32 [N, D] labels and float32 [N, D] their scores, without weights:
      what is known of them is not told from products. None: nothing is.
  """

  scorer: Scorer
  batches_of: BatchesOf
  n_documents: int
  sigmoid: tuple[float, float] = AS_LOGITS
  known: tuple[np.ndarray, np.ndarray] | None = None

  def topk(self, rows_N: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best labels of some documents.

    Args:
      rows_N: integers, the documents.
      k: length of the lists.

    Returns:
      ids_NK: int32, PAD where labels run out.
      scores_NK: float32 as the scorer gives them, -inf where ids are PAD.
    """
    return self._lists(rows_N, k, {})

  def weighted(
    self, rows_N: np.ndarray, k: int, log_weights_L: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """The k labels of highest weight times probability.

    Args:
      rows_N: integers, the documents.
      k: length of the lists.
      log_weights_L: float64 [L or more], logarithms of the weights; -inf: never
        selected. Those more than 40 below the highest count as if they were 40
        below.

    Returns:
      ids_NK: int32, PAD where labels run out.
      logs_NK: float64, log weight + log probability; -inf where ids are PAD.
    """
    log_weights_L = log_weights_L[: self.scorer.n_labels]
    top = float(log_weights_L.max(initial=-np.inf))
    if top == -np.inf:  # there is nothing to select
      return no_lists(len(rows_N), k)
    # The same array for all batches: it goes to the devices once.
    weights_L = np.exp(floored(log_weights_L) - top).astype(np.float32)
    asked = {'weights': weights_L}
    if self.scorer.score_kind is ScoreKind.MARGIN:
      asked['sigmoid'] = self.sigmoid
    ids_NK, scores_NK = self._lists(rows_N, k, asked)
    if self.scorer.score_kind is ScoreKind.PROBABILITY:
      scores_NK = _log(np.where(ids_NK == PAD, 0, scores_NK))
    return ids_NK, scores_NK.astype(np.float64) + top

  def _lists(
    self, rows_N: np.ndarray, k: int, asked: dict
  ) -> tuple[np.ndarray, np.ndarray]:
    topk = functools.partial(self.scorer.topk, k=k, **asked)
    lists = rank_documents(self.batches_of(rows_N), topk, len(rows_N), k)
    return lists[0][0], lists[1][0]

  def logits(
    self, rows_N: np.ndarray, ids_NK: np.ndarray, logs_NK: np.ndarray
  ) -> np.ndarray:
    """Logits of the probabilities of listed labels.

    Args:
      rows_N: integers, the documents.
      ids_NK: int32, labels listed for them.
      logs_NK: float64, logarithms of their probabilities as far as products
        with weights tell them: near 1 that is not far.

    Returns:
      float64 [N, K]; of PAD, anything.
    """
    logs_NK = np.minimum(logs_NK, _NEARLY_1)
    logits_NK = logs_NK - np.log(-np.expm1(logs_NK))
    if self.known is None:
      return logits_NK
    for start in range(0, len(rows_N), _BLOCK):
      part = slice(start, start + _BLOCK)
      known_ND, scores_ND = (each[rows_N[part]] for each in self.known)
      same_NKD = ids_NK[part, :, None] == known_ND[:, None]
      at_NK = same_NKD.argmax(-1)
      known_NK = self._logits_of(np.take_along_axis(scores_ND, at_NK, 1))
      logits_NK[part] = np.where(same_NKD.any(-1), known_NK, logits_NK[part])
    return logits_NK

  def _logits_of(self, scores: np.ndarray) -> np.ndarray:
    """float64 logits of the probabilities of scores."""
    scores = scores.astype(np.float64)
    match self.scorer.score_kind:
      case ScoreKind.LOGIT:
        return scores
      case ScoreKind.MARGIN:
        return self.sigmoid[0] * scores + self.sigmoid[1]
      case ScoreKind.PROBABILITY:
        scores = np.maximum(scores, 0)  # of PAD it is -inf
        return _log(scores) - _log(1 - scores)

  def scores_of(self, logits: np.ndarray) -> np.ndarray:
    """float32 scores, as the scorer gives them, of such logits."""
    match self.scorer.score_kind:
      case ScoreKind.LOGIT:
        scores = logits
      case ScoreKind.MARGIN:
        scores = (logits - self.sigmoid[1]) / self.sigmoid[0]
      case ScoreKind.PROBABILITY:
        scores = probability_of(logits)
    return scores.astype(np.float32)


def no_lists(n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
  """Lists without any label: int32 [n, k] PAD, float32 [n, k] -inf."""
  return np.full((n, k), PAD, np.int32), np.full((n, k), -np.inf, np.float32)


def floored(log_weights_L: np.ndarray) -> np.ndarray:
  """Such log weights as RankedDocuments.weighted counts them as; -inf stays."""
  least = log_weights_L.max(initial=-np.inf) + _SMALLEST
  never_L = log_weights_L == -np.inf
  return np.where(never_L, -np.inf, np.maximum(log_weights_L, least))


def _log(values: np.ndarray) -> np.ndarray:
  with np.errstate(divide='ignore'):
    return np.log(values)
