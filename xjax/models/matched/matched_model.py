"""Defines X-Transformer: a matcher of clusters, and classifiers of labels."""

from collections.abc import Iterator
import dataclasses
from typing import Any

import numpy as np
from scipy import sparse

from xjax.core.config_part import AT_LEAST_1, POSITIVE, field
from xjax.core.ranking import Lists, Query
from xjax.core.types import PAD, ScoreKind
from xjax.data.documents import Documents
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.label_trees.label_tree import LabelTree, TreeInputs
from xjax.data.label_trees.levels import LevelsConfig
from xjax.data.schema import Corpus
from xjax.data.tokens_config import TfidfConfig
from xjax.losses.squared_hinge import SquaredHingeConfig
from xjax.models.contract import Config, Run, StageToTrain
from xjax.models.features import Featuriser
from xjax.models.neural.level_stages import (
  RunLevels,
  level_corpus,
  saved_levels,
)
from xjax.models.neural.proposals import proposed_nodes, saved_nodes
from xjax.models.neural.proposer import ClusterMap, Proposer
from xjax.models.scorer import Scorer
from xjax.models.stage import Stage, StageConfig
from xjax.models.trees.joined_vectors import JoinedFeaturiser, encoder_faults
from xjax.models.trees.sparse_model import SparseModel
from xjax.models.trees.training import Matcher, proposed_clusters
from xjax.models.trees.tree_model import TreeTrain
from xjax.models.trees.tree_scorer import TreeScorer, by_filter, log_weights
from xjax.models.trees.tree_search import NodeOpener, TreeSearch

MATCHER = 'matcher'  # the stage that proposes clusters


class MatchedScorer(TreeScorer):
  """Ranks labels of proposed clusters."""

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
    self.proposer = proposer
    self.selected_by = f'clusters={proposer.kept}'

  @property
  def stages(self) -> dict[str, Scorer]:
    return {MATCHER: self.proposer.scorer}

  def rank_block(self, documents: Documents, query: Query) -> Lists:
    rows = self.featuriser(documents)
    clusters_GNK, _ = self.proposer.nodes(documents, query)
    # Node 0 is the root, and the clusters follow in their order.
    nodes_NGK = np.where(clusters_GNK == PAD, PAD, 1 + clusters_GNK)
    # Documents come first, so that by_filter can cut the array.
    nodes_NGK = nodes_NGK.swapaxes(0, 1)
    measures, k = query.measures(documents.gold), query.k
    if measures:
      k = max(k, self.proposer.size)

    (tree,) = self._searches

    def rank(
      query: Query, rows: sparse.csr_array, nodes_NGK: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
      squash, lists = self.squash(query), []
      for logs_L, nodes_NK in zip(
        log_weights(query), nodes_NGK.swapaxes(0, 1), strict=True
      ):
        at = document, _ = np.nonzero(nodes_NK != PAD)
        # The search starts at the proposed clusters, not at the root, so other
        # labels are never scored.
        nodes = NodeOpener(tree, rows, document, nodes_NK[at])
        found = tree.beam(rows, k, 1, logs_L, squash, nodes)
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


def _matcher_stage() -> StageConfig:
  stage = StageConfig()
  # The loss of the paper: the scores of clusters are margins.
  stage.train.loss = SquaredHingeConfig()
  return stage


@dataclasses.dataclass
class MatchedModel(SparseModel):
  """Ranks the labels of clusters that a neural model proposes (X-Transformer).

  The neural model is the matcher, a stage of the run. It learns which clusters
  of labels a document has. Then each label has a linear classifier, whose
  features are a document's TF-IDF features and its vector, both of length 1.
  Only labels of proposed clusters are ranked (Chang et al. 2020,
  https://arxiv.org/abs/1905.02331, Section 3).
  """

  reads = (TfidfConfig,)
  trained_by = TreeTrain
  chained = above = False

  levels: LevelsConfig = field(
    lambda: LevelsConfig(sizes=(64,)), 'One level of clusters of labels.'
  )
  matcher: StageConfig = field(
    _matcher_stage, 'The neural model that proposes clusters.'
  )
  kept: int = field(
    10,
    'Number of clusters of a document whose labels are ranked.',
    AT_LEAST_1,
    may_change=True,
  )
  weight: float = field(
    1.0,
    "Length to which the matcher's vector of a document is scaled. The TF-IDF "
    'features of a document have length 1.',
    POSITIVE,
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    if len(self.levels.sizes) != 1:
      yield (
        f'{path}.levels.sizes={self.levels.sizes}: must be one number of '
        'clusters'
      )
    yield from encoder_faults(self.matcher, f'{path}.matcher')
    if getattr(self.matcher.model, 'head', None) and (
      self.matcher.model.head.describes
    ):
      yield (
        f'{path}.matcher.model.head: needs a head without label names, because '
        'clusters have no names'
      )

  def check(self, corpus: Corpus, run: Run) -> None:
    super().check(corpus, run)
    clusters, _ = level_corpus(corpus, self._levels(run).of(corpus))
    self._matcher(run).check(clusters)

  def fit_featuriser(self, corpus: Corpus, run: Run) -> Featuriser:
    """Returns the featuriser; the matcher is trained if absent."""
    # The order matters: levels are saved first, since the matcher's corpus
    # depends on them, and then the matcher's proposals.
    texts, train = super().fit_featuriser(corpus, run), run.config.train
    clusters, _ = level_corpus(corpus, self._levels(run).keep(corpus))
    matcher = self._matcher(run).train(clusters)
    if train.matched:
      proposer = Proposer(matcher, train.matched)
      proposed_nodes(run, proposer, corpus.splits[TRAIN])
    return self._joined(texts, matcher)

  def open_featuriser(self, run: Run, n_features: int) -> Featuriser:
    texts = super().open_featuriser(run, n_features)
    return self._joined(texts, run.open_stage(MATCHER))

  def _joined(self, texts: Featuriser, matcher: Scorer) -> JoinedFeaturiser:
    return JoinedFeaturiser(texts.data, texts.featurise, matcher, self.weight)

  def scorer(
    self, searches: list[TreeSearch], featuriser: JoinedFeaturiser, run: Run
  ) -> MatchedScorer:
    clusters = ClusterMap.above_labels(saved_levels(run))
    proposer = Proposer(featuriser.encoder, self.kept, clusters)
    kind, block = self.score_kind(run.config), run.config.eval.batch_size
    return MatchedScorer(searches[0], kind, featuriser, proposer, block)

  def trained_stages(self, config: Config) -> tuple[StageToTrain, ...]:
    own, (size,) = self.matcher.run_config(config), self.levels.sizes
    return (StageToTrain(own, MATCHER, size),)

  def build_tree(
    self, data: TreeInputs, run: Run
  ) -> tuple[LabelTree, Matcher | None]:
    levels, matcher = saved_levels(run), None
    n_clusters = levels.sizes[-2]
    if run.config.train.matched:
      nodes_NK = saved_nodes(run, len(data.gold), n_clusters)
      matcher = proposed_clusters(nodes_NK)
    return LabelTree.of_clusters(levels.parents[-1], n_clusters), matcher

  def _levels(self, run: Run) -> RunLevels:
    return RunLevels(self.levels, run, 'config.model.levels')

  def _matcher(self, run: Run) -> Stage:
    return Stage(self.matcher, run, MATCHER, 'config.model.matcher')
