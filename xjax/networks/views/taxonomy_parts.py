"""Cuts the hierarchy of labels into parts that a label encoder can read.

Section numbers refer to Bertalis et al., "Hierarchical Text Classification
(HTC) vs. eXtreme Multilabel Classification (XML): Two Sides of the Same Medal".
"""

import dataclasses

import numpy as np

from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.label_trees.label_tree import LabelTree
from xjax.data.label_trees.taxonomy import (
  cut_into_segments,
  tree_of_first_parents,
)

_SEGMENT = 'config.model.views.segment'


def encoded_nodes(hierarchy: Hierarchy) -> np.ndarray:
  """Returns the nodes that a label encoder reads, int64, in ascending order.

  These nodes are all labels, their first parents, the first parents of these
  parents, and so on. The labels are the first nodes. All other nodes of the
  hierarchy are left out, because they are above no label.
  """
  above = hierarchy.first_parents
  chosen = np.arange(len(hierarchy)) < hierarchy.n_labels
  front = np.arange(hierarchy.n_labels)
  while len(front):
    front = np.unique(above[front])
    front = front[front != PAD]
    front = front[~chosen[front]]
    chosen[front] = True
  return np.flatnonzero(chosen)


@dataclasses.dataclass(frozen=True, eq=False)
class TaxonomyParts:
  """Holds the parts of a tree of labels, each with at most C nodes.

  The nodes are those of `encoded_nodes`, numbered from 0. Each node is below
  its first parent. Nodes without a parent are below a root, which is no node.
  The parts are the sub-trees of Bertalis et al., Section 3.3. A node that has
  children can be in several parts.
  """

  nodes: np.ndarray  # int32 [parts, C], and PAD
  # int32 [parts, C, depth]: the place of each node in its part, then the place
  # of its parent, and so on up to a node below the root, and then PAD.
  paths: np.ndarray
  counted: np.ndarray  # bool [parts, C], where a label is in its first part

  @classmethod
  def of(cls, hierarchy: Hierarchy, limit: int) -> 'TaxonomyParts':
    """Cuts a hierarchy into parts of at most `limit` nodes.

    Raises:
      ConfigError: the path down to a label has more than `limit` nodes.
    """
    chosen = encoded_nodes(hierarchy)
    tree = tree_of_first_parents(hierarchy, chosen)
    ids = hierarchy.ids[chosen]
    trees = list(cut_into_segments(tree, limit, ids, _SEGMENT))
    paths = [_paths(part) for part in trees]
    size = max(len(part) - 1 for part in trees)
    depth = max(path.shape[1] for path in paths)
    shape = len(trees), size
    all_nodes = np.full(shape, PAD, np.int32)
    all_paths = np.full((*shape, depth), PAD, np.int32)
    counted = np.zeros(shape, bool)
    waiting = np.arange(tree.n_labels) < hierarchy.n_labels
    for i, (part, path) in enumerate(zip(trees, paths)):
      nodes = part.label[1:]
      all_nodes[i, : len(nodes)] = nodes
      all_paths[i, : len(nodes), : path.shape[1]] = path
      counted[i, : len(nodes)] = waiting[nodes]
      waiting[nodes] = False
    return cls(all_nodes, all_paths, counted)


def _paths(tree: LabelTree) -> np.ndarray:
  """Returns the path from each node up to the root, int32 [nodes, depth].

  The root is left out, and nodes are numbered from 0 without the root.
  """
  node, parent, columns = np.arange(1, len(tree)), tree.parent, []
  while node.any():
    columns.append(np.where(node > 0, node - 1, PAD))
    node = np.where(node > 0, parent[node], 0)
  return np.stack(columns, axis=1).astype(np.int32)
