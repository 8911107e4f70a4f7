"""Defines graph layers, which add parents and children to a label's vector."""

from collections.abc import Iterator, Sequence
import dataclasses
import enum
from typing import Any

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float32, Int32
import numpy as np

from xjax.core.config_part import AT_LEAST_0, RATE, field, kinds_that
from xjax.core.mesh import LABEL
from xjax.core.numerics import product
from xjax.core.types import PAD, Ragged
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.networks.encoders.layers import dropout
from xjax.networks.heads.attend import AttentionHead
from xjax.networks.heads.head import (
  DescriptorHeadConfig,
  Frozen,
  GraphConfig,
  Head,
  HeadInputs,
)


class Joining(enum.Enum):
  """Defines how the graph's vector g of a label joins its descriptor e."""

  ADD = 'add'  # g is added to e
  CONCAT = 'concat'  # the score is a product with e and g side by side


@dataclasses.dataclass
class GraphLayers(GraphConfig):
  """Chooses two graph layers over labels (Chalkidis et al. 2020).

  The layers read the parents and the children of each label, among them
  concepts that no document has. See LabelGraph.
  """

  reads_parents = True

  width: int = field(
    0,
    'Size of the vectors of the first layer. 0 stands for the size of '
    'descriptors, which is also the size of the vectors of the second layer.',
    AT_LEAST_0,
  )
  dropout: float = field(0.0, 'Dropout rate of the vectors of layers.', RATE)
  joining: Joining = field(
    Joining.ADD,
    'How the vector of the graph joins the descriptor of a label. ADD adds the '
    'vectors. CONCAT scores a label by both vectors side by side; only the '
    'zero-shot head can do this.',
  )
  queries: bool = field(
    False,
    'Whether labels attend to tokens with the sum of descriptor and graph '
    'vector. If False, labels attend with the descriptor alone, as in the '
    'paper.',
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    if self.joining is not Joining.CONCAT:
      return
    if not getattr(config.model.head, 'concatenates', False):
      able = kinds_that('concatenates', DescriptorHeadConfig)
      yield f'{path}.joining=concat: needs config.model.head={able}'
    if self.queries:
      yield f'{path}.queries=True: needs {path}.joining=add'

  def attach(
    self, head: 'DescriptorHead', inputs: HeadInputs, rngs: nnx.Rngs
  ) -> Head:
    head.graph = LabelGraph(
      inputs.hierarchy,
      inputs.descriptor_dim,
      width=self.width or inputs.descriptor_dim,
      rate=self.dropout,
      unit=head.unit_descriptors,
      rngs=rngs,
    )
    head.graph_queries = self.queries
    head.start_graph(self.joining, inputs.dim, inputs.descriptor_dim, rngs)
    return head


class LabelGraph(nnx.Module):
  """Computes one vector of each label from the label's place in a hierarchy.

  This is the graph of Chalkidis et al. 2020
  (https://aclanthology.org/2020.emnlp-main.607), which follows Rios & Kavuluru
  2018. The graph has V nodes: the L labels, and the other concepts of the
  taxonomy. Let e_n be the frozen embedding of the descriptor of node n. The two
  layers compute

    f_n = tanh(W_s e_n + W_p mean e_parents + W_c mean e_children + b)
    g_n = tanh(W'_s f_n + W'_p mean f_parents + W'_c mean f_children + b')

  where the means are over the parents and over the children of n. The mean of
  no vector is 0.

  If the head scales descriptors to length 1 (`unit`), the graph differs in two
  ways. It reads e that is scaled to length 1, like the head. And its result is
  R g, with a kernel R that starts at zero. So the head starts as without a
  graph.
  """

  def __init__(
    self,
    hierarchy: Hierarchy,
    size: int,
    *,
    width: int,
    rate: float = 0.0,
    unit: bool = False,
    rngs: nnx.Rngs,
  ):
    self.n_labels = hierarchy.n_labels
    self.rate = rate
    self.unit = unit
    # The embeddings of concepts are zero until they are computed. There is at
    # least one row, because arrays without entries cannot be saved.
    others = max(len(hierarchy) - hierarchy.n_labels, 1)
    self.concepts = Frozen(jnp.zeros((others, size)))
    self.parents = Frozen(jnp.asarray(edges_of(hierarchy.parents)))
    self.children = Frozen(jnp.asarray(edges_of(hierarchy.children)))
    sizes = ((size, width), (width, size))
    self.layers = nnx.List(GraphLayer(*pair, rngs=rngs) for pair in sizes)
    self.kernel = nnx.Param(jnp.zeros((size, size))) if unit else None

  def rows(
    self, descriptors_LE: Float32[Array, 'L E'], rngs: nnx.Rngs | None
  ) -> Float32[Array, 'L E']:
    """Returns the vectors of all labels; the rows of padding are 0."""
    x_VE = jnp.concatenate(
      [descriptors_LE[: self.n_labels], self.concepts[...]]
    )
    # Each node reads nodes whose rows are on other devices, and the nodes are
    # few. So every device computes the vectors of all nodes.
    x_VE = lax.with_sharding_constraint(lax.stop_gradient(x_VE), P())
    if self.unit:
      x_VE = unit_rows(x_VE)
    for layer in self.layers:
      x_VE = layer(x_VE, self.parents[...], self.children[...])
      x_VE = dropout(x_VE, self.rate, rngs)
    x_LE = x_VE[: self.n_labels]
    if self.kernel is not None:
      x_LE = product(x_LE, self.kernel[...], (1, 0))
    return jnp.pad(x_LE, ((0, len(descriptors_LE) - len(x_LE)), (0, 0)))


class GraphLayer(nnx.Module):
  def __init__(self, inputs: int, outputs: int, *, rngs: nnx.Rngs):
    glorot = nnx.initializers.glorot_uniform()
    shape = (inputs, outputs)
    self.own_kernel = nnx.Param(glorot(rngs.params(), shape))
    self.parent_kernel = nnx.Param(glorot(rngs.params(), shape))
    self.child_kernel = nnx.Param(glorot(rngs.params(), shape))
    self.bias = nnx.Param(jnp.zeros(outputs))

  def __call__(
    self,
    x_VE: Float32[Array, 'V E'],
    parents_2X: Int32[Array, '2 X'],
    children_2X: Int32[Array, '2 Y'],
  ) -> Float32[Array, 'V H']:
    total_VH = self.bias[...] + product(x_VE, self.own_kernel[...], (1, 0))
    for kernel, edges in (
      (self.parent_kernel, parents_2X),
      (self.child_kernel, children_2X),
    ):
      total_VH += product(neighbour_means(x_VE, edges), kernel[...], (1, 0))
    return jnp.tanh(total_VH)


def neighbour_means(
  x_VE: Float32[Array, 'V E'], edges_2X: Int32[Array, '2 X']
) -> Float32[Array, 'V E']:
  """Returns the mean vector of each node's neighbours; 0 if it has none."""
  nodes_X, neighbours_X = edges_2X
  total_VE = jnp.zeros_like(x_VE).at[nodes_X].add(x_VE[neighbours_X])
  count_V = jnp.zeros(len(x_VE), x_VE.dtype).at[nodes_X].add(1)
  return total_VE / jnp.maximum(count_V, 1)[:, None]


def unit_rows(x_CE: jax.Array) -> jax.Array:
  """Scales rows to length 1, except rows of zeros."""
  norm_C1 = jnp.linalg.norm(x_CE, axis=1, keepdims=True)
  return x_CE / jnp.maximum(norm_C1, 1e-12)


def edges_of(neighbours: Ragged) -> Int32[np.ndarray, '2 X']:
  """Returns the nodes and their neighbours, int32 [2, edges]."""
  return np.stack([neighbours.owners, neighbours.values]).astype(np.int32)


def edges_with(
  hierarchy: Hierarchy, added: Sequence[Label]
) -> tuple[Int32[np.ndarray, '2 X'], Int32[np.ndarray, '2 Y']]:
  """Returns the edges after labels are added, which change no other label.

  The new labels become the nodes after the L labels of the hierarchy. A new
  label reads its parents (nodes or new labels), but its parents do not read it.
  So all other vectors stay as they are. If the id of a new label is that of a
  concept, the new label also reads the children of the concept, and, if the new
  label names no parents, the concept's parents. A parent that is a node of the
  run is that node, also if a new label has the same id.
  """
  first, n = hierarchy.n_labels, len(added)
  node_of = {label.id: first + i for i, label in enumerate(added)}

  def shifted(nodes: np.ndarray) -> np.ndarray:
    return np.where(nodes < first, nodes, nodes + n)

  concepts = hierarchy.ids.row_of.find([label.id for label in added])
  above, below = [], []
  for i, (label, concept) in enumerate(zip(added, concepts), first):
    parents, children = list(dict.fromkeys(label.parents)), []
    if concept != PAD:
      children = shifted(hierarchy.children[concept]).tolist()
      if not parents:
        parents = [hierarchy.ids[p] for p in hierarchy.parents[concept]]
    above_nodes = shifted(hierarchy.ids.row_of.find(parents)).tolist()
    above += [
      (i, node_of[id_] if node == PAD else node)
      for id_, node in zip(parents, above_nodes)
    ]
    below += [(i, child) for child in children]
  edges = (hierarchy.parents, above), (hierarchy.children, below)
  return tuple(
    np.concatenate(
      [shifted(edges_of(old)), np.array(new, np.int32).reshape(-1, 2).T], axis=1
    ).astype(np.int32)
    for old, new in edges
  )


class DescriptorHead(AttentionHead):
  """Scores labels by descriptors, and by a graph of labels if there is one.

  `descriptors` are float32 [L, E], frozen. The head that `ready` returns has
  the graph's vectors of the labels, graph_rows [L, E], instead of the graph.
  """

  unit_descriptors = False  # whether the head scales descriptors to length 1
  graph: LabelGraph | None = None
  graph_queries: bool = False  # labels attend with descriptor and graph vector

  def start_graph(
    self, joining: Joining, dim: int, size: int, rngs: nnx.Rngs
  ) -> None:
    """Adds the parameters with which the head reads the graph's vectors."""

  def ready(self, rngs: nnx.Rngs | None = None) -> 'DescriptorHead':
    """Returns the head with the graph's vectors in place of the graph."""
    head = super().ready(rngs)
    if head.graph is None:
      return head
    graphdef, params = nnx.split(head)
    head = nnx.merge(graphdef, params)
    rows_LE = head.graph.rows(head.descriptors[...], rngs)
    del head.graph
    head.graph_rows = nnx.Variable(rows_LE, out_sharding=(LABEL, None))
    return head
