"""Trees whose nodes stand for sets of labels: arrays, and files of them."""

from collections.abc import Sequence
import dataclasses
import os
from typing import Self

import numpy as np

from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.core.errors import DataError
from xjax.score.linear.block_weights import BlockWeights

NO_LABEL = -1
_TREE, _WEIGHTS = 'tree', 'weights'  # of a file


@dataclasses.dataclass(frozen=True, eq=False)
class LabelTree:
  """A tree over labels; nodes are numbered by depth, siblings together.

  Node 0 is the root. Node v's children are first_child[v] up to
  first_child[v + 1]; a leaf has none. A leaf has a label; a node within may
  have one too, where it stands for a label and all below it.

  Attributes:
    first_child: int32 [V + 1].
    label: int32 [V], or NO_LABEL; no label stands twice.
    n_labels: labels are below it.
  """

  first_child: np.ndarray
  label: np.ndarray
  n_labels: int

  def __len__(self) -> int:
    return len(self.label)

  @classmethod
  def of(
    cls, parent: Sequence[int], label: Sequence[int], n_labels: int
  ) -> Self:
    """The tree in which each node lies below its parent.

    Args:
      parent: int [V], -1 of the root; nodes come in any order, and siblings
        keep theirs.
      label: int [V], NO_LABEL of a node without.
      n_labels: labels are below it.

    Raises:
      DataError: this is no tree, a leaf has no label, or a label stands twice.
    """
    parent, label = np.asarray(parent, np.int64), np.asarray(label, np.int64)
    order = _by_depth(parent)
    number = np.empty(len(parent), np.int64)
    number[order] = np.arange(len(parent))
    above = number[parent[order[1:]]]
    first_child = 1 + np.searchsorted(above, np.arange(len(parent) + 1))
    made = cls(
      first_child.astype(np.int32), label[order].astype(np.int32), n_labels
    )
    made.check()
    return made

  def check(self) -> None:
    """Refuses arrays that are no tree over labels.

    Raises:
      DataError: with what is wrong.
    """
    if not self._is_tree():
      raise DataError('these arrays are no tree')
    found = self.label[self.label != NO_LABEL]
    if len(found) and (found.min() < 0 or found.max() >= self.n_labels):
      raise DataError(f'a label of the tree is not in 0..{self.n_labels - 1}')
    if len(np.unique(found)) < len(found):
      raise DataError('a label stands twice in the tree')
    if (self.label[self.degree == 0] == NO_LABEL).any():
      raise DataError('a leaf of the tree has no label')

  def _is_tree(self) -> bool:
    first, n = self.first_child, len(self.label)
    if not n or first.shape != (n + 1,) or first[0] != 1 or first[-1] != n:
      return False
    # Children come after their parent, so that there is no way round.
    inner = np.flatnonzero(np.diff(first))
    return bool((np.diff(first) >= 0).all() and (first[inner] > inner).all())

  @property
  def degree(self) -> np.ndarray:
    """int32 [V], children of each node."""
    return np.diff(self.first_child)

  @property
  def parent(self) -> np.ndarray:
    """int32 [V], -1 of the root."""
    above = np.repeat(np.arange(len(self), dtype=np.int32), self.degree)
    return np.concatenate([np.full(1, -1, np.int32), above])

  @property
  def levels(self) -> np.ndarray:
    """int64 [depth + 2], the first node of each depth, and V."""
    starts = [0, 1]
    while starts[-1] < len(self):
      starts.append(int(self.first_child[starts[-1]]))
    return np.asarray(starts, np.int64)

  @property
  def inner(self) -> np.ndarray:
    """int64, the nodes that have children, in order; each has a block."""
    return np.flatnonzero(self.degree)

  @property
  def columns(self) -> np.ndarray:
    """int64 [blocks + 1], the first classifier of each inner node's block.

    All nodes but the root have a classifier, in the order of the nodes.
    """
    return np.append(np.int64(0), np.cumsum(self.degree[self.inner]))

  def widest_below(self, values_L: np.ndarray) -> np.ndarray:
    """float64 [V], the largest of values among the labels of a subtree."""
    best = np.full(len(self), -np.inf)
    has = self.label != NO_LABEL
    best[has] = np.asarray(values_L, np.float64)[self.label[has]]
    levels, parent = self.levels, self.parent
    for depth in range(len(levels) - 2, 0, -1):
      nodes = slice(levels[depth], levels[depth + 1])
      np.maximum.at(best, parent[nodes], best[nodes])
    return best

  def positive(self) -> tuple[np.ndarray, np.ndarray]:
    """Each label with each node that it makes positive, but the root.

    Returns:
      labels, nodes: int32, parallel; by label, then node.
    """
    nodes = np.flatnonzero(self.label != NO_LABEL)
    labels, parent = self.label[nodes], self.parent
    found = []
    while len(nodes):
      below = nodes > 0
      nodes, labels = nodes[below], labels[below]
      found.append((labels, nodes))
      nodes = parent[nodes]
    labels, nodes = (np.concatenate(x).astype(np.int32) for x in zip(*found))
    order = np.lexsort((nodes, labels))
    return labels[order], nodes[order]

  def __str__(self) -> str:
    """Its shape: nodes by depth, labels, and how many children nodes have."""
    widths = ' - '.join(str(n) for n in np.diff(self.levels))
    said = f'{widths} nodes by depth, {(self.label >= 0).sum()} labels'
    inner = self.degree[self.degree > 0]
    if len(inner):
      said += f', {inner.min()} to {inner.max()} children'
    return said

  def arrays(self) -> dict[str, np.ndarray]:
    """All there is, as arrays of a file."""
    return {
      'first_child': self.first_child,
      'label': self.label,
      'n_labels': np.int64(self.n_labels),
    }

  @classmethod
  def take(cls, arrays: Arrays, prefix: str) -> Self:
    """What arrays gave, of a file where their names have a prefix.

    Raises:
      DataError: these are no tree.
    """
    label = arrays.take(f'{prefix}/label', np.int32, (None,))
    first_child = arrays.take(
      f'{prefix}/first_child', np.int32, (len(label) + 1,)
    )
    made = cls(first_child, label, arrays.count(f'{prefix}/n_labels'))
    try:
      made.check()
    except DataError as error:
      arrays.fail(prefix, str(error))
    return made


def _by_depth(parent: np.ndarray) -> np.ndarray:
  """int64 [V], all nodes by depth, siblings together."""
  if (parent == -1).sum() != 1:
    raise DataError('a tree has one root')
  if parent.min() < -1 or parent.max() >= len(parent):
    raise DataError('a parent is no node')
  by_parent = np.argsort(parent, kind='stable')
  starts = np.searchsorted(parent[by_parent], np.arange(len(parent) + 1))
  level, found = by_parent[:1], []
  while len(level):
    found.append(level)
    below = [by_parent[starts[v] : starts[v + 1]] for v in level]
    level = np.concatenate(below)
  order = np.concatenate(found)
  if len(order) < len(parent):
    raise DataError('some nodes are not below the root')
  return order


def save_tree(
  path: str | os.PathLike, tree: LabelTree, weights: BlockWeights
) -> None:
  """Writes a packed .npz file that load_tree reads as the same.

  Raises:
    WriteError: it cannot be written.
  """
  parts = {_TREE: tree.arrays(), _WEIGHTS: weights.arrays()}
  arrays = {
    f'{part}/{name}': array
    for part, given in parts.items()
    for name, array in given.items()
  }
  write_npz(path, arrays, packed=True)


def load_tree(path: str | os.PathLike) -> tuple[LabelTree, BlockWeights]:
  """Reads what save_tree wrote.

  Raises:
    DataError: the file is absent or damaged.
  """
  arrays = Arrays.read(path)
  tree = LabelTree.take(arrays, _TREE)
  weights = BlockWeights.take(arrays, _WEIGHTS, tree.columns)
  arrays.finish()
  return tree, weights
