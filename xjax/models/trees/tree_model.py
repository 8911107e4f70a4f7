"""Defines linear models: label trees and, as trees of one level, one-vs-all."""

import dataclasses

import numpy as np

from xjax.core.config_part import (
  AMOUNT,
  AT_LEAST_0,
  AT_LEAST_1,
  POSITIVE,
  field,
)
from xjax.core.progress import Progress
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.label_tree import (
  LabelTree,
  TreeConfig,
  TreeInputs,
  complete_tree,
)
from xjax.data.schema import Corpus
from xjax.models.contract import Config, Run, StageToTrain
from xjax.models.features import Featuriser
from xjax.models.linear.block_weights import BlockWeights
from xjax.models.trees.joined_vectors import ENCODER, NoVectors, VectorsConfig
from xjax.models.trees.sparse_model import SparseModel, SparseTrain
from xjax.models.trees.training import Matcher
from xjax.models.trees.tree_search import TreeSearch, matched_leaves


@dataclasses.dataclass
class TreeTrain(SparseTrain):
  """Configures the training of label trees, with a classifier per child."""

  positive_weight: float = field(
    1.0,
    'Factor of c for the documents that have the label, or a label below the '
    'node.',
    POSITIVE,
  )
  threshold: float = field(
    0.1, 'Weights with a smaller absolute value are set to 0.', AMOUNT
  )
  matched: int = field(
    0,
    'Number of deepest clusters that the clusters above the labels predict for '
    'a training document. The labels of these clusters learn from the document '
    'too (matcher-aware negatives). With 0, only the labels of clusters with a '
    'gold label learn from the document.',
    AT_LEAST_0,
  )


@dataclasses.dataclass
class TreeModel(SparseModel):
  """Trains linear classifiers at the nodes of a label tree.

  With the logistic loss the model is a probabilistic label tree (Jasinska et
  al. 2016); with the squared hinge loss it is XR-Linear (Yu et al. 2022,
  "PECOS").
  """

  trained_by = TreeTrain

  tree: TreeConfig = field(ClusterTree, 'The tree over the labels.')
  n_trees: int = field(
    1,
    'Number of trees of the ensemble; each tree has a seed of its own.',
    AT_LEAST_1,
  )
  beam: int = field(
    10,
    'Number of nodes that are opened for a document at each depth. The beam is '
    'ignored if exact=True.',
    AT_LEAST_1,
    may_change=True,
  )
  exact: bool = field(
    False,
    'Whether the search opens every node that could have one of the best '
    'labels below it. If so, the search misses none of the best labels of a '
    'tree. In an ensemble, only the labels that the trees find are combined.',
    may_change=True,
  )
  vectors: VectorsConfig = field(
    NoVectors,
    'The vectors of an encoder that are joined to the sparse features of '
    'documents (the ranker of XR-Transformer).',
  )

  def check(self, corpus: Corpus, run: Run) -> None:
    super().check(corpus, run)
    self.tree.check_labels(corpus.label_space)
    self.vectors.check(corpus, run)

  def fit_featuriser(self, corpus: Corpus, run: Run) -> Featuriser:
    """Returns the featuriser; the stage of the encoder is trained if absent."""
    texts = super().fit_featuriser(corpus, run)
    return self.vectors.joined(texts, self.vectors.fitted(corpus, run))

  def open_featuriser(self, run: Run, n_features: int) -> Featuriser:
    texts = super().open_featuriser(run, n_features)
    encoder = run.open_stage(ENCODER) if self.vectors.stages else None
    return self.vectors.joined(texts, encoder)

  def trained_stages(self, config: Config) -> tuple[StageToTrain, ...]:
    return self.vectors.trained_stages(config)

  def build_tree(
    self, data: TreeInputs, run: Run
  ) -> tuple[LabelTree, Matcher | None]:
    matched, link = run.config.train.matched, self.link(run.config)
    with Progress('building the label tree'):
      tree = self.tree.build(data)

    def matcher(tree: LabelTree, weights: BlockWeights) -> np.ndarray:
      search = TreeSearch(tree, weights, link)
      return matched_leaves(data.rows, search, matched, data.workers)

    return tree, matcher if matched else None


@dataclasses.dataclass
class LinearTrain(SparseTrain):
  """Configures the training of linear models (one classifier per label)."""

  threshold: float = field(
    0.01, 'Weights with a smaller absolute value are set to 0.', AMOUNT
  )


@dataclasses.dataclass
class LinearModel(SparseModel):
  """Trains one linear classifier for each label, all below a tree's root."""

  trained_by = LinearTrain
  chained = False

  def build_tree(self, data: TreeInputs, run: Run) -> tuple[LabelTree, None]:
    n_labels = data.space.n_trained
    return complete_tree(n_labels, max(2, n_labels)), None
