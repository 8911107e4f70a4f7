"""Label trees: of clusters, complete, Huffman, and of parents."""

from collections.abc import Callable, Sequence
import heapq
import math

import numpy as np

from xjax.score.trees.label_tree import NO_LABEL, LabelTree

# (labels, k, seed) -> the cluster of each, 0 to k - 1.
Part = Callable[[np.ndarray, int, Sequence[int]], np.ndarray]


def cluster_degrees(n_labels: int, arity: int, max_leaf: int) -> list[int]:
  """How many parts the nodes of each depth are cut into.

  The fewest depths that leave at most max_leaf labels to a node; nodes of all
  depths have about as many children, at most arity.

  Args:
    n_labels: of the tree.
    arity: children of a node above the labels, at most.
    max_leaf: labels of a node, at most.
  """
  clusters = -(-n_labels // max_leaf)
  if clusters <= 1:
    return []
  depth = 1
  while arity**depth < clusters:
    depth += 1
  degrees = []
  for left in range(depth, 0, -1):
    degree = math.ceil(round(clusters ** (1 / left), 9))
    degrees.append(degree)
    clusters = -(-clusters // degree)
  return degrees[::-1]


def halving_degrees(n_labels: int, arity: int, max_leaf: int) -> list[int]:
  """As cluster_degrees, of powers of 2: the lowest nodes have arity children.

  Args:
    n_labels: of the tree.
    arity: a power of 2.
    max_leaf: labels of a node, at most.
  """
  halvings = math.ceil(math.log2(max(1.0, n_labels / max_leaf)))
  step = arity.bit_length() - 1
  whole, rest = divmod(halvings, step)
  return [2**rest] * bool(rest) + [arity] * whole


def clustered_tree(
  n_labels: int, degrees: Sequence[int], part: Part, seed: int
) -> LabelTree:
  """A tree whose nodes are clusters of labels; the lowest have labels below.

  Args:
    n_labels: all of them are in the tree.
    degrees: parts of the nodes of each depth.
    part: makes them; each has a label.
    seed: with a node's place in the tree it decides its parts.
  """
  parent, label = [-1], [NO_LABEL]
  groups = [(0, np.arange(n_labels))]
  for depth, degree in enumerate(degrees):
    below = []
    for place, (node, labels) in enumerate(groups):
      found = part(labels, min(degree, len(labels)), (seed, depth, place))
      for cluster in range(found.max() + 1):
        below.append((len(parent), labels[found == cluster]))
        parent.append(node)
        label.append(NO_LABEL)
    groups = below
  for node, labels in groups:
    parent += [node] * len(labels)
    label += labels.tolist()
  return LabelTree.of(parent, label, n_labels)


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
