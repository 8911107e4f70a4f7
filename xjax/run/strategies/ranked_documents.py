"""Ranks the labels of any chosen documents, for the prediction strategies."""

from collections.abc import Callable
import dataclasses

from jaxtyping import Float, Float32, Float64, Int, Int32
import numpy as np

from xjax.core.ranking import Query, RanksDocuments, RankWeights
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
  """Ranks labels for N documents with a scorer."""

  scorer: RanksDocuments
  documents: Documents
  # a and b: a margin z has the probability sigmoid(a z + b).
  sigmoid: tuple[float, float] = AS_LOGITS
  # Some labels [N, known] of each document, and their scores without weights,
  # from which their probabilities are computed: products with weights have
  # fewer correct digits.
  known: tuple[np.ndarray, np.ndarray] | None = None
  on_block: Callable[[int], None] | None = None  # see Query.on_block

  @property
  def n_documents(self) -> int:
    return len(self.documents)

  def topk(
    self, rows_N: Int[np.ndarray, ' N'], k: int
  ) -> tuple[Int32[np.ndarray, 'N K'], Float32[np.ndarray, 'N K']]:
    """Returns the k best labels; PAD and -inf where labels run out."""
    return self._lists(rows_N, k)

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
    ids_NK, scores_NK = self._lists(rows_N, k, weights)
    if self.scorer.score_kind is ScoreKind.PROBABILITY:
      scores_NK = _log(np.where(ids_NK == PAD, 0, scores_NK))
    return ids_NK, scores_NK.astype(np.float64) + top

  def _lists(
    self, rows_N: np.ndarray, k: int, weights: RankWeights | None = None
  ) -> tuple[np.ndarray, np.ndarray]:
    query = Query(k, weights=weights, on_block=self.on_block)
    lists = self.scorer.rank(self.documents.part(rows_N), query)
    return lists.ids_GNK[0], lists.scores_GNK[0]

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
