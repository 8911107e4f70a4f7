"""Defines linear models: one linear classifier for each label.

A linear model is a tree of one level: trees/sparse_model.py fits it, and
trees/tree_scorer.py ranks with it.
"""

import dataclasses

from xjax.core.config_part import AMOUNT, field
from xjax.data.label_trees.label_tree import LabelTree, TreeData
from xjax.data.label_trees.simple_trees import complete_tree
from xjax.models.contract import Run
from xjax.models.linear.block_weights import BlockWeights
from xjax.models.linear.classifiers import PartFiles
from xjax.models.trees.sparse_model import SparseModel, SparseTrain


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

  def train_file(
    self, number: int, data: TreeData, parts: PartFiles, run: Run
  ) -> tuple[LabelTree, BlockWeights]:
    del number  # there is one file
    n_labels = data.space.n_trained
    flat = complete_tree(n_labels, max(2, n_labels))
    return self.fit_nodes(flat, data, parts, run)
