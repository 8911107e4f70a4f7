"""Ranks the labels of clusters that another model proposes, by classifiers."""

import numpy as np
from scipy import sparse

from xjax.core.ranking import Lists, Query
from xjax.core.types import PAD, ScoreKind
from xjax.data.documents import Documents
from xjax.models.features import Featuriser
from xjax.models.neural.proposer import Proposer
from xjax.models.scorer import Scorer
from xjax.models.trees.tree_scorer import TreeScorer, by_filter, log_weights
from xjax.models.trees.tree_search import OpenNodes, TreeSearch

MATCHER = 'matcher'  # the stage that proposes clusters


class MatchedScorer(TreeScorer):
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
    super().__init__(
      [search], kind, featuriser, beam=1, exact=False, workers=1, block=block
    )
    self._tree, self.proposer = search, proposer
    self.selected_by = f'clusters={proposer.kept}'

  @property
  def stages(self) -> dict[str, Scorer]:
    return {MATCHER: self.proposer.scorer}

  def rank_block(self, documents: Documents, query: Query) -> Lists:
    rows = self.featuriser(documents)
    clusters_GNK, _ = self.proposer.nodes(documents, query)
    # Node 0 is the root, and the clusters follow in their order.
    nodes_NGK = np.where(clusters_GNK == PAD, PAD, 1 + clusters_GNK)
    nodes_NGK = nodes_NGK.swapaxes(0, 1)
    measures, k = query.measures(documents.gold), query.k
    if measures:
      k = max(k, self.proposer.size)

    def rank(
      query: Query, rows: sparse.csr_array, nodes_NGK: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
      squash, lists = self.squash(query), []
      for logs_L, nodes_NK in zip(
        log_weights(query), nodes_NGK.swapaxes(0, 1), strict=True
      ):
        at = document, _ = np.nonzero(nodes_NK != PAD)
        nodes = OpenNodes(self._tree, rows, document, nodes_NK[at])
        found = self._tree.beam(rows, k, 1, logs_L, squash, nodes)
        lists.append((found.ids, found.keys))
      ids_GNK, keys_GNK = (np.stack(arrays) for arrays in zip(*lists))
      return ids_GNK, keys_GNK

    ids_GNK, keys_GNK = by_filter(query, len(documents), rank, rows, nodes_NGK)
    kept = {}
    if measures:
      kept = self.proposer.measured(documents, query, ids_GNK)
    lists = Lists(ids_GNK, keys_GNK.astype(np.float32), kept)
    return lists.first(query.k)

  def warmup(self, query: Query, explain: bool = False) -> None:
    self.proposer.scorer.warmup(self.proposer.asked(query))
    super().warmup(query, explain)
