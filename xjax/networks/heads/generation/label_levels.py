"""Reads labels by level, and trains their vectors before documents (HBGL).

In reading, all labels of a level are one vector, which follows a document. At
each level, a pseudo mask asks for its labels (Jiang et al. 2022, Section 3.3).

Vectors are trained on the hierarchy alone (Section 3.2, "global hierarchy"):
labels are read like the tokens of a text, some of them masked, and each label
attends only to its parents and children. The encoder is not trained.
"""

from collections.abc import Callable
import dataclasses
from typing import NamedTuple, TypeVar

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32
import numpy as np

from xjax.core.config_part import (
  AMOUNT,
  AT_LEAST_0,
  AT_LEAST_1,
  POSITIVE,
  SHARE,
  ConfigPart,
  field,
)
from xjax.core.numerics import product
from xjax.core.types import PAD, Ragged
from xjax.data.hierarchy import Hierarchy
from xjax.data.label_trees.taxonomy import (
  cut_into_segments,
  tree_of_first_parents,
)
from xjax.losses.bce import bce
from xjax.networks.encoders.bert import STDDEV, Bert, activate
from xjax.networks.encoders.layers import Dense, LayerNorm
from xjax.networks.encoders.prefix import Prefix, embed, run_layers

Results = TypeVar('Results')

_TARGET = 1  # the token type of levels


def label_levels(hierarchy: Hierarchy) -> np.ndarray:
  """Returns each label's level, int32 [L], from 0, without empty levels."""
  levels_L = hierarchy.levels[: hierarchy.n_labels]
  return np.unique(levels_L, return_inverse=True)[1].astype(np.int32)


class Transform(nnx.Module):
  """Computes norm(activation(dense(h))), as the language model of BERT does.

  A label is then scored by the product with its vector.
  """

  def __init__(self, encoder: Bert, *, rngs: nnx.Rngs):
    self.activation = encoder.layers.ffn.activation
    dim = encoder.width
    self.dense = Dense(dim, dim, stddev=STDDEV, rngs=rngs)
    self.norm = LayerNorm(dim, encoder.embeddings.norm.eps)

  def __call__(self, h: Float[Array, '*axes D']) -> Float[Array, '*axes D']:
    return self.norm(activate(self.dense(h), self.activation))


def taught_states(
  prefix: Prefix,
  levels_BND: Float32[Array, 'B N D'],
  mask_D: Float32[Array, ' D'],
  rngs: nnx.Rngs | None = None,
) -> Float[Array, 'B _ D']:
  """Returns the states of the pseudo masks, if the levels above are known.

  The states are those at the masks of the N levels, and of one more level.
  """
  encoder = prefix.encoder
  batch, n, dim = levels_BND.shape
  first, seeds = encoder.seeds(rngs)
  masks = jnp.broadcast_to(mask_D, (batch, n + 1, dim))
  # Both have the position of the level. The first level comes after the last
  # token of the document.
  places = np.concatenate([np.arange(n), np.arange(n + 1)])
  h = embed(
    encoder,
    jnp.concatenate([levels_BND, masks], axis=1),
    prefix.lengths_B[:, None] + places,
    _TARGET,
    first,
  )
  # The vector of a level attends to the document, the levels above and itself;
  # a pseudo mask to the document, the levels above its level and itself.
  is_level = np.arange(2 * n + 1) < n
  sees = is_level & (places < places[:, None])
  sees |= np.eye(2 * n + 1, dtype=bool)
  states, _ = run_layers(
    encoder, h, [prefix.memory], _with_tokens(prefix, sees), seeds
  )
  return states[:, n:]


def generate(
  prefix: Prefix,
  n_levels: int,
  mask_D: Float32[Array, ' D'],
  emit: Callable[[jax.Array, jax.Array, Results], tuple[jax.Array, Results]],
  results: Results,
) -> Results:
  """Asks for the labels of each level, from the first to the last.

  At each level, `emit` gets the level, the state [B, D] of the pseudo mask and
  the results so far, and returns the vector [B, D] of the emitted labels and
  the new results.
  """
  encoder = prefix.encoder
  batch, (dim,) = len(prefix.lengths_B), mask_D.shape
  above = jnp.zeros((encoder.count, batch, n_levels, 2 * dim), encoder.dtype)
  mask_BD = jnp.broadcast_to(mask_D, (batch, dim))

  def step(level: jax.Array, carry: tuple) -> tuple:
    above, last_BD, results = carry
    # The level above has its labels now, so its keys and values are computed
    # with those of the pseudo mask. At the first level, nothing sees them.
    h_B2D = embed(
      encoder,
      jnp.stack([last_BD, mask_BD], axis=1),
      jnp.maximum(prefix.lengths_B[:, None] + level + np.array([-1, 0]), 0),
      _TARGET,
    )
    before = jnp.arange(n_levels) < level - 1
    own = jnp.array([[True, False], [False, True]])
    own = own.at[1, 0].set(level > 0)
    sees = jnp.concatenate([jnp.stack([before, before]), own], axis=1)
    memory, seen = [prefix.memory, above], _with_tokens(prefix, sees)
    states_B2D, new = run_layers(encoder, h_B2D, memory, seen, None)
    at = 0, 0, jnp.maximum(level - 1, 0), 0
    above = lax.dynamic_update_slice(above, new[:, :, :1], at)
    level_BD, results = emit(level, states_B2D[:, 1], results)
    return above, level_BD, results

  start = above, jnp.zeros((batch, dim), jnp.float32), results
  return lax.fori_loop(0, n_levels, step, start)[2]


def _with_tokens(
  prefix: Prefix, sees: jax.Array | np.ndarray
) -> Bool[Array, 'B N X']:
  """Adds the tokens, which all vectors see, to a mask, as [B, N, T + M]."""
  batch, (count, width) = len(prefix.lengths_B), sees.shape
  real_BT = prefix.real_BT
  tokens = jnp.broadcast_to(real_BT[:, None], (batch, count, real_BT.shape[1]))
  others = jnp.broadcast_to(sees, (batch, count, width))
  return jnp.concatenate([tokens, others], axis=2)


_SEGMENT = 'config.model.head.pretraining.segment'


@dataclasses.dataclass
class LabelPretraining(ConfigPart):
  """Configures how the vectors of labels are trained on the hierarchy alone."""

  steps: int = field(
    300,
    'Number of steps for each segment of the hierarchy. 0 means that the '
    'vectors are not trained before the documents are read.',
    AT_LEAST_0,
  )
  rate: float = field(1e-3, 'Learning rate of Adam.', POSITIVE)
  batch: int = field(
    32,
    'Number of copies of a segment in a step; each copy has other masks.',
    AT_LEAST_1,
  )
  mask: float = field(0.15, 'Share of the labels that are masked.', SHARE)
  growth: float = field(
    0.0, 'What is added to `mask` over the steps, bit by bit.', AMOUNT
  )
  segment: int = field(
    512,
    'Largest number of labels that are read at once. A larger hierarchy is cut '
    'into segments (Bertalis et al. 2025, Section 3.3).',
    AT_LEAST_1,
  )


class Segment(NamedTuple):
  """Holds some nodes of a hierarchy, which are read at once.

  The arrays have a fixed size X. A vector for the common root of the hierarchy
  comes before the nodes, at position 0.
  """

  nodes_X: jax.Array | np.ndarray  # int32, PAD at the end
  levels_X: jax.Array | np.ndarray  # int32, from 1; 0 at the end
  # bool [1 + X, 1 + X], what each node attends to: itself, its parents and its
  # children. Nodes without parents are children of the root.
  sees: jax.Array | np.ndarray
  # bool [X, X], the pairs of leaves that have a common parent. Each node is
  # together with itself.
  together: jax.Array | np.ndarray


def pretrained_nodes(hierarchy: Hierarchy) -> Hierarchy:
  """Returns the hierarchy of only the labels and their ancestors."""
  n = hierarchy.n_labels
  every = Ragged.of([range(n)])
  kept = hierarchy.with_ancestors(every).values
  others = kept[kept >= n]
  return Hierarchy.of(hierarchy.labels[:n], hierarchy.labels[others])


def segments_of(hierarchy: Hierarchy, limit: int) -> list[np.ndarray]:
  """Cuts a hierarchy into segments (see cut_into_segments).

  A node with several parents is cut with its first parent.

  Raises:
    ConfigError: the path to a leaf has more than `limit` nodes.
  """
  tree = tree_of_first_parents(hierarchy)
  parts = cut_into_segments(tree, limit, hierarchy.ids, _SEGMENT)
  return [part.label[1:] for part in parts]


def make_segment(hierarchy: Hierarchy, nodes: np.ndarray, size: int) -> Segment:
  """Makes the arrays of a segment, of fixed size, from at most `size` nodes."""
  place = np.full(len(hierarchy), PAD)
  place[nodes] = np.arange(len(nodes))
  sees = np.eye(1 + size, dtype=bool)
  rows, parents_of_leaves = [], []
  for row, node in enumerate(nodes.tolist()):
    parents = hierarchy.parents[node]
    inside = place[parents][place[parents] != PAD]
    columns = 1 + inside if len(parents) else np.array([0])
    sees[1 + row, columns] = sees[columns, 1 + row] = True
    if not len(hierarchy.children[node]):
      above = parents.tolist() or [PAD]
      rows += [row] * len(above)
      parents_of_leaves += above
  _, columns = np.unique(parents_of_leaves, return_inverse=True)
  below = np.zeros((size, 1 + columns.max(initial=0)), bool)
  below[rows, columns] = True
  together = np.eye(size, dtype=bool) | (below @ below.T)
  padding = (0, size - len(nodes))
  return Segment(
    np.pad(nodes, padding, constant_values=PAD).astype(np.int32),
    np.pad(hierarchy.levels[nodes], padding).astype(np.int32),
    sees,
    together,
  )


def pretraining_loss(
  rows_XD: Float32[Array, 'X D'],
  encoder: Bert,
  transform: Transform,
  special_2D: Float32[Array, '2 D'],
  segment: Segment,
  masked_BX: Bool[Array, 'B X'],
  seeds: tuple[jax.Array | None, ...],
) -> Float32[Array, '']:
  """Returns the mean binary cross entropy over masked nodes and all nodes.

  A masked node is to be predicted at its own place. The logit of a node is the
  product of the transformed state with the vector of the node.

  rows_XD may have any values at padding. The encoder and the transform are not
  trained. special_2D has the vectors of the root (the token [CLS]) and of
  [MASK]. masked_BX says which nodes are masked in each copy of the segment.
  seeds are encoder.seeds(rngs).
  """
  root_D, mask_D = special_2D
  real_X = segment.nodes_X != PAD
  masked_BX = masked_BX & real_X
  batch, size = masked_BX.shape
  nodes = jnp.where(masked_BX[:, :, None], mask_D, rows_XD)
  root = jnp.broadcast_to(root_D, (batch, 1, len(root_D)))
  places = jnp.concatenate([jnp.zeros(1, jnp.int32), segment.levels_X])
  vectors = jnp.concatenate([root, nodes], axis=1)
  first, seeds = seeds
  h = embed(encoder, vectors, places[None], 0, first)
  states, _ = run_layers(encoder, h, (), segment.sees[None], seeds)
  h = transform(states[:, 1:]).reshape(batch * size, -1)
  # If a masked node is a leaf, the other masked leaves that have a common
  # parent with it count as correct too, because nothing distinguishes them.
  targets = (segment.together & masked_BX[:, None, :]).reshape(-1, size)
  loss, _ = bce(product(h, rows_XD, (1, 1)), targets)
  asked = masked_BX.reshape(-1, 1) & real_X
  return jnp.where(asked, loss, 0).sum() / jnp.maximum(asked.sum(), 1)
