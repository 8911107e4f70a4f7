"""Builds trees from the order of labels, or from how frequent labels are."""

import dataclasses
import heapq

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


@dataclasses.dataclass
class HuffmanTree(TreeConfig):
  """Builds a tree with frequent labels near the root (Huffman 1952)."""

  arity: int = field(2, 'Largest number of children of a node.', AT_LEAST_2)

  def build(self, data: TreeData) -> LabelTree:
    counts = data.space.train_counts[: data.space.n_trained]
    return huffman_tree(counts, self.arity)


def huffman_tree(counts: np.ndarray, arity: int) -> LabelTree:
  """Builds the tree in which documents have the fewest positive nodes in total.

  A label makes its own node, and all above it except the root, positive for
  each of its documents. So the sum of documents times depth is smallest
  (Huffman 1952). Among labels with equal counts, a lower index is at least as
  deep. One node may have fewer children than `arity`.
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


def by_frequency(counts_L: np.ndarray) -> np.ndarray:
  """Returns the labels by falling frequency, int64 [L]; ties by index."""
  return np.argsort(-np.asarray(counts_L, np.int64), kind='stable')
