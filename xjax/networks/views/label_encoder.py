"""Defines the encoder of labels, which reads their names and their taxonomy."""

import dataclasses

from flax import nnx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Float32, Int32
import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.numerics import product
from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.label_trees.label_tree import LabelTree
from xjax.data.label_trees.taxonomy import (
  cut_into_segments,
  tree_of_first_parents,
)
from xjax.networks.encoders.bert import STDDEV
from xjax.networks.encoders.layers import Dense, LayerNorm
from xjax.networks.heads.attend import MASKED
from xjax.networks.heads.head import Frozen, normal

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
  while len(front):  # ends, since a hierarchy has no cycles
    chosen[front] = True
    front = np.unique(above[front])
    front = front[front != PAD]
  return np.flatnonzero(chosen)


@dataclasses.dataclass(frozen=True, eq=False)
class TaxonomyParts:
  """Holds the parts of a tree of labels, each with at most C nodes.

  The nodes are those of `encoded_nodes`, numbered from 0. Each node is below
  its first parent. Nodes without a parent are below a root, which is no node.
  The parts are the sub-trees of Bertalis et al. 2025, Section 3.3. A node that
  has children can be in several parts.
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
  """Returns the path from each node up, int32 [nodes, depth], without root."""
  node, parent, columns = np.arange(1, len(tree)), tree.parent, []
  while node.any():
    columns.append(np.where(node > 0, node - 1, PAD))
    node = np.where(node > 0, parent[node], 0)
  return np.stack(columns, axis=1).astype(np.int32)


_NORM_EPS = 1e-12  # BERT's


class LabelEncoder(nnx.Module):
  """Computes a vector of each label with one layer of Graphormer.

  This is the label encoder of HGCLR (Wang et al. 2022). Graphormer is by Ying
  et al. 2021.

  The input of a node is the mean of the word vectors of its name, plus a
  learned vector of the node. All nodes of a part of the taxonomy attend to each
  other. A bias is added to the score of the nodes i and j:

    b_ij = distance[d] + (the sum of edge[e] over the edges e from i to j) / d

  where d is the number of edges from i to j in the tree of the taxonomy. All
  heads use it. A residual connection and a layer norm follow. As in the code of
  Wang et al., there is no feed-forward network.

  `pieces` are int32 [nodes, S], the words or pieces of each node's name, and
  PAD. A run sets them when it starts. edge[n] belongs to the edge above node n.
  """

  def __init__(
    self,
    parts: TaxonomyParts,
    dim: int,
    *,
    heads: int,
    name_tokens: int,
    dtype: DTypeLike = jnp.float32,
    rngs: nnx.Rngs,
  ):
    if dim % heads:
      raise ConfigError(
        f'config.model.views.heads={heads}: must divide {dim}, the size of a '
        'word vector'
      )
    self.heads, self.dtype = heads, jnp.dtype(dtype)
    count, depth = parts.nodes.max() + 1, parts.paths.shape[2]
    self.pieces = Frozen(jnp.full((count, name_tokens), PAD, jnp.int32))
    self.nodes = Frozen(jnp.asarray(parts.nodes))
    self.paths = Frozen(jnp.asarray(parts.paths))
    self.counted = Frozen(jnp.asarray(parts.counted))
    self.vector = nnx.Param(normal(rngs, (count, dim), STDDEV))
    self.edge = nnx.Param(normal(rngs, (count,), STDDEV))
    self.distance = nnx.Param(normal(rngs, (2 * depth + 1,), STDDEV))
    self.inputs = Dense(dim, 3 * dim, stddev=STDDEV, rngs=rngs)
    self.output = Dense(dim, dim, stddev=STDDEV, rngs=rngs)
    self.norm = LayerNorm(dim, _NORM_EPS)

  def __call__(
    self,
    nodes_C: Int32[Array, ' C'],
    paths: Int32[Array, 'C depth'],
    table: Float[Array, 'words D'],
  ) -> Float[Array, 'C D']:
    """Returns the vectors of the nodes of a part, without a meaning at PAD."""
    x_CD = self._inputs(nodes_C, table).astype(self.dtype)
    count, dim = x_CD.shape
    inputs = self.inputs(x_CD).reshape(count, 3, self.heads, -1)
    query, key, value = (inputs[:, i].swapaxes(0, 1) for i in range(3))
    score = product(query, key, (2, 2), shared=1) * query.shape[2] ** -0.5
    score = score + self._bias(nodes_C, paths)
    weight = jax.nn.softmax(jnp.where(nodes_C != PAD, score, MASKED), axis=-1)
    mixed = product(weight.astype(self.dtype), value, (2, 1), shared=1)
    mixed_CD = mixed.swapaxes(0, 1).reshape(count, dim).astype(self.dtype)
    wide_CD = (x_CD + self.output(mixed_CD)).astype(jnp.float32)
    return self.norm(wide_CD).astype(self.dtype)

  def _inputs(
    self, nodes_C: Int32[Array, ' C'], table: Float[Array, 'words D']
  ) -> Float32[Array, 'C D']:
    pieces_CS = self.pieces[...][nodes_C]
    is_piece_CS = pieces_CS != PAD
    words_CSD = table[jnp.where(is_piece_CS, pieces_CS, 0)]
    total_CD = jnp.where(is_piece_CS[..., None], words_CSD, 0).sum(axis=1)
    counts_C1 = jnp.maximum(is_piece_CS.sum(axis=1, keepdims=True), 1)
    return total_CD / counts_C1 + self.vector[...][nodes_C]

  def _bias(
    self, nodes_C: Int32[Array, ' C'], paths: Int32[Array, 'C depth']
  ) -> Float32[Array, 'C C']:
    """Returns b_ij for the nodes of a part."""
    count = len(nodes_C)
    rows = jnp.arange(count)[:, None]
    places = jnp.where(paths == PAD, count, paths)
    is_above_CC = jnp.zeros((count, count + 1)).at[rows, places].set(1.0)
    is_above_CC = is_above_CC[:, :count]
    edge_C = self.edge[...][nodes_C]
    # The edges from i to j are the edges above i and above j, up to the root,
    # without the edges that both paths have. So no table of paths between nodes
    # is needed.
    distance_CC = _between(is_above_CC, jnp.ones(count))
    edges_CC = _between(is_above_CC, edge_C)
    by_distance_CC = self.distance[...][distance_CC.astype(jnp.int32)]
    return by_distance_CC + edges_CC / jnp.maximum(distance_CC, 1)


def _between(is_above_CC, edge_C) -> Float32[Array, 'C C']:
  """Sums edges on the path of i and j; is_above_CC: j is i, or is above it."""
  weighted_CC = is_above_CC * edge_C
  own_C = weighted_CC.sum(axis=1)
  shared_CC = product(weighted_CC, is_above_CC, (1, 1))
  return own_C[:, None] + own_C[None, :] - 2 * shared_CC
