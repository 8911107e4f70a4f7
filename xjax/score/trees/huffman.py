"""Trees in which documents meet the fewest nodes."""

import dataclasses
import heapq

import numpy as np

from xjax.core.config_part import AT_LEAST_2, field
from xjax.score.trees.contract import TreeConfig, TreeData
from xjax.score.trees.label_tree import NO_LABEL, LabelTree


@dataclasses.dataclass
class HuffmanTree(TreeConfig):
  """A tree in which frequent labels are near the root (Huffman 1952)."""

  arity: int = field(2, 'Children of a node.', AT_LEAST_2, tiny=2)

  def build(self, data: TreeData) -> LabelTree:
    """As TreeConfig."""
    counts = data.space.train_counts[: data.space.n_trained]
    return huffman_tree(counts, self.arity)


def huffman_tree(counts: np.ndarray, arity: int) -> LabelTree:
  """The tree in which documents meet the fewest nodes (Huffman 1952).

  Args:
    counts: int [L], documents of each label; of equal ones the lower label
      goes deeper.
    arity: children of a node; one may have fewer.
  """
  n = len(counts)
  parent, label = [-1] * n, list(range(n))
  heap = [(int(count), node) for node, count in enumerate(counts)]
  heapq.heapify(heap)
  # The first node takes what would otherwise be missing at the root.
  taken = 2 + (n - 2) % (arity - 1) if n > 1 else 1
  while len(heap) > 1 or len(parent) == n:
    below = [heapq.heappop(heap) for _ in range(min(taken, len(heap)))]
    for _, node in below:
      parent[node] = len(parent)
    heapq.heappush(heap, (sum(count for count, _ in below), len(parent)))
    parent.append(-1)
    label.append(NO_LABEL)
    taken = arity
  return LabelTree.of(parent, label, n)
