"""Proposes labels to a model that ranks them: the first of two stages."""

from collections.abc import Iterable, Sequence
import dataclasses

from jaxtyping import Float32, Int32
import numpy as np

from xjax.core.types import PAD, Batch, ScoreKind, Scorer
from xjax.train.batches.candidates import children_of


@dataclasses.dataclass(frozen=True, eq=False)
class ClusterMap:
  """Holds the clusters of labels that a model proposes, in place of labels.

  Attributes:
    children: int32 [clusters, most], the labels of each cluster, PAD elsewhere.
    parent_L: int32 [L], the cluster of each label.
  """

  children: np.ndarray
  parent_L: np.ndarray

  def best(self, values_L: np.ndarray) -> np.ndarray:
    """Returns the largest value of the labels of each cluster.

    Args:
      values_L: a mask or weights of at least 0, [L or more] or [B, L or more].

    Returns:
      [clusters] or [B, clusters], with the dtype of the values.
    """
    real = self.children != PAD
    below = np.where(real, values_L[..., self.children], 0)
    return below.max(axis=-1).astype(values_L.dtype)


@dataclasses.dataclass(frozen=True, eq=False)
class Proposer:
  """Lists the labels of each document that a second model should rank.

  Each list of the second model has a shortlist of its own. So the labels of a
  slice are not lost to labels outside the slice.

  Attributes:
    scorer: ranks labels, or clusters of labels.
    kept: number of labels or clusters that the scorer lists for a document.
    clusters: the clusters; None if the scorer ranks labels.
    hinged: whether the log score of a margin z is -max(0, 1 - z)^3, as in
      tree_search.Link.L3_HINGE. Otherwise, a margin counts as a log score.
  """

  scorer: Scorer
  kept: int
  clusters: ClusterMap | None = None
  hinged: bool = False

  @property
  def size(self) -> int:
    """Returns the length A of a shortlist."""
    return self.listed * (1 if self.clusters is None else self._most)

  @property
  def listed(self) -> int:
    """Returns the number of labels or clusters that the scorer lists."""
    return min(self.kept, self.scorer.n_labels)

  @property
  def _most(self) -> int:
    return self.clusters.children.shape[1]

  def nodes(
    self,
    batches: Iterable[Batch],
    documents: int,
    weights: np.ndarray | None = None,
    slices: Sequence[np.ndarray] = (),
    allowed: np.ndarray | None = None,
  ) -> tuple[Int32[np.ndarray, 'G B K'], Float32[np.ndarray, 'G B K']]:
    """Returns the best nodes of each document, which are labels or clusters.

    Args:
      batches: batches for the scorer. Together they have each document once,
        and doc_B is the document's row in the result.
      documents: number of rows B of the result.
      weights, slices, allowed: filters of labels, as in core.types.Scorer.

    Returns:
      ids: int32, G = 1 + len(slices), PAD after the last node of a list.
      logs: the scorer's log scores, -inf where ids are PAD.
    """
    if self.clusters is not None:
      best = self.clusters.best
      weights = None if weights is None else best(weights)
      allowed = None if allowed is None else best(allowed)
      slices = [best(mask) for mask in slices]
    k = self.listed
    shape = 1 + len(slices), documents, k
    ids_GBK = np.full(shape, PAD, np.int32)
    logs_GBK = np.full(shape, -np.inf, np.float32)
    for batch in batches:
      real_B = batch.doc_B != PAD
      rows = batch.doc_B[real_B]
      mask = allowed
      if np.ndim(allowed) == 2:
        mask = np.zeros((len(real_B), allowed.shape[1]), bool)
        mask[real_B] = allowed[rows]
      ids, scores = self.scorer.topk(batch, k, weights, slices, mask)
      ids_GBK[:, rows] = ids[:, real_B]
      logs_GBK[:, rows] = self._logs(ids, scores, weights)[:, real_B]
    return ids_GBK, logs_GBK

  def _logs(
    self, ids: np.ndarray, scores: np.ndarray, weights: np.ndarray | None
  ) -> Float32[np.ndarray, '*shape']:
    """Returns the log scores of listed nodes, without their weights."""
    kind, real = self.scorer.score_kind, ids != PAD
    logs = np.where(real, scores, 1)
    if kind is ScoreKind.PROBABILITY:
      logs = np.log(logs)
    elif weights is None and kind is ScoreKind.LOGIT:
      logs = -np.logaddexp(0, -logs)
    if weights is not None:
      logs = logs - np.log(np.where(real, weights[ids], 1))
    if kind is ScoreKind.MARGIN:
      if weights is not None:  # these are logarithms of sigmoids of margins
        logs = logs - np.log(-np.expm1(np.minimum(logs, -1e-30)))
      if self.hinged:
        logs = -(np.maximum(0, 1 - logs) ** 3)
    return np.where(real, logs, -np.inf).astype(np.float32)

  def labels(
    self,
    batches: Iterable[Batch],
    documents: int,
    weights: np.ndarray | None = None,
    slices: Sequence[np.ndarray] = (),
    allowed: np.ndarray | None = None,
  ) -> tuple[Int32[np.ndarray, 'G B A'], Float32[np.ndarray, 'G B A']]:
    """Returns the shortlist of each document, and the log scores as priors.

    Args:
      batches, documents, weights, slices, allowed: arguments of `nodes`.

    Returns:
      ids: int32 labels that the filters allow, and PAD.
      priors: the log score of a label or of its cluster; any number where ids
        are PAD.
    """
    filters = weights, slices, allowed
    ids_GBK, logs_GBK = self.nodes(batches, documents, *filters)
    if self.clusters is None:
      return ids_GBK, logs_GBK
    ids = [children_of(self.clusters.children, x) for x in ids_GBK]
    ids_GBA = np.stack(ids)
    masks = [None, *slices]
    for ids_BA, mask_L in zip(ids_GBA, masks):
      _drop(ids_BA, mask_L)
      _drop(ids_BA, None if weights is None else weights > 0)
      _drop(ids_BA, allowed)
    return ids_GBA, np.repeat(logs_GBK, self._most, axis=2)


def _drop(ids_BA: np.ndarray, mask: np.ndarray | None) -> None:
  """Replaces labels outside a mask [L] or [B, L] by PAD, in place."""
  if mask is None:
    return
  at = np.where(ids_BA == PAD, 0, ids_BA)
  inside = mask[at] if mask.ndim == 1 else np.take_along_axis(mask, at, axis=1)
  ids_BA[~inside] = PAD
