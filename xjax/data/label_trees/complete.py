"""Builds trees that keep the order of labels and have few nodes."""

import dataclasses

from xjax.core.config_part import AT_LEAST_2, field
from xjax.data.label_trees.label_tree import NO_LABEL, LabelTree
from xjax.data.label_trees.tree_config import TreeConfig, TreeData


@dataclasses.dataclass
class CompleteTree(TreeConfig):
  """Builds a tree whose leaves are the labels in their order."""

  arity: int = field(
    2, 'Largest number of children of a node.', AT_LEAST_2, tiny=2
  )

  def build(self, data: TreeData) -> LabelTree:
    return complete_tree(data.space.n_trained, self.arity)


def complete_tree(n_labels: int, arity: int) -> LabelTree:
  """Builds a tree over labels in their order, with all labels at one depth.

  The tree has as few nodes as possible. All inner nodes have `arity` children,
  except the last inner node of each depth, which can have fewer.
  """
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
