"""Builds label trees that follow a taxonomy, and cuts them into parts.

The parts are small enough for a label encoder (Bertalis et al. 2025, to which
section numbers refer).
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import pathlib

import numpy as np

from xjax.core.config_part import field
from xjax.core.errors import ConfigError, DataError
from xjax.core.types import PAD, Ragged
from xjax.data.files.faults import Faults
from xjax.data.formats.label_files import read_taxonomy
from xjax.data.hierarchy import Hierarchy
from xjax.data.label_trees.label_tree import (
  NO_LABEL,
  TREE_PATH,
  LabelTree,
  TreeConfig,
  TreeInputs,
)
from xjax.data.schema import LabelSpace

_ROOT = 0


@dataclasses.dataclass
class TaxonomyTree(TreeConfig):
  """Builds a tree in which each label is below its parent."""

  file: str = field(
    '',
    'Taxonomy file with lines `parent<TAB>child<TAB>child...` from Root down. '
    'The file may also have ids that are not labels. If empty, the parents '
    'come from the labels of the corpus.',
  )

  def check_labels(self, space: LabelSpace) -> None:
    ids = space.ids[: space.n_trained]
    taxonomy_tree(ids, self._parents(space), Ragged.of([]))

  def build(self, data: TreeInputs) -> LabelTree:
    ids = data.space.ids[: data.space.n_trained]
    return taxonomy_tree(ids, self._parents(data.space), data.gold)

  def _parents(self, space: LabelSpace) -> dict[str, tuple[str, ...]]:
    """Returns the parents of each id, including ids that are not trained."""
    labels = space.labels
    if self.file:
      faults = Faults(on_error=None)
      taxonomy = read_taxonomy(pathlib.Path(self.file).expanduser(), faults)
      faults.raise_or_log()
      labels = taxonomy.values()
    parents = {label.id: label.parents for label in labels}
    if not any(parents.values()):
      raise ConfigError(
        f'{TREE_PATH}=TaxonomyTree(): no label has a parent; set '
        f'{TREE_PATH}.file to a taxonomy file'
      )
    return parents


def taxonomy_tree(
  ids: Sequence[str], parents: Mapping[str, Sequence[str]], gold: Ragged
) -> LabelTree:
  """Builds the tree in which each label is below its first parent.

  A parent that is not a label becomes a node without a label. The classifier of
  this node is trained, but the node is never predicted. An id that `parents`
  lacks is directly below the root.

  A label P with other labels below it is predicted at its own node if every
  training document with a label below P also has P, else at an additional leaf
  below its own node. A DataError says that a label is its own ancestor.
  """
  numbers = {id_: i + 1 for i, id_ in enumerate(ids)}
  parent, label = [-1], [NO_LABEL]
  todo = list(ids)
  for id_ in todo:
    above = next(iter(parents.get(id_, ())), None)
    if above is not None and above not in numbers:
      numbers[above] = len(numbers) + 1
      todo.append(above)
    parent.append(_ROOT if above is None else numbers[above])
    label.append(len(label) - 1 if len(label) <= len(ids) else NO_LABEL)
  try:
    LabelTree.of(parent, label, len(ids))
  except DataError as error:
    raise DataError(
      f'the parents of labels do not form a tree: {error}; check whether a '
      'label is its own ancestor'
    ) from error
  at_node = _predicted_at_node(parent, len(ids), gold)
  for node in np.flatnonzero(~at_node).tolist():
    parent.append(node)
    label.append(label[node])
    label[node] = NO_LABEL
  return LabelTree.of(parent, label, len(ids))


def _predicted_at_node(
  parent: Sequence[int], n_labels: int, gold: Ragged
) -> np.ndarray:
  """Returns which nodes predict their own label, bool (see taxonomy_tree)."""
  at_node = np.ones(len(parent), bool)
  above = np.asarray(parent)
  gold = gold.keep(gold.values < n_labels)
  document, node = gold.owners, gold.values + 1
  pairs = document * np.int64(len(parent)) + node
  for _ in range(len(parent)):
    node = above[node]
    document, node = document[node > _ROOT], node[node > _ROOT]
    if not len(node):
      break
    has_label = np.isin(document * np.int64(len(parent)) + node, pairs)
    at_node[node[~has_label & (node <= n_labels)]] = False
  return at_node


def tree_of_first_parents(
  hierarchy: Hierarchy, nodes: np.ndarray | None = None
) -> LabelTree:
  """Returns the tree in which each node is below its first parent.

  `nodes`, by default all, ascend, with all their first parents. Their places
  are the labels of the tree: place i is its node 1 + i.
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
  """Yields sub-trees that together have all leaves of a tree, each leaf once.

  Leaves are taken depth first. A sub-tree has as many leaves as the limit
  allows, and all nodes above these leaves (Bertalis et al., Section 3.3). An
  inner node may be in several sub-trees. `limit` is the most nodes of a
  sub-tree, without the root. If a path has more nodes, a ConfigError names the
  config's `field`, and the label by its id.
  """
  parent, leaves = tree.parent, np.flatnonzero(tree.degree == 0).tolist()
  # Nodes are numbered by depth, so no node is deeper than the last node.
  depth = len(_path(parent, len(tree) - 1))
  if depth > limit:
    raise ConfigError(
      f'{field}={limit}: must be at least {depth}, because the path down to '
      f'{ids[tree.label[-1]]!a} has {depth} nodes'
    )
  kept: dict[int, None] = {}
  # Siblings have consecutive numbers, so sorted paths go depth first.
  for path in sorted(_path(parent, leaf) for leaf in leaves):
    if len(kept) + sum(node not in kept for node in path) > limit:
      yield _part(tree, parent, kept)
      kept = {}
    kept.update(dict.fromkeys(path))
  if kept:
    yield _part(tree, parent, kept)


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
