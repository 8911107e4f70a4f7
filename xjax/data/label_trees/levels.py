"""Cuts a label tree into levels of clusters, for models that go down a tree.

A cascade scores the clusters of a coarse level first, and then only the
children of the best clusters (AttentionXML, You et al. 2019; XR-Transformer,
Zhang et al. 2021; CascadeXML, Kharbanda et al. 2022).
"""

from collections.abc import Iterator, Sequence
import dataclasses
import functools
import os
from typing import Any, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32
import numpy as np

from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.core.config_part import ConfigPart, field
from xjax.core.errors import ConfigError
from xjax.core.types import PAD, Ragged
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.label_tree import (
  NO_LABEL,
  TREE_PATH,
  LabelTree,
  TreeConfig,
  TreeInputs,
)
from xjax.data.tokens_config import TfidfConfig


@dataclasses.dataclass(frozen=True, eq=False)
class LabelLevels:
  """Holds levels of nodes, from coarse to fine; the last nodes are the labels.

  The nodes of a level are numbered from 0; those of the last level are the
  labels, the others clusters. A label in the tree has one ancestor in each
  level, any other label none.
  """

  # For each level: int32 [nodes], the parent in the level above. PAD in level
  # 0, and for labels that are not in the tree.
  parents: tuple[np.ndarray, ...]
  # For each level: int32 [nodes of the level above, most children], its nodes
  # by parent, ascending, then PAD. Above level 0 is one node, the root.
  children: tuple[np.ndarray, ...]
  # For each level: int32 [L], the ancestor of each label, or PAD.
  above: tuple[np.ndarray, ...]

  @classmethod
  def of(cls, parents: Sequence[np.ndarray], in_tree_L: np.ndarray) -> Self:
    """Builds the levels from their `parents` and the labels in the tree."""
    above = [np.where(in_tree_L, np.arange(len(in_tree_L)), PAD)]
    for parent in reversed(parents[1:]):
      above.append(np.where(above[-1] == PAD, PAD, parent[above[-1]]))
    root = np.zeros(len(parents[0]), np.int64)
    if len(parents) == 1:
      root[~in_tree_L] = PAD
    uppers = [root, *parents[1:]]
    sizes = [1, *map(len, parents)]
    return cls(
      tuple(np.asarray(parent, np.int32) for parent in parents),
      tuple(_children(upper, n) for upper, n in zip(uppers, sizes)),
      tuple(labels.astype(np.int32) for labels in reversed(above)),
    )

  @classmethod
  def even(cls, sizes: Sequence[int]) -> Self:
    """Divides the nodes of each level evenly among the nodes above, in turn."""
    parents = [np.full(sizes[0], PAD)]
    for above, size in zip(sizes, sizes[1:]):
      parents.append(np.arange(size) * above // size)
    return cls.of(parents, np.ones(sizes[-1], bool))

  @classmethod
  def cut(
    cls,
    tree: LabelTree,
    *,
    depths: Sequence[int] | None = None,
    sizes: Sequence[int] | None = None,
  ) -> Self:
    """Cuts a tree at some depths; a ConfigError if it cannot be cut like that.

    A label whose node is an inner node, or a leaf above a cut, is a cluster of
    its own at each cut below. `depths`, of the levels above the labels, ascend
    from 1, the children of the root; by default they are all depths. `sizes`,
    in their place, are the largest numbers of clusters of the levels.
    """
    cuts = _Cuts(tree)
    if sizes is not None:
      depths = cuts.depths_of(sizes)
    elif depths is None:
      depths = range(1, cuts.deepest)
    labels = np.flatnonzero(cuts.in_tree_L)
    upper = np.zeros(len(labels), np.int64)  # the root
    parents = []
    for depth in depths:
      # Nodes are numbered by their parent, so siblings have consecutive
      # numbers.
      keys, most = cuts.nodes(depth)[labels], len(tree) + tree.n_labels
      nodes, below = np.unique(upper * most + keys, return_inverse=True)
      parents.append(nodes // most)
      upper = below
    last = np.full(tree.n_labels, PAD)
    last[labels] = upper
    parents.append(last)
    parents[0] = np.full(len(parents[0]), PAD)
    return cls.of(parents, cuts.in_tree_L)

  def __len__(self) -> int:
    return len(self.parents)

  @property
  def sizes(self) -> tuple[int, ...]:
    """Returns the number of nodes of each level; the last number is L."""
    return tuple(map(len, self.parents))

  def above_labels(self) -> Self:
    """Returns the levels without the last; all clusters are in the tree."""
    return self.of(self.parents[:-1], np.ones(self.sizes[-2], bool))

  def __str__(self) -> str:
    return ' - '.join(map(str, self.sizes)) + ' nodes by level'

  def gold(self, level: int, gold: Ragged) -> tuple[Ragged, np.ndarray]:
    """Returns the ancestors of each document's gold labels, on the host.

    The first result has N rows of nodes of the level, ascending, each node
    once. The second, int32 [entries], has the number of gold labels below each
    of them: the cost weights of XR-Transformer (Zhang et al. 2021, Section 3).
    Labels that are not in the tree are ignored.
    """
    n_labels = len(self.above[-1])
    gold = gold.keep((gold.values >= 0) & (gold.values < n_labels))
    cells = np.unique(gold.cells(n_labels))
    labels = Ragged.of_cells(cells, len(gold), n_labels)
    nodes = Ragged(labels.indptr, self.above[level][labels.values])
    cells = nodes.keep(nodes.values != PAD).cells(self.sizes[level])
    cells, counts = np.unique(cells, return_counts=True)
    rows = Ragged.of_cells(cells, len(gold), self.sizes[level])
    return rows, counts.astype(np.int32)

  def save(self, path: str | os.PathLike) -> None:
    """Writes levels to a compressed .npz file."""
    parents = {f'levels/parents/{r}': x for r, x in enumerate(self.parents)}
    count, in_tree = np.int64(len(self)), self.above[-1] != PAD
    arrays = {'levels/count': count, 'levels/in_tree': in_tree, **parents}
    write_npz(path, arrays, packed=True)

  @classmethod
  def load(cls, path: str | os.PathLike) -> Self:
    """Reads what `save` wrote; an absent or damaged file is a DataError."""
    arrays = Arrays.read(path)
    count = arrays.count('levels/count')
    if not count:
      arrays.fail('levels/count', 'is 0, should be at least 1')
    in_tree_L = arrays.take('levels/in_tree', np.bool_, (None,))
    parents = []
    for level in range(count):
      name = f'levels/parents/{level}'
      last = level == count - 1
      shape = (len(in_tree_L) if last else None,)
      parent = arrays.take(name, np.int32, shape)
      # Nodes of level 0, and labels that are not in the tree, have no parent.
      outside = ~in_tree_L if last and level else level == 0
      size = len(parents[-1]) if level else 0
      bad = (parent < PAD) | (parent >= size) | ((parent == PAD) != outside)
      arrays.check(name, bad, 'is a wrong parent')
      parents.append(parent)
    arrays.finish()
    return cls.of(parents, in_tree_L)


def gold_at(
  above_L: Int32[Array, ' L'], positives_BP: Int32[Array, 'B P']
) -> Int32[Array, 'B P']:
  """Returns the ancestors of each document's gold labels, on the device.

  `above_L` has the ancestor of each label in a level (LabelLevels.above).
  Labels that are not in the tree, or not below L, are ignored. The result has
  each ancestor once, ascending, with PAD before and between them.
  """
  inside_BP = positives_BP < len(above_L)
  labels_BP = jnp.where(inside_BP, positives_BP, PAD)
  labels_BP = _distinct(jnp.sort(labels_BP, axis=1))
  real_BP = labels_BP != PAD
  # PAD is no index, so label 0 stands in for it and is masked afterwards.
  nodes_BP = jnp.where(real_BP, above_L[jnp.where(real_BP, labels_BP, 0)], PAD)
  return _distinct(jnp.sort(nodes_BP, axis=1))


def expand(
  children: Int32[Array, 'nodes most'], ids_BK: Int32[Array, 'B K']
) -> Int32[Array, 'B A']:
  """Returns the children of some nodes of each document, int32.

  `children` are LabelLevels.children of the level below. A is K times the
  number of its columns. The children of the first node come first, and PAD
  fills the places of missing children.
  """
  real_BK = ids_BK != PAD
  below = children[jnp.where(real_BK, ids_BK, 0)]  # as in gold_at
  below = jnp.where(real_BK[:, :, None], below, PAD)
  return below.reshape(len(ids_BK), -1)


def _distinct(sorted_BP: jax.Array) -> jax.Array:
  """Returns sorted rows with PAD in place of repeated values."""
  repeated_BP = sorted_BP[:, 1:] == sorted_BP[:, :-1]
  rest_BP = jnp.where(repeated_BP, PAD, sorted_BP[:, 1:])
  return jnp.concatenate([sorted_BP[:, :1], rest_BP], axis=1)


class _Cuts:
  def __init__(self, tree: LabelTree):
    self._tree, self._parent = tree, tree.parent
    labelled = np.flatnonzero(tree.label != NO_LABEL)
    self._node_L = np.full(tree.n_labels, -1)
    self._node_L[tree.label[labelled]] = labelled
    self.in_tree_L = self._node_L >= 0
    starts = tree.levels
    self.deepest = len(starts) - 2
    depth = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    self._depth_L = np.where(self.in_tree_L, depth[self._node_L], -1)

  def nodes(self, depth: int) -> np.ndarray:
    """Returns a number for the ancestor of each label at a depth, int64 [L]."""
    # It is a node, or the number of nodes plus the label if its node is higher.
    node_L = self._node_L.copy()
    for steps in range(self.deepest - depth, 0, -1):
      low_L = self._depth_L >= depth + steps
      node_L[low_L] = self._parent[node_L[low_L]]
    own_L = len(self._tree) + np.arange(len(node_L))
    return np.where(self._depth_L >= depth, node_L, own_L)

  @functools.cached_property
  def _sizes(self) -> list[int]:
    """Returns the number of clusters at each depth from 0 to the deepest."""
    nodes = np.diff(self._tree.levels)
    labels = np.bincount(self._depth_L[self.in_tree_L], minlength=len(nodes))
    return (nodes + np.cumsum(labels) - labels).tolist()

  def depths_of(self, sizes: Sequence[int]) -> list[int]:
    """Returns the depth for each largest number of clusters."""
    # At the deepest nodes, every label would be a cluster of its own.
    possible = self._sizes[1 : self.deepest]
    shown = ', '.join(map(str, possible)) or 'none'
    depths = []
    for size in sizes:
      fits = [n for n in possible if n <= size]
      if not fits:
        raise ConfigError(
          f'a tree cannot be cut to at most {size} clusters; the numbers of '
          f'clusters at its depths are: {shown}'
        )
      depths.append(1 + possible.index(max(fits)))
    if depths != sorted(set(depths)):
      raise ConfigError(
        f'a tree cannot be cut to the sizes {list(sizes)}: sizes must ascend, '
        'and each size must need another depth. The numbers of clusters at the '
        f'depths of the tree are: {shown}'
      )
    return depths


def _children(parent: np.ndarray, nodes_above: int) -> np.ndarray:
  """Returns the children of each node above, int32 [nodes above, most]."""
  own = Ragged(np.arange(len(parent) + 1), parent).keep(parent != PAD)
  below = own.inverse(nodes_above)
  most = below.lengths.max(initial=0)
  return below.padded(np.arange(nodes_above), most, PAD)


@dataclasses.dataclass
class LevelsConfig(ConfigPart):
  """Chooses a label tree, and the depths at which the tree is cut."""

  sizes: tuple[int, ...] = field(
    (64, 512),
    'Largest number of clusters of each level above the labels, ascending. For '
    'each number, the tree is cut at the depth with the most clusters among '
    'the depths with at most this number of clusters.',
  )
  tree: TreeConfig = field(ClusterTree, 'The tree over the labels.')
  tokens: TfidfConfig = field(
    TfidfConfig, 'The features of documents by which labels are clustered.'
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    sizes = self.sizes
    if min(sizes, default=1) < 1 or list(sizes) != sorted(set(sizes)):
      yield f'{path}.sizes={sizes}: must ascend, and each be at least 1'
    if config.data.sparse or config.data.tokens.dense:
      yield f'{path}: needs texts, whose TF-IDF features group the labels'

  def cut(self, data: TreeInputs, path: str) -> LabelLevels:
    """Builds the tree over labels and cuts it; a ConfigError has `path`."""
    try:
      tree = self.tree.build(data)
    except ConfigError as error:
      message = str(error).replace(TREE_PATH, f'{path}.tree')
      raise ConfigError(message) from error
    try:
      return LabelLevels.cut(tree, sizes=self.sizes)
    except ConfigError as error:
      raise ConfigError(f'{path}.sizes={self.sizes}: {error}') from error
