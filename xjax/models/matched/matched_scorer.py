"""Ranks the labels of clusters that another model proposes, by classifiers."""

from jaxtyping import Float64
import numpy as np

from xjax.core.ranking import Lists, Query
from xjax.core.types import AS_LOGITS, PAD, ScoreKind
from xjax.data.documents import Documents
from xjax.models.features import FeatureScorer, Featuriser
from xjax.models.neural.proposer import Proposer
from xjax.models.scorer import Scorer
from xjax.models.trees.tree_search import (
  OpenNodes,
  SearchResult,
  Squash,
  TreeSearch,
)

MATCHER = 'matcher'  # the stage that proposes clusters


class MatchedScorer(FeatureScorer):
  """Ranks labels of proposed clusters.

  The score of a label is that of its classifier alone. Labels of other clusters
  are not ranked. Each slice has clusters of its own.
  """

  def __init__(
    self,
    search: TreeSearch,  # of LabelTree.of_clusters, with the link NONE
    kind: ScoreKind,  # LOGIT for logistic classifiers, else MARGIN
    featuriser: Featuriser,
    proposer: Proposer,  # proposes clusters
    block: int,  # documents that are ranked at a time
  ):
    super().__init__(featuriser, block)
    self._search, self.proposer = search, proposer
    self.score_kind = kind
    self.n_labels = search.tree.n_labels
    self.assigned_above = None if kind is ScoreKind.LOGIT else 0.0
    self.selected_by = f'clusters={proposer.kept}'

  @property
  def stages(self) -> dict[str, Scorer]:
    return {MATCHER: self.proposer.scorer}

  def rank_block(self, documents: Documents, query: Query) -> Lists:
    rows = self.featuriser(documents)
    clusters_GNK, _ = self.proposer.nodes(documents, query)
    # Node 0 is the root, and the clusters follow in their order.
    nodes_GNK = np.where(clusters_GNK == PAD, PAD, 1 + clusters_GNK)
    measures = query.measures(documents.gold)
    k = max(query.k, self.proposer.size) if measures else query.k
    weights, allowed, squash = query.weights, query.allowed, None
    if weights is not None:
      is_margin = self.score_kind is ScoreKind.MARGIN
      squash = Squash(*(weights.sigmoid if is_margin else AS_LOGITS))
    n, each = len(documents), np.ndim(allowed) == 2
    # If each document allows labels of its own, it has a search of its own.
    parts = [slice(i, i + 1) for i in range(n)] if each else [slice(n)]
    results = []
    for nodes_NK, mask_L in zip(nodes_GNK, [None, *query.slices], strict=True):
      each_part = []
      for part in parts:
        inside_L = allowed[part][0] if each else allowed
        log_L = self._logs(query, mask_L, inside_L)
        document, place = np.nonzero(nodes_NK[part] != PAD)
        own, node = rows[part], nodes_NK[part][document, place]
        nodes = OpenNodes(self._search, own, document, node)
        result = self._search.beam(own, k, 1, log_L, squash, nodes)
        each_part.append(result)
      results.append(SearchResult.concatenate(each_part))
    ids_GNK = np.stack([result.ids for result in results])
    keys_GNK = np.stack([result.keys for result in results])
    kept = {}
    if measures:
      kept = self.proposer.measured(documents, query, ids_GNK)
    lists = Lists(ids_GNK, keys_GNK.astype(np.float32), kept)
    return lists.first(query.k)

  def _logs(self, query: Query, *masks: np.ndarray | None) -> np.ndarray | None:
    """Returns the log weights of labels, -inf outside the masks."""
    used = [mask for mask in masks if mask is not None]
    if query.weights is None and not used:
      return None
    log_L = np.zeros(self.n_labels)
    if query.weights is not None:
      with np.errstate(divide='ignore'):  # weight 0: never selected
        log_L = np.log(query.weights.values.astype(np.float64))
    for mask_L in used:
      log_L = np.where(mask_L, log_L, -np.inf)
    return log_L

  def warmup(self, query: Query, explain: bool = False) -> None:
    self.proposer.scorer.warmup(self.proposer.asked(query))
    super().warmup(query, explain)

  def feature_weights(
    self, features: np.ndarray, labels: np.ndarray
  ) -> Float64[np.ndarray, 'D K']:
    return self._search.feature_weights(features, labels)
