"""Ranks the labels of clusters that another model proposes, by classifiers."""

from collections.abc import Sequence

from jaxtyping import Bool, Float, Float32, Float64, Int32
import numpy as np

from xjax.core.types import AS_LOGITS, PAD, Batch, ScoreKind
from xjax.data.sparse_documents import batch_rows
from xjax.models.staged.proposer import Proposer
from xjax.models.trees.tree_search import (
  OpenNodes,
  SearchResult,
  Squash,
  TreeSearch,
)


class MatchedScorer:
  """Ranks labels of proposed clusters (a core.types.Scorer).

  The score of a label is that of its classifier alone. Labels of other clusters
  are not ranked. Each slice has clusters of its own.

  Attributes:
    proposer: proposes clusters.
    score_kind: LOGIT for logistic classifiers, else MARGIN.
    n_labels: number of labels.
    assigned_above: 0 for margins, None for logits.
    selected_by: as in core.types.Scorer.
  """

  def __init__(self, search: TreeSearch, kind: ScoreKind, proposer: Proposer):
    """Makes a scorer.

    Args:
      search: searches the tree of clusters and labels (LabelTree.of_clusters),
        with the link NONE.
      kind: the kind of the scores.
      proposer: proposes the clusters.
    """
    self._search = search
    self.proposer = proposer
    self.score_kind = kind
    self.n_labels = search.tree.n_labels
    self.assigned_above = None if kind is ScoreKind.LOGIT else 0.0
    self.selected_by = f'clusters={proposer.kept}'

  def topk(
    self,
    batch: Batch,
    k: int,
    weights: Float[np.ndarray, ' L_or_more'] | None = None,
    slices: Sequence[Bool[np.ndarray, ' L_or_more']] = (),
    allowed: Bool[np.ndarray, '*documents L_or_more'] | None = None,
    sigmoid: tuple[float, float] = AS_LOGITS,
  ) -> tuple[Int32[np.ndarray, 'G B K'], Float32[np.ndarray, 'G B K']]:
    """Returns the k best labels of each document; see core.types.Scorer.

    Args:
      batch: documents with sparse features, and the proposer's batches of the
        same documents.
      k, weights, slices, allowed, sigmoid: as in core.types.Scorer.
    """
    rows = batch_rows(batch, self._search.weights.n_features)
    n, filters = rows.shape[0], (weights, tuple(slices), allowed)
    clusters_GBK, _ = self.proposer.nodes(batch.proposed, n, *filters)
    # Node 0 is the root, and the clusters follow in their order.
    nodes_GBK = np.where(clusters_GBK == PAD, PAD, 1 + clusters_GBK)
    squash = None
    if weights is not None:
      is_margin = self.score_kind is ScoreKind.MARGIN
      squash = Squash(*(sigmoid if is_margin else AS_LOGITS))
    each = np.ndim(allowed) == 2  # each document allows labels of its own
    parts = [slice(i, i + 1) for i in range(n)] if each else [slice(n)]
    results = []
    for nodes_BK, mask_L in zip(nodes_GBK, [None, *slices], strict=True):
      each_part = []
      for part in parts:
        inside_L = allowed[part][0] if each else allowed
        log_L = self._logs(weights, mask_L, inside_L)
        document, place = np.nonzero(nodes_BK[part] != PAD)
        own, node = rows[part], nodes_BK[part][document, place]
        nodes = OpenNodes(self._search, own, document, node)
        result = self._search.beam(own, k, 1, log_L, squash, nodes)
        each_part.append(result)
      results.append(SearchResult.concatenate(each_part))
    ids_GBK = np.stack([result.ids for result in results])
    keys_GBK = np.stack([result.keys for result in results])
    return ids_GBK, keys_GBK.astype(np.float32)

  def feature_weights(
    self, features: np.ndarray, labels: np.ndarray
  ) -> Float64[np.ndarray, 'D K']:
    """Returns the weights of features in labels.

    Args:
      features, labels: see TreeSearch.feature_weights.
    """
    return self._search.feature_weights(features, labels)

  def _logs(
    self, weights: np.ndarray | None, *masks: np.ndarray | None
  ) -> np.ndarray | None:
    """Returns the log weights of labels, -inf outside the masks."""
    used = [mask[: self.n_labels] for mask in masks if mask is not None]
    if weights is None and not used:
      return None
    log_L = np.zeros(self.n_labels)
    if weights is not None:
      with np.errstate(divide='ignore'):  # weight 0: never selected
        log_L = np.log(weights[: self.n_labels].astype(np.float64))
    for mask_L in used:
      log_L = np.where(mask_L, log_L, -np.inf)
    return log_L
