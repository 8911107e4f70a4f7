"""Orders labels by frequency, and builds trees over labels in their order."""

import dataclasses

import numpy as np

from xjax.core.config_part import AT_LEAST_2, field
from xjax.data.label_trees.label_tree import (
  NO_LABEL,
  LabelTree,
  TreeConfig,
  TreeData,
)


@dataclasses.dataclass
class CompleteTree(TreeConfig):
  """Builds a tree whose leaves are the labels in their order."""

  arity: int = field(2, 'Largest number of children of a node.', AT_LEAST_2)

  def build(self, data: TreeData) -> LabelTree:
    return complete_tree(data.space.n_trained, self.arity)


def complete_tree(n_labels: int, arity: int) -> LabelTree:
  """Builds a tree over labels in their order, with all labels at one depth."""
  # It has as few nodes as possible. Only the last inner node of a depth can
  # have fewer than `arity` children.
  row = list(range(n_labels))
  parent, label = [-1] * n_labels, list(range(n_labels))
  while len(row) > 1 or row == [0]:
    above = []
    for start in range(0, len(row), arity):
      for node in row[start : start + arity]:
        parent[node] = len(parent)
      above.append(len(parent))
      parent.append(-1)
      label.append(NO_LABEL)
    row = above
  return LabelTree.of(parent, label, n_labels)


def by_frequency(counts_L: np.ndarray) -> np.ndarray:
  """Returns the labels by falling frequency, int64 [L]; ties by index."""
  return np.argsort(-np.asarray(counts_L, np.int64), kind='stable')
