"""Parts of a label tree that are small enough for an encoder of labels."""

from collections.abc import Iterator

import numpy as np

from xjax.core.errors import ConfigError
from xjax.score.trees.label_tree import LabelTree


def segments(tree: LabelTree, limit: int) -> Iterator[LabelTree]:
  """Sub-trees over all leaves, each with the nodes above its leaves.

  Depth first, as many leaves as fit (Bertalis et al., Section 3.3). Every leaf
  is a leaf of one sub-tree; a node above may be in several.

  Args:
    tree: over labels.
    limit: nodes of a sub-tree, at most; the root does not count.

  Raises:
    ConfigError: a leaf alone, with the nodes above it, has more.
  """
  parent = tree.parent
  kept: dict[int, None] = {}
  for leaf in _leaves(tree):
    path = _path(parent, leaf)
    if len(path) > limit:
      raise ConfigError(
        f'a limit of {limit} nodes: label {tree.label[leaf]} alone has '
        f'{len(path)} on its path'
      )
    if len(kept) + sum(node not in kept for node in path) > limit:
      yield _part(tree, parent, kept)
      kept = {}
    kept.update(dict.fromkeys(path))
  if kept:
    yield _part(tree, parent, kept)


def _leaves(tree: LabelTree) -> Iterator[int]:
  """Depth first."""
  stack = [0]
  while stack:
    node = stack.pop()
    children = range(tree.first_child[node], tree.first_child[node + 1])
    stack.extend(reversed(children))
    if not children:
      yield node


def _path(parent: np.ndarray, node: int) -> list[int]:
  """From below the root down to the node."""
  found = []
  while node:
    found.append(node)
    node = int(parent[node])
  return found[::-1]


def _part(tree: LabelTree, parent: np.ndarray, kept: dict) -> LabelTree:
  number = {0: 0} | {node: i + 1 for i, node in enumerate(kept)}
  above = [-1, *(number[int(parent[node])] for node in kept)]
  label = [tree.label[0], *(tree.label[node] for node in kept)]
  return LabelTree.of(above, label, tree.n_labels)
