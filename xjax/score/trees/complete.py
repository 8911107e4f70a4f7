"""Trees of labels in their order, all nodes with as many children."""

import dataclasses

from xjax.core.config_part import AT_LEAST_2, field
from xjax.score.trees.contract import TreeConfig, TreeData
from xjax.score.trees.label_tree import NO_LABEL, LabelTree


@dataclasses.dataclass
class CompleteTree(TreeConfig):
  """A tree of labels in their order."""

  arity: int = field(2, 'Children of a node.', AT_LEAST_2, tiny=2)

  def build(self, data: TreeData) -> LabelTree:
    """As TreeConfig."""
    return complete_tree(data.space.n_trained, self.arity)


def complete_tree(n_labels: int, arity: int) -> LabelTree:
  """Labels in their order, and as few nodes as need be above them.

  All nodes but the last ones have arity children.
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
