"""Cuts a label tree into parts that are small enough for a label encoder.

Section numbers refer to Bertalis et al., "Hierarchical Text Classification
(HTC) vs. eXtreme Multilabel Classification (XML): Two Sides of the Same Medal".
"""

from collections.abc import Iterator, Sequence

import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.label_trees.label_tree import NO_LABEL, LabelTree


def tree_of_first_parents(
  hierarchy: Hierarchy, nodes: np.ndarray | None = None
) -> LabelTree:
  """Returns the tree in which each node is below its first parent.

  Nodes without a parent are below the root of the tree, which is no node.
  `nodes` ascend, with all their first parents; by default, they are all nodes.
  The labels of the tree are places in `nodes`. Place i has the number 1 + i.
  """
  nodes = np.arange(len(hierarchy)) if nodes is None else nodes
  number = np.zeros(len(hierarchy), np.int64)
  number[nodes] = 1 + np.arange(len(nodes))
  first = hierarchy.first_parents[nodes]
  above = np.where(first == PAD, 0, number[first])
  label = [NO_LABEL, *range(len(nodes))]
  return LabelTree.of([-1, *above], label, len(nodes))


def cut_into_segments(
  tree: LabelTree, limit: int, ids: Sequence[str], field: str
) -> Iterator[LabelTree]:
  """Yields sub-trees that together have all leaves of a tree.

  Leaves are taken depth first. A sub-tree has as many leaves as the limit
  allows, and all nodes above these leaves (Bertalis et al., Section 3.3). Every
  leaf is in exactly one sub-tree. An inner node may be in several sub-trees.

  Args:
    limit: largest number of nodes of a sub-tree, without the root.
    ids: the id of each label, for the message of an error.
    field: path of the config's field that has the limit, for the message.

  Raises:
    ConfigError: the path from the root to a leaf has more than `limit` nodes.
  """
  parent = tree.parent
  # Nodes are numbered by depth, so no node is deeper than the last node.
  depth = len(_path(parent, len(tree) - 1))
  if depth > limit:
    raise ConfigError(
      f'{field}={limit}: must be at least {depth}, because the path down to '
      f'{ids[tree.label[-1]]!a} has {depth} nodes'
    )
  kept: dict[int, None] = {}
  for leaf in _leaves(tree):
    path = _path(parent, leaf)
    if len(kept) + sum(node not in kept for node in path) > limit:
      yield _part(tree, parent, kept)
      kept = {}
    kept.update(dict.fromkeys(path))
  if kept:
    yield _part(tree, parent, kept)


def _leaves(tree: LabelTree) -> Iterator[int]:
  """Yields the leaves of a tree, depth first."""
  stack = [0]
  while stack:
    node = stack.pop()
    children = range(tree.first_child[node], tree.first_child[node + 1])
    stack.extend(reversed(children))
    if not children:
      yield node


def _path(parent: np.ndarray, node: int) -> list[int]:
  """Returns the nodes on the path down to a node, without the root."""
  path = []
  while node:
    path.append(node)
    node = int(parent[node])
  return path[::-1]


def _part(tree: LabelTree, parent: np.ndarray, kept: dict) -> LabelTree:
  """Makes a tree from the root and the kept nodes, in the order of `kept`."""
  number = {0: 0} | {node: i + 1 for i, node in enumerate(kept)}
  above = [-1, *(number[int(parent[node])] for node in kept)]
  label = [tree.label[0], *(tree.label[node] for node in kept)]
  return LabelTree.of(above, label, tree.n_labels)
