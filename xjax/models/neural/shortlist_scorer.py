"""Ranks the labels on shortlists: the second of two stages."""

from collections.abc import Sequence
import enum
import functools
from typing import Any

from flax import nnx
import jax
from jax.sharding import NamedSharding
from jaxtyping import Bool, Float, Float32, Int32
import numpy as np

from xjax.core.mesh import BATCH, own_rows, put_batch
from xjax.core.types import AS_LOGITS, PAD, Batch, ScoreKind
from xjax.models.neural.model_scorer import ModelScorer
from xjax.models.staged.proposer import Proposer
from xjax.networks.heads.shortlist import shortlist_logits


class Combination(enum.Enum):
  """Says how a label's own score and its prior are combined.

  Attributes:
    SUM: the score plus the prior, times a weight.
    PRODUCT: the product of two probabilities. The prior is the logarithm of
      the first. The second is the sigmoid of a logit, or exp(-max(0, 1 - z)^3)
      of a margin z, as in XR-Linear.
  """

  SUM = 'sum'
  PRODUCT = 'product'


class ShortlistScorer(ModelScorer):
  """Ranks the labels that a proposer lists (a core.types.Scorer).

  Labels that are not on a document's shortlist are not ranked. Each slice has a
  shortlist of its own.

  Attributes:
    proposer: makes the shortlists.
    combination: how scores and priors are combined.
    weight: weight of the prior in a sum.
  """

  def __init__(
    self,
    *arguments: Any,
    proposer: Proposer,
    combination: Combination,
    weight: float = 1.0,
    **others: Any,
  ):
    """Makes a scorer.

    Args:
      arguments, others: arguments of ModelScorer.
      proposer: makes the shortlists.
      combination: how scores and priors are combined.
      weight: weight of the prior in a sum. With 0, labels are ranked by the
        model alone.
    """
    super().__init__(*arguments, **others)
    self.proposer = proposer
    self.combination = combination
    self.weight = weight
    self._own_kind = self.score_kind
    if combination is Combination.SUM and weight:
      self.score_kind = ScoreKind.MARGIN
    if self.score_kind is ScoreKind.MARGIN:
      chained = combination is Combination.PRODUCT
      self.assigned_above = -1.0 if chained else 0.0
    self.selected_by = f'shortlist={proposer.size}'
    self._logits = jax.jit(
      functools.partial(_logits, self._graphdef),
      out_shardings=NamedSharding(self.mesh, BATCH),
    )

  def topk(
    self,
    batch: Batch,
    k: int,
    weights: Float[np.ndarray, ' L_or_more'] | None = None,
    slices: Sequence[Bool[np.ndarray, ' L_or_more']] = (),
    allowed: Bool[np.ndarray, '*documents L_or_more'] | None = None,
    sigmoid: tuple[float, float] = AS_LOGITS,
  ) -> tuple[Int32[np.ndarray, 'G B K'], Float32[np.ndarray, 'G B K']]:
    """Returns the k best labels of each document's shortlists.

    Args:
      batch: documents, with the proposer's batches of the same documents. Rows
        that none of these batches has get empty lists.
      k, weights, slices, allowed, sigmoid: as in ModelScorer.topk.

    Returns:
      ids_GBK, scores_GBK: as in ModelScorer.topk.
    """
    rows = len(batch.doc_B)
    filters = weights, tuple(slices), allowed
    ids, priors = self.proposer.labels(batch.proposed, rows, *filters)
    ids[ids >= self.n_labels] = PAD
    ids_BX, priors_BX = (np.concatenate(x, axis=1) for x in (ids, priors))
    with jax.set_mesh(self.mesh):
      arguments = put_batch((batch, ids_BX), self.mesh)
      logits_BX = own_rows(self._logits(self.params, *arguments))
    scores_BX = self._combined(logits_BX, priors_BX)
    scores_BX = _same_for_same_label(ids_BX, scores_BX)
    if weights is not None:
      a, b = sigmoid if self.score_kind is ScoreKind.MARGIN else AS_LOGITS
      logs = -np.logaddexp(0, -(a * scores_BX + b))
      with np.errstate(divide='ignore'):
        logs = logs + np.log(weights[np.where(ids_BX == PAD, 0, ids_BX)])
      scores_BX = np.where(ids_BX == PAD, -np.inf, logs).astype(np.float32)
    parts = len(ids)
    lists = [
      _best(ids_BA, scores_BA, k)
      for ids_BA, scores_BA in zip(ids, np.split(scores_BX, parts, axis=1))
    ]
    best_ids, best_scores = map(np.stack, zip(*lists))
    return best_ids, best_scores

  def _combined(
    self, logits: np.ndarray, priors: np.ndarray
  ) -> Float32[np.ndarray, '*shape']:
    """Returns the scores of labels from their logits and their priors.

    Args:
      logits: float32, -inf where there is no label.
      priors: float32 of the same shape.
    """
    real = logits != -np.inf
    z, prior = (
      np.where(real, x, 0).astype(np.float64) for x in (logits, priors)
    )
    if self.combination is Combination.SUM:
      scores = z + self.weight * prior
    elif self._own_kind is ScoreKind.MARGIN:
      scores = prior - np.maximum(0, 1 - z) ** 3
    else:
      log = np.minimum(prior - np.logaddexp(0, -z), -1e-30)
      scores = log - np.log(-np.expm1(log))
    return np.where(real, scores, -np.inf).astype(np.float32)


def _logits(graphdef, params, batch, ids_BX):
  """Computes the logits of some labels; jax.jit compiles this function."""
  model = nnx.merge(graphdef, params)
  return shortlist_logits(model.head.ready(), model.features(batch), ids_BX)


def _same_for_same_label(
  ids_BX: np.ndarray, scores_BX: np.ndarray
) -> Float32[np.ndarray, 'B X']:
  """Gives a label that occurs several times its score at the first place.

  The scores of the same label at two places can differ in their last bits.
  """
  order = np.argsort(ids_BX, axis=1, kind='stable')
  ids = np.take_along_axis(ids_BX, order, axis=1)
  places = np.arange(ids.shape[1])
  new = np.ones(ids.shape, bool)
  new[:, 1:] = ids[:, 1:] != ids[:, :-1]
  first = np.maximum.accumulate(np.where(new, places, 0), axis=1)
  scores = np.take_along_axis(scores_BX, order, axis=1)
  scores = np.take_along_axis(scores, first, axis=1)
  result = np.empty_like(scores)
  np.put_along_axis(result, order, scores, axis=1)
  return np.where(ids_BX == PAD, -np.inf, result).astype(np.float32)


def _best(
  ids_BA: np.ndarray, scores_BA: np.ndarray, k: int
) -> tuple[Int32[np.ndarray, 'B K'], Float32[np.ndarray, 'B K']]:
  """Returns the k best labels of each row.

  Labels are sorted by descending score, then by ascending index.
  """
  order = np.lexsort((ids_BA, -scores_BA), axis=1)[:, :k]
  ids_BK = np.take_along_axis(ids_BA, order, axis=1)
  scores_BK = np.take_along_axis(scores_BA, order, axis=1)
  ids_BK[scores_BK == -np.inf] = PAD
  missing = ((0, 0), (0, k - ids_BK.shape[1]))
  return (
    np.pad(ids_BK, missing, constant_values=PAD),
    np.pad(scores_BK, missing, constant_values=-np.inf),
  )
