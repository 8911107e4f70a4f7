"""Defines the hierarchy of labels: their parents, children, levels, paths."""

from collections.abc import Sequence
import dataclasses
import functools
import graphlib

import numpy as np

from xjax.core.errors import DataError
from xjax.core.texts import Texts
from xjax.core.types import PAD, Ragged, offsets_of
from xjax.data.schema import Label, Labels, LabelSpace

_SHOWN = 5  # labels of a cycle that a message names


@dataclasses.dataclass(frozen=True, eq=False)
class Hierarchy:
  """Holds a directed graph without cycles from labels to their parents.

  The nodes are the L labels, in model order, and after them the other concepts
  of the taxonomy, such as ancestors that no document has. A node may have
  several parents, and there may be several roots.
  """

  labels: Labels  # V descriptors, one for each node
  n_labels: int  # L; the nodes 0 to L - 1 are labels
  parents: Ragged  # V rows, the parents of each node

  @classmethod
  def of(
    cls, labels: Sequence[Label], concepts: Sequence[Label] = ()
  ) -> 'Hierarchy':
    """Builds the hierarchy of L labels, in model order, and of concepts.

    Concepts that are labels too are left out; of several with the same id, only
    the first is a node. A parent that is neither a label nor a concept becomes
    a node whose name is its id. A DataError says that a label is its own
    ancestor.
    """
    labels, concepts = Labels.of(labels), Labels.of(concepts)
    first = concepts.ids.row_of.find(concepts.ids)
    is_first = first == np.arange(len(concepts))
    is_other = labels.ids.row_of.find(concepts.ids) == PAD
    others = concepts[is_first & is_other]
    nodes = Labels.join(labels, others)
    known = nodes.ids.row_of
    rows = [tuple(dict.fromkeys(row)) for row in nodes.parents]
    missing = dict.fromkeys(p for row in rows for p in row if p not in known)
    if missing:
      nodes = Labels.join(nodes, [Label(id_, id_) for id_ in missing])
      rows += [()] * len(missing)
    places = nodes.ids.row_of.find([p for row in rows for p in row])
    offsets = offsets_of([len(row) for row in rows])
    parents = Ragged(offsets, places.astype(np.int32))
    hierarchy = cls(nodes, len(labels), parents)
    if not hierarchy.is_flat:
      _ = hierarchy.top_down  # raises an error if there is a cycle
    return hierarchy

  @classmethod
  def of_space(
    cls, space: LabelSpace, n_labels: int | None = None
  ) -> 'Hierarchy':
    """Builds the hierarchy of a label space, of a corpus or of a run.

    Labels outside the space are no nodes, unless they are among the first
    `n_labels` (by default, all) or belong to the taxonomy. So a model's nodes
    do not depend on the gold labels of dev and test. Further held-out or new
    labels come last. A DataError says that a label is its own ancestor.
    """
    n = len(space) if n_labels is None else n_labels
    concepts = Labels.join(space.labels[n : space.n_inside], space.concepts)
    return cls.of(space.labels[:n], concepts)

  @classmethod
  def flat(cls, n_labels: int) -> 'Hierarchy':
    """Builds a hierarchy of labels without parents, whose ids are 0, 1, ..."""
    return cls.of([Label(str(label)) for label in range(n_labels)])

  def __len__(self) -> int:
    return len(self.labels)

  @property
  def ids(self) -> Texts:
    return self.labels.ids

  @property
  def is_flat(self) -> bool:
    return not len(self.parents.values)

  @functools.cached_property
  def children(self) -> Ragged:
    """Returns V rows of nodes, the children of each node, in node order."""
    return self.parents.inverse(len(self))

  @functools.cached_property
  def levels(self) -> np.ndarray:
    """Returns the level of each node, int32 [V]: 1 + fewest steps to a root."""
    levels = np.zeros(len(self), np.int32)
    front, level = np.flatnonzero(self.parents.lengths == 0), 1
    while len(front):
      levels[front] = level
      below = np.unique(self.children.take(front).values)
      front, level = below[levels[below] == 0], level + 1
    return levels

  @functools.cached_property
  def top_down(self) -> np.ndarray:
    """Returns all nodes in an order in which parents precede children."""
    graph = {node: self.parents[node].tolist() for node in range(len(self))}
    try:
      order = graphlib.TopologicalSorter(graph).static_order()
      return np.fromiter(order, np.int64, len(self))
    except graphlib.CycleError as error:
      cycle = [ascii(self.ids[node]) for node in error.args[1][::-1]]
      n = len(cycle) - 1
      names = ' -> '.join([*cycle[: min(n, _SHOWN)], cycle[0]])
      more = f' ({n} labels in the cycle)' if n > _SHOWN else ''
      raise DataError(
        f'label {cycle[0]} is its own ancestor: {names}{more}; remove one of '
        'these parents'
      ) from error

  @functools.cached_property
  def ancestors(self) -> Ragged:
    """Returns V sorted rows, the ancestors of each node without itself."""
    above: list[np.ndarray] = [np.zeros(0, np.int32)] * len(self)
    for node in self.top_down:
      parents = self.parents[node]
      if len(parents):
        parts = [parents, *(above[p] for p in parents.tolist())]
        above[node] = np.unique(np.concatenate(parts))
    return Ragged.of(above)

  @functools.cached_property
  def first_parents(self) -> np.ndarray:
    """Returns the first parent of each node, int32 [V]; PAD for roots."""
    first = np.full(len(self), PAD, np.int32)
    inner = self.parents.lengths > 0
    first[inner] = self.parents.values[self.parents.indptr[:-1][inner]]
    return first

  @functools.cached_property
  def top_concept(self) -> int | None:
    """Returns the node above all others, if it is no label; else None."""
    # Nodes without parents and children are not below it.
    inner = (self.parents.lengths == 0) & (self.children.lengths > 0)
    roots = np.flatnonzero(inner)
    is_top = len(roots) == 1 and roots[0] >= self.n_labels
    return int(roots[0]) if is_top else None

  def for_labels(self, ids: Sequence[str]) -> 'Hierarchy':
    """Returns the same hierarchy for other labels."""
    # An id that is no node yet has no parents. Former labels are concepts.
    return Hierarchy.of(self.labels.with_ids(ids), self.labels)

  def same_above(self, other: 'Hierarchy', ids: Sequence[str]) -> bool:
    """Returns whether labels have the same ancestors in another hierarchy."""
    return self._parents_above(ids) == other._parents_above(ids)

  def _parents_above(self, ids: Sequence[str]) -> dict[str, set[str]]:
    """Returns the parents of labels and of their ancestors, if any."""
    nodes = self.ids.row_of.find(ids)
    (above,) = self.with_ancestors(Ragged.of([nodes[nodes != PAD]]))
    return {
      self.ids[node]: {self.ids[p] for p in self.parents[node].tolist()}
      for node in above.tolist()
      if len(self.parents[node])
    }

  def with_ancestors(self, rows: Ragged) -> Ragged:
    """Adds all ancestors to rows of nodes, which become sorted and distinct."""
    # The rows of ancestors of a row's nodes follow each other.
    above = self.ancestors.take(rows.values)
    above = Ragged(above.indptr[rows.indptr], above.values)
    cells = [nodes.cells(len(self)) for nodes in (rows, above)]
    cells = np.unique(np.concatenate(cells))
    return Ragged.of_cells(cells, len(rows), len(self))
