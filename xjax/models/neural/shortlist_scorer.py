"""Ranks the labels on shortlists: the second of two stages."""

from collections.abc import Callable
import functools

from flax import nnx
import jax
from jax.sharding import NamedSharding
from jaxtyping import Float32, Int32
import numpy as np

from xjax.core.mesh import BATCH, own_rows, put_batch
from xjax.core.ranking import Lists, Query, RankWeights
from xjax.core.types import AS_LOGITS, PAD, ScoreKind
from xjax.data.documents import Documents
from xjax.models.contract import Run
from xjax.models.neural.level_stages import LEVEL
from xjax.models.neural.neural_scorer import NeuralScorer
from xjax.models.neural.proposer import Combination, Proposer
from xjax.models.neural.shortlists import PROPOSER
from xjax.models.scorer import Scorer
from xjax.networks.batch import TokenBatch
from xjax.networks.heads.shortlist import shortlist_logits
from xjax.train.batches.inputs import TokenReader
from xjax.train.state import StatePlan


class ShortlistScorer(NeuralScorer):
  """Ranks the labels that a proposer lists."""

  def __init__(
    self,
    run: Run,
    plan: StatePlan,
    mesh: jax.sharding.Mesh,
    n_labels: int,
    reader: TokenReader,
    proposer: Proposer,
  ):
    super().__init__(run, plan, mesh, n_labels, reader)
    self.proposer = proposer
    # The weight is that of the prior in a sum; 0 ranks by the model alone.
    self.combination, self.weight = run.config.model.shortlist.combination
    self._own_kind = self.score_kind
    chained = self.combination is Combination.PRODUCT
    # A logit plus a prior is no logit any more.
    if not chained and self.weight:
      self.score_kind = ScoreKind.MARGIN
    if self.score_kind is ScoreKind.MARGIN:
      self.assigned_above = -1.0 if chained else 0.0
    self.selected_by = f'shortlist={proposer.size}'
    self._logits = logits_program(plan.graphdef, self.mesh)

  @property
  def stages(self) -> dict[str, Scorer]:
    name = PROPOSER if self.proposer.clusters is None else LEVEL
    return {name: self.proposer.scorer}

  def warmup(self, query: Query, explain: bool = False) -> None:
    self.proposer.scorer.warmup(self.proposer.asked(query))
    super().warmup(query, explain)

  def batch_ranker(
    self, documents: Documents, query: Query
  ) -> Callable[[TokenBatch], Lists]:
    def rank(batch: TokenBatch) -> Lists:
      real_B = batch.doc_B != PAD
      rows = batch.doc_B[real_B]
      return self._rank(
        batch, real_B, documents.part(rows), query.for_rows(rows)
      )

    return rank

  def _rank(
    self,
    batch: TokenBatch,
    real_B: np.ndarray,  # the rows that have a document
    documents: Documents,  # of these rows
    query: Query,
  ) -> Lists:
    ids_GNA, priors_GNA = self.proposer.labels(documents, query)
    shape = query.n_lists, len(real_B), ids_GNA.shape[2]
    ids, priors = np.full(shape, PAD, np.int32), np.zeros(shape, np.float32)
    ids[:, real_B], priors[:, real_B] = ids_GNA, priors_GNA
    # The other model may know more labels than this one has rows for.
    ids[ids >= self.n_labels] = PAD
    # The lists of all slices are scored at once, in one program.
    ids_BX, priors_BX = (np.concatenate(x, axis=1) for x in (ids, priors))
    with jax.set_mesh(self.mesh):
      arguments = put_batch((batch, ids_BX), self.mesh)
      logits_BX = own_rows(self._logits(self.params, *arguments))
    scores_BX = self._combined(logits_BX, priors_BX)
    scores_BX = _same_for_same_label(ids_BX, scores_BX)
    if query.weights is not None:
      scores_BX = self._weighted(ids_BX, scores_BX, query.weights)
    measures = query.measures(documents.gold)
    k = max(query.k, self.proposer.size) if measures else query.k
    parts = np.split(scores_BX, len(ids), axis=1)
    best = [_best(*part, k) for part in zip(ids, parts, strict=True)]
    best_ids, best_scores = map(np.stack, zip(*best))
    kept = {}
    if measures:
      query = query.for_labels(self.n_labels)
      counts = self.proposer.measured(documents, query, best_ids[:, real_B])
      for step, kept_MN in counts.items():
        kept[step] = np.zeros((len(kept_MN), len(real_B)), np.int32)
        kept[step][:, real_B] = kept_MN
    return Lists(best_ids[:, :, : query.k], best_scores[:, :, : query.k], kept)

  def _weighted(
    self, ids: np.ndarray, scores: np.ndarray, weights: RankWeights
  ) -> Float32[np.ndarray, '*shape']:
    """Returns the logarithms of weight times probability of labels."""
    is_margin = self.score_kind is ScoreKind.MARGIN
    a, b = weights.sigmoid if is_margin else AS_LOGITS
    logs = -np.logaddexp(0, -(a * scores + b))
    # Weight 0 gives -inf, and the label is not listed.
    with np.errstate(divide='ignore'):
      logs = logs + np.log(weights.values[np.where(ids == PAD, 0, ids)])
    return np.where(ids == PAD, -np.inf, logs).astype(np.float32)

  def _combined(
    self, logits: np.ndarray, priors: np.ndarray
  ) -> Float32[np.ndarray, '*shape']:
    """Returns scores from logits, -inf where there is no label, and priors."""
    real = logits != -np.inf
    z, prior = (
      # float64: the sum of a large prior and a small logit loses digits in
      # float32.
      np.where(real, x, 0).astype(np.float64)
      for x in (logits, priors)
    )
    if self.combination is Combination.SUM:
      scores = z + self.weight * prior
    elif self._own_kind is ScoreKind.MARGIN:
      scores = prior - np.maximum(0, 1 - z) ** 3
    else:
      # The logit of a probability of 1 is inf; the bound keeps it finite.
      log = np.minimum(prior - np.logaddexp(0, -z), -1e-30)
      scores = log - np.log(-np.expm1(log))
    return np.where(real, scores, -np.inf).astype(np.float32)


def logits_program(graphdef: nnx.GraphDef, mesh: jax.sharding.Mesh) -> Callable:
  """Returns the program that scores the labels on shortlists (see _logits)."""
  return jax.jit(
    functools.partial(_logits, graphdef),
    out_shardings=NamedSharding(mesh, BATCH),
  )


def _logits(graphdef, params, batch, ids_BX):
  model = nnx.merge(graphdef, params)
  return shortlist_logits(model.head.ready(), model.features(batch), ids_BX)


def _same_for_same_label(
  ids_BX: np.ndarray, scores_BX: np.ndarray
) -> Float32[np.ndarray, 'B X']:
  """Gives a label that occurs several times its score at the first place."""
  # The scores of the same label at two places can differ in their last bits.
  order = np.argsort(ids_BX, axis=1, kind='stable')
  ids = np.take_along_axis(ids_BX, order, axis=1)
  places = np.arange(ids.shape[1])
  new = np.ones(ids.shape, bool)
  new[:, 1:] = ids[:, 1:] != ids[:, :-1]
  # The sort is stable, so the first of equal ids is that of the first place.
  first = np.maximum.accumulate(np.where(new, places, 0), axis=1)
  scores = np.take_along_axis(scores_BX, order, axis=1)
  scores = np.take_along_axis(scores, first, axis=1)
  result = np.empty_like(scores)
  np.put_along_axis(result, order, scores, axis=1)
  return np.where(ids_BX == PAD, -np.inf, result).astype(np.float32)


def _best(
  ids_BA: np.ndarray, scores_BA: np.ndarray, k: int
) -> tuple[Int32[np.ndarray, 'B K'], Float32[np.ndarray, 'B K']]:
  """Returns the k best labels of each row, equal ones by ascending index."""
  # lexsort sorts by its last key first: by score, then by index.
  order = np.lexsort((ids_BA, -scores_BA), axis=1)[:, :k]
  ids_BK = np.take_along_axis(ids_BA, order, axis=1)
  scores_BK = np.take_along_axis(scores_BA, order, axis=1)
  ids_BK[scores_BK == -np.inf] = PAD
  missing = ((0, 0), (0, k - ids_BK.shape[1]))
  return (
    np.pad(ids_BK, missing, constant_values=PAD),
    np.pad(scores_BK, missing, constant_values=-np.inf),
  )
