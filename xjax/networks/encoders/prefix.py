"""Runs the layers of BERT on further vectors, which follow documents.

The tokens of a document attend only to each other. So their keys and values do
not depend on the further vectors, and are computed only once.
"""

from collections.abc import Sequence
import functools
from typing import NamedTuple

from flax import nnx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, UInt32

from xjax.networks.encoders.attention import attend_to_parts
from xjax.networks.encoders.bert import Bert, SegmentsTB


class Prefix(NamedTuple):
  """Holds the documents of a batch, for vectors that follow them."""

  encoder: Bert  # has read the documents
  # Keys and values of the tokens, [layers, B, T, 2D]. Those at padding have no
  # meaning.
  memory: jax.Array
  lengths_B: jax.Array  # int32, 0 in rows that only fill the batch

  @property
  def real_BT(self) -> jax.Array:
    """Returns bool [B, T], True at a document's tokens, False beyond them."""
    return jnp.arange(self.memory.shape[2]) < self.lengths_B[:, None]


def read_prefix(
  encoder: Bert,
  ids_TB: Int32[Array, 'T B'],
  segments_TB: SegmentsTB,
  lengths_B: Int32[Array, ' B'],
  rngs: nnx.Rngs | None,
) -> Prefix:
  """Reads the documents of a batch, each in a column of its own."""
  memory = encoder.memory(ids_TB, segments_TB, rngs)
  return Prefix(encoder, memory, lengths_B)


def embed(
  encoder: Bert,
  vectors_BND: Float[Array, 'B N D'],
  places_BN: Int32[Array, '_ N'],
  kind: int = 0,
  seeds: UInt32[Array, 'draws 2'] | None = None,
) -> Float[Array, 'B N D']:
  """Returns what enters the first layer for vectors in place of word vectors.

  Positions start from 0. `kind` is the token type; encoders with fewer types
  use their last type. seeds are the first of encoder.seeds(rngs).
  """
  embeddings = encoder.embeddings
  kind = min(kind, len(embeddings.type) - 1)
  h_BND = embeddings.around(vectors_BND, places_BN, kind, seeds)
  return h_BND.astype(encoder.dtype)


def run_layers(
  encoder: Bert,
  h_BND: Float[Array, 'B N D'],
  memory: Sequence[Float[Array, 'layers B _ both']],
  sees_BNX: Bool[Array, '_ N X'],
  seeds: UInt32[Array, 'layers 3 2'] | None,
) -> tuple[Float[Array, 'B N D'], Float[Array, 'layers B N both']]:
  """Runs all layers on vectors that attend to a memory and to each other.

  h_BND comes from `embed`. `memory` has some parts. The last axis of sees_BNX
  has the parts in their order, and then the N vectors; each vector must attend
  to something. seeds are the last of encoder.seeds(rngs). The function returns
  the last states, and the vectors' keys and values.
  """
  attend = functools.partial(_attend, sees_BNX)
  keep = encoder.keys_and_values
  return encoder.run(attend, h_BND, seeds, keep, (tuple(memory),))


def _attend(sees_BNX, parts, attention, inputs_BNX, seeds) -> jax.Array:
  """Attends to the parts of a memory, and then to the vectors themselves."""
  query_BND, own = jnp.split(inputs_BNX, [inputs_BNX.shape[2] // 3], axis=2)
  heads, rate = attention.heads, attention.weights_rate
  memory = [*parts, own]
  return attend_to_parts(query_BND, memory, sees_BNX, heads, rate, seeds)
