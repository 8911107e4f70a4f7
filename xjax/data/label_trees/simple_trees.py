"""Builds trees from the order of labels, or from how frequent labels are."""

from collections.abc import Iterator, Sequence
import dataclasses
import heapq
from typing import Any

import numpy as np

from xjax.core.config_part import AT_LEAST_2, field
from xjax.core.errors import ConfigError
from xjax.data.label_trees.label_tree import (
  NO_LABEL,
  TREE_PATH,
  LabelTree,
  TreeConfig,
  TreeData,
)
from xjax.data.schema import LabelSpace


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


@dataclasses.dataclass
class FrequencyTree(TreeConfig):
  """Builds a tree whose inner nodes are parts of equally frequent labels."""

  cutoffs: tuple[int, ...] = field(
    (),
    'Labels are sorted by falling training frequency, and are cut after each '
    'of these numbers of labels. If empty, labels are cut into halves.',
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from cutoff_faults(self.cutoffs, path)

  def check_labels(self, space: LabelSpace) -> None:
    part_starts(self.cutoffs, space.n_trained, TREE_PATH)

  def build(self, data: TreeData) -> LabelTree:
    self.check_labels(data.space)
    n_labels = data.space.n_trained
    starts = part_starts(self.cutoffs, n_labels, TREE_PATH)
    labels = by_frequency(data.space.train_counts[:n_labels])
    part = np.searchsorted(starts, np.arange(n_labels), side='right')
    parent = [-1, *[0] * len(starts), *part]
    label = [*[NO_LABEL] * (1 + len(starts)), *labels]
    return LabelTree.of(parent, label, n_labels)


def by_frequency(counts_L: np.ndarray) -> np.ndarray:
  """Returns the labels by falling frequency, int64 [L]; ties by index."""
  return np.argsort(-np.asarray(counts_L, np.int64), kind='stable')


def cutoff_faults(cutoffs: Sequence[int], path: str) -> Iterator[str]:
  """Yields a fault unless cutoffs ascend; `path` is that of their config."""
  if any(a >= b for a, b in zip((0, *cutoffs), cutoffs)):
    yield f'{path}.cutoffs={cutoffs}: must ascend, from at least 1'


def part_starts(
  cutoffs: Sequence[int], n_labels: int, path: str
) -> tuple[int, ...]:
  """Returns the labels before each part (APLC, Ye et al. 2020), from 0."""
  # Without cutoffs, labels are cut into halves. At least one label must be
  # after the last cutoff: a ConfigError.
  if cutoffs and cutoffs[-1] >= n_labels:
    raise ConfigError(
      f'{path}.cutoffs={cutoffs}: each number must be less than the number of '
      f'labels, {n_labels}; leave cutoffs empty to cut the labels into halves'
    )
  half = () if n_labels < 2 else (-(-n_labels // 2),)
  return (0, *(cutoffs or half))
