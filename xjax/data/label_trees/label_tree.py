"""Defines label trees: each node stands for a set of labels."""

import abc
from collections.abc import Callable, Sequence
import dataclasses
import heapq
from typing import Self

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from xjax.core.arrays import Arrays
from xjax.core.config_part import AT_LEAST_2, ConfigPart, field
from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged, offsets_of
from xjax.data.files.faults import plural
from xjax.data.schema import LabelSpace

NO_LABEL = -1

# Messages name a tree by this path. A run whose tree is elsewhere in its config
# replaces it.
TREE_PATH = 'config.model.tree'


@dataclasses.dataclass(frozen=True, eq=False)
class LabelTree:
  """Holds a tree over labels.

  Nodes are numbered by depth, and siblings have consecutive numbers. Node 0 is
  the root. The children of node v are the nodes from first_child[v] to
  first_child[v + 1] - 1; a leaf has no children. Every leaf has a label. An
  inner node may also have a label.
  """

  first_child: np.ndarray  # int32 [nodes + 1]
  label: np.ndarray  # int32 [nodes], or NO_LABEL; no label twice
  n_labels: int  # every label of the tree is less

  def __len__(self) -> int:
    return len(self.label)

  @classmethod
  def of(
    cls, parent: Sequence[int], label: Sequence[int], n_labels: int
  ) -> Self:
    """Builds a tree from the parent of each node, -1 for the root.

    The nodes may be in any order; siblings keep theirs. `label` has the label
    of each node, or NO_LABEL. A DataError says that this is no tree, that a
    leaf has no label, or that a label occurs twice.
    """
    parent, label = np.asarray(parent, np.int64), np.asarray(label, np.int64)
    order = _by_depth(parent)
    number = np.empty(len(parent), np.int64)
    number[order] = np.arange(len(parent))
    above = number[parent[order[1:]]]
    first_child = 1 + np.searchsorted(above, np.arange(len(parent) + 1))
    tree = cls(
      first_child.astype(np.int32), label[order].astype(np.int32), n_labels
    )
    tree.check()
    return tree

  @classmethod
  def of_clusters(cls, parent_L: np.ndarray, n_clusters: int) -> Self:
    """Builds the tree of clusters, and of their labels, below one root."""
    # `parent_L` is PAD for no cluster. No cluster is empty; i is node 1 + i.
    labels = np.flatnonzero(parent_L != PAD)
    labels = labels[np.argsort(parent_L[labels], kind='stable')]
    parent = [-1, *[0] * n_clusters, *(1 + parent_L[labels])]
    label = [NO_LABEL] * (1 + n_clusters) + labels.tolist()
    return cls.of(parent, label, len(parent_L))

  def check(self) -> None:
    """Raises a DataError unless the arrays are a tree (see the class)."""
    first, n = self.first_child, len(self.label)
    # Children come after their parent, so that no path leads back to its start.
    if (
      not n
      or first.shape != (n + 1,)
      or (first[0], first[-1]) != (1, n)
      or (self.degree < 0).any()
      or (first[self.inner] <= self.inner).any()
    ):
      raise DataError('these arrays are not a tree')
    labels = self.label[self.label != NO_LABEL]
    if len(labels) and (labels.min() < 0 or labels.max() >= self.n_labels):
      raise DataError(f'a label of the tree is not in 0..{self.n_labels - 1}')
    if len(np.unique(labels)) < len(labels):
      raise DataError('a label occurs twice in the tree')
    if (self.label[self.degree == 0] == NO_LABEL).any():
      raise DataError('a leaf of the tree has no label')

  @property
  def degree(self) -> np.ndarray:
    """Returns the number of children of each node, int32 [nodes]."""
    return np.diff(self.first_child)

  @property
  def parent(self) -> np.ndarray:
    """Returns the parent of each node, int32 [nodes], with -1 for the root."""
    above = np.repeat(np.arange(len(self), dtype=np.int32), self.degree)
    return np.concatenate([np.full(1, -1, np.int32), above])

  @property
  def levels(self) -> np.ndarray:
    """Returns the first node of each depth, then the number of nodes, int64."""
    starts = [0, 1]
    while starts[-1] < len(self):
      starts.append(int(self.first_child[starts[-1]]))
    return np.asarray(starts, np.int64)

  @property
  def inner(self) -> np.ndarray:
    """Returns the nodes with children, int64 [blocks], in ascending order."""
    return np.flatnonzero(self.degree)

  @property
  def columns(self) -> np.ndarray:
    """Returns the first classifier of each block, int64 [blocks + 1]."""
    # All nodes except the root have a classifier, in the order of nodes. A
    # block is the classifiers of an inner node's children.
    return offsets_of(self.degree[self.inner])

  def largest_below(self, values_L: np.ndarray) -> np.ndarray:
    """Returns the largest value in each node's subtree, float64 [nodes]."""
    largest = np.full(len(self), -np.inf)
    labelled = self.label != NO_LABEL
    values_L = np.asarray(values_L, np.float64)
    largest[labelled] = values_L[self.label[labelled]]
    levels, parent = self.levels, self.parent
    for depth in range(len(levels) - 2, 0, -1):
      nodes = slice(levels[depth], levels[depth + 1])
      np.maximum.at(largest, parent[nodes], largest[nodes])
    return largest

  def positive(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns pairs of a label and a positive node of it, int32, ascending."""
    # Positive are the label's own node and all above it except the root.
    nodes = np.flatnonzero(self.label != NO_LABEL)
    labels, parent = self.label[nodes], self.parent
    pairs = []
    while len(nodes):
      below = nodes > 0
      nodes, labels = nodes[below], labels[below]
      pairs.append((labels, nodes))
      nodes = parent[nodes]
    labels, nodes = (np.concatenate(x).astype(np.int32) for x in zip(*pairs))
    order = np.lexsort((nodes, labels))
    return labels[order], nodes[order]

  def __str__(self) -> str:
    widths = ' - '.join(str(n) for n in np.diff(self.levels))
    labels = plural(int((self.label >= 0).sum()), 'label')
    text = f'{widths} nodes by depth, {labels}'
    inner = self.degree[self.degree > 0]
    if len(inner):
      text += f', {inner.min()} to {inner.max()} children'
    return text

  def arrays(self) -> dict[str, np.ndarray]:
    return {
      'first_child': self.first_child,
      'label': self.label,
      'n_labels': np.int64(self.n_labels),
    }

  @classmethod
  def take(cls, arrays: Arrays, prefix: str) -> Self:
    """Rebuilds a tree from arrays `prefix`/...; damage is a DataError."""
    label = arrays.take(f'{prefix}/label', np.int32, (None,))
    first_child = arrays.take(
      f'{prefix}/first_child', np.int32, (len(label) + 1,)
    )
    tree = cls(first_child, label, arrays.count(f'{prefix}/n_labels'))
    try:
      tree.check()
    except DataError as error:
      arrays.fail(prefix, str(error))
    return tree


def _by_depth(parent: np.ndarray) -> np.ndarray:
  if (parent == -1).sum() != 1:
    raise DataError('a tree must have exactly one root (parent -1)')
  if parent.min() < -1 or parent.max() >= len(parent):
    raise DataError('a parent is not a node of the tree')
  nodes = np.flatnonzero(parent != -1)
  edges = np.ones(len(nodes), bool), (parent[nodes], nodes)
  graph = sparse.csr_array(edges, (len(parent), len(parent)))
  root = parent.argmin()
  order = csgraph.breadth_first_order(graph, root, return_predecessors=False)
  if len(order) < len(parent):
    raise DataError('some nodes are not below the root')
  return order


@dataclasses.dataclass(frozen=True, eq=False)
class TreeInputs:
  """Holds the data that a tree over the trained labels is built from."""

  space: LabelSpace
  gold: Ragged  # N rows of trained labels, one per training document
  rows: sparse.csr_array | None = None  # float32 [N, D], features of documents
  # From texts to features [texts, D], if there are texts.
  featurise: Callable[[Sequence[str]], sparse.csr_array] | None = None
  seed: int = 0
  workers: int = 1  # threads; the tree does not depend on them


@dataclasses.dataclass
class TreeConfig(ConfigPart, abstract=True):
  """Chooses how a tree over labels is built."""

  def check_labels(self, space: LabelSpace) -> None:
    """Checks before training that labels can form a tree of this kind."""

  @abc.abstractmethod
  def build(self, data: TreeInputs) -> LabelTree:
    """Builds the tree over the trained labels; raises as check_labels does."""


@dataclasses.dataclass
class CompleteTree(TreeConfig):
  """Builds a tree whose leaves are the labels in their order."""

  arity: int = field(2, 'Largest number of children of a node.', AT_LEAST_2)

  def build(self, data: TreeInputs) -> LabelTree:
    return complete_tree(data.space.n_trained, self.arity)


def complete_tree(n_labels: int, arity: int) -> LabelTree:
  """Builds a tree over labels in their order, with all labels at one depth."""
  # It has as few nodes as possible. Only the last inner node of a depth can
  # have fewer than `arity` children.
  sizes = [n_labels]  # of the depths, from the labels up to the root
  while len(sizes) == 1 or sizes[-1] > 1:
    sizes.append(-(-sizes[-1] // arity))
  starts = offsets_of(sizes)
  below = zip(starts[1:], sizes[:-1])
  parent = [above + np.arange(size) // arity for above, size in below]
  label = np.full(starts[-1], NO_LABEL)
  label[:n_labels] = np.arange(n_labels)
  return LabelTree.of(np.append(np.concatenate(parent), -1), label, n_labels)


@dataclasses.dataclass
class HuffmanTree(TreeConfig):
  """Builds a tree with frequent labels near the root (Huffman 1952)."""

  arity: int = field(2, 'Largest number of children of a node.', AT_LEAST_2)

  def build(self, data: TreeInputs) -> LabelTree:
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
