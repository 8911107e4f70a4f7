"""The leaves that a trained part of a tree predicts for documents."""

import numpy as np
from scipy import sparse

from xjax.data.label_trees.complete import complete_tree
from xjax.models.linear.block_weights import BlockWeights
from xjax.models.linear.classifiers import Classifiers
from xjax.models.trees.tree_matcher import TreeMatcher
from xjax.models.trees.tree_search import Link


def test_the_best_leaves_are_listed_whatever_the_number_of_threads():
  rng = np.random.default_rng(0)
  rows = sparse.csr_array(rng.normal(size=(9, 5)).astype(np.float32))
  tree = complete_tree(6, 6)
  kernel = rng.normal(size=(5, 6)).astype(np.float32)
  classifiers = Classifiers.from_dense(kernel, np.zeros(6), 0.0)
  weights = BlockWeights.of([classifiers], tree.columns, kernel.size)
  expected = np.argsort(-(rows @ kernel), axis=1)[:, :2]
  for workers in (1, 2):
    matcher = TreeMatcher(2, Link.NONE)
    np.testing.assert_array_equal(
      matcher(rows, tree, weights, workers), expected
    )
