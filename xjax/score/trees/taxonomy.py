"""Label trees of labels and their parents."""

from collections.abc import Mapping, Sequence
import dataclasses
import pathlib

import numpy as np

from xjax.core.config_part import field
from xjax.core.errors import ConfigError, DataError
from xjax.core.types import Ragged
from xjax.data.files.faults import Faults
from xjax.data.formats.taxonomy import read_taxonomy
from xjax.data.schema import LabelSpace
from xjax.score.trees.contract import TreeConfig, TreeData
from xjax.score.trees.label_tree import NO_LABEL, LabelTree

_ROOT = 0


@dataclasses.dataclass
class TaxonomyTree(TreeConfig):
  """Of labels below their parents.

  Where a label's documents all have its parent too, the parent is predicted
  where the tree says so; else it has a leaf of its own below itself.
  """

  file: str = field(
    '',
    'Lines `parent<TAB>child<TAB>child...` from Root down, of label ids and '
    'perhaps others; empty: the parents that labels have.',
    tiny='',
  )

  def check_labels(self, space: LabelSpace) -> None:
    """As TreeConfig; a label that is its own ancestor is refused."""
    ids = space.ids[: space.n_trained]
    taxonomy_tree(ids, self._parents(space), Ragged.of([]))

  def build(self, data: TreeData) -> LabelTree:
    """As TreeConfig."""
    ids = data.space.ids[: data.space.n_trained]
    return taxonomy_tree(ids, self._parents(data.space), data.gold)

  def _parents(self, space: LabelSpace) -> dict[str, tuple[str, ...]]:
    """Id -> parents; of labels that are not trained too, between others."""
    labels = space.labels
    if self.file:
      faults = Faults(on_error=None)
      found = read_taxonomy(pathlib.Path(self.file).expanduser(), faults)
      faults.settle()
      labels = found.labels.values()
    parents = {label.id: label.parents for label in labels}
    if not any(parents.values()):
      raise ConfigError(
        'config.model.tree=TaxonomyTree(): no label has a parent; name a '
        'taxonomy in config.model.tree.file'
      )
    return parents


def taxonomy_tree(
  ids: Sequence[str],
  parents: Mapping[str, Sequence[str]],
  gold: Ragged,
) -> LabelTree:
  """The tree in which each label lies below its first parent.

  A parent that is no label is a node without one: it is trained, and never
  predicted. A label with others below it is predicted where its node is, if
  all documents of these have it too; else it gets a leaf of its own there.

  Args:
    ids: of the L labels.
    parents: id -> ids of its parents, of labels and of others; without any, or
      where it is not there, it lies below the root.
    gold: N rows of labels, of train.

  Raises:
    DataError: a label is its own ancestor.
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
      f'the parents of labels make no tree: {error}: is one its own ancestor?'
    ) from error
  _add_leaves(parent, label, _closed(parent, len(ids), gold))
  return LabelTree.of(parent, label, len(ids))


def _add_leaves(
  parent: list[int], label: list[int], closed: np.ndarray
) -> None:
  """Gives labels a leaf below their node where it does not speak for them."""
  for node in np.flatnonzero(~closed).tolist():
    parent.append(node)
    label.append(label[node])
    label[node] = NO_LABEL


def _closed(parent: Sequence[int], n_labels: int, gold: Ragged) -> np.ndarray:
  """Bool [nodes]: all documents of the labels below it have its label."""
  closed = np.ones(len(parent), bool)
  above = np.asarray(parent)
  document = np.repeat(np.arange(len(gold)), gold.lengths)
  known = gold.values < n_labels
  document, node = document[known], gold.values[known] + 1
  has = document * np.int64(len(parent)) + node
  for _ in range(len(parent)):
    node = above[node]
    document, node = document[node > _ROOT], node[node > _ROOT]
    if not len(node):
      break
    there = np.isin(document * np.int64(len(parent)) + node, has)
    closed[node[~there & (node <= n_labels)]] = False
  return closed
