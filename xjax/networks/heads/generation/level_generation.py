"""Reads the levels of labels, as vectors that follow a document (HBGL).

All labels of a level are one vector. At each level, a pseudo mask asks for the
labels of the level (Jiang et al. 2022, Section 3.3).
"""

from collections.abc import Callable
from typing import TypeVar

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32
import numpy as np

from xjax.data.hierarchy import Hierarchy
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
