"""Builds Huffman trees, in which frequent labels are near the root."""

import dataclasses
import heapq

import numpy as np

from xjax.core.config_part import AT_LEAST_2, field
from xjax.data.label_trees.label_tree import NO_LABEL, LabelTree
from xjax.data.label_trees.tree_config import TreeConfig, TreeData


@dataclasses.dataclass
class HuffmanTree(TreeConfig):
  """Builds a tree with frequent labels near the root (Huffman 1952)."""

  arity: int = field(
    2, 'Largest number of children of a node.', AT_LEAST_2, tiny=2
  )

  def build(self, data: TreeData) -> LabelTree:
    counts = data.space.train_counts[: data.space.n_trained]
    return huffman_tree(counts, self.arity)


def huffman_tree(counts: np.ndarray, arity: int) -> LabelTree:
  """Builds the tree in which documents have the fewest positive nodes in total.

  A label makes these nodes positive for each document of the label: the label's
  own node, and all nodes above this node except the root. So the tree minimises
  a sum over labels: the number of documents of a label times the depth of the
  label (Huffman 1952). Among labels with equal counts, a lower index is at
  least as deep. One node may have fewer children than `arity`.
  """
  n = len(counts)
  parent, label = [-1] * n, list(range(n))
  heap = [(int(count), node) for node, count in enumerate(counts)]
  heapq.heapify(heap)
  # The first node may take fewer children, so that the root has arity children.
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
