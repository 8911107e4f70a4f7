"""Defines a transformer decoder, which reads symbols and encoded tokens.

It runs in two ways with the same result: over whole sequences, for training,
and symbol by symbol with the keys and values of earlier symbols, for writing.
"""

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from xjax.networks.encoders.attention import Memory, attend_to_parts
from xjax.networks.encoders.layers import Dense, LayerNorm, dropout, seeds_of

_EPS = 1e-5  # of the layer norms


class Decoder(nnx.Module):
  """Computes states of symbols from the earlier symbols and from the tokens.

  The layers are those of Vaswani et al. (2017, Section 3.1), without an
  embedding of positions: each symbol sees itself and the symbols before it, as
  a set.
  """

  def __init__(
    self,
    dim: int,
    *,
    layers: int,
    heads: int,
    inner: int,
    rate: float,
    rngs: nnx.Rngs,
  ):
    self.dim = dim
    self.layers = nnx.List(
      DecoderLayer(dim, heads, inner, rate, rngs=rngs) for _ in range(layers)
    )

  def memory(self, hidden_BTD: Float[Array, 'B T D']) -> list[Memory]:
    """Returns the keys and values of the tokens, [B, T, 2D] for each layer."""
    return [layer.token_pairs(hidden_BTD) for layer in self.layers]

  def __call__(
    self,
    x: Float[Array, 'B steps D'],
    memory: list[Memory],
    real_BT: Bool[Array, 'B T'],
    rngs: nnx.Rngs | None,
  ) -> Float[Array, 'B steps D']:
    """Returns the states of all symbols of sequences."""
    # Padding comes last, so no other symbol sees it.
    steps = jnp.arange(x.shape[1])
    sees = (steps <= steps[:, None])[None]
    for layer, pairs in zip(self.layers, memory):
      x = layer(x, layer.own_pairs(x), sees, pairs, real_BT[:, None], rngs)
    return x

  def step(
    self,
    x_BD: Float[Array, 'B D'],
    earlier: list[Memory],
    at: jax.Array,
    memory: list[Memory],
    real_BT: Bool[Array, 'B T'],
  ) -> tuple[Float[Array, 'B D'], list[Memory]]:
    """Returns the state of one symbol, which follows `at` earlier symbols.

    `earlier` has their keys and values, and is returned with the symbol's.
    """
    x, written = x_BD[:, None], []
    for layer, own, pairs in zip(self.layers, earlier, memory):
      own = lax.dynamic_update_slice(own, layer.own_pairs(x), (0, at, 0))
      sees = (jnp.arange(own.shape[1]) <= at)[None, None]
      x = layer(x, own, sees, pairs, real_BT[:, None], None)
      written.append(own)
    return x[:, 0], written


class DecoderLayer(nnx.Module):
  """Applies attention to symbols, attention to tokens, and two dense layers."""

  def __init__(
    self, dim: int, heads: int, inner: int, rate: float, *, rngs: nnx.Rngs
  ):
    self.heads, self.rate = heads, rate
    self.own_pairs = make_dense(dim, 2 * dim, rngs)
    self.own_query = make_dense(dim, dim, rngs)
    self.own_output = make_dense(dim, dim, rngs)
    self.token_pairs = make_dense(dim, 2 * dim, rngs)
    self.token_query = make_dense(dim, dim, rngs)
    self.token_output = make_dense(dim, dim, rngs)
    self.inner = make_dense(dim, inner, rngs)
    self.outer = make_dense(inner, dim, rngs)
    self.norms = nnx.List(LayerNorm(dim, _EPS) for _ in range(3))

  def __call__(
    self,
    x: Float[Array, 'B steps D'],
    own: Memory,
    sees: Bool[Array, '_ _ entries'],
    memory: Memory,
    real_B1T: Bool[Array, 'B 1 T'],
    rngs: nnx.Rngs | None,
  ) -> Float[Array, 'B steps D']:
    mixed = self._attend(self.own_query(x), own, sees, rngs)
    x = self._add(0, x, self.own_output(mixed), rngs)
    mixed = self._attend(self.token_query(x), memory, real_B1T, rngs)
    x = self._add(1, x, self.token_output(mixed), rngs)
    hidden = dropout(jax.nn.relu(self.inner(x)), self.rate, rngs)
    return self._add(2, x, self.outer(hidden), rngs)

  def _attend(self, query, memory, sees, rngs) -> jax.Array:
    seeds = None if rngs is None else seeds_of(rngs.dropout())
    return attend_to_parts(query, [memory], sees, self.heads, self.rate, seeds)

  def _add(self, part, x, change, rngs) -> jax.Array:
    """Returns norm(x + dropout(change)), summed in float32."""
    wide = dropout(change.astype(jnp.float32), self.rate, rngs)
    return self.norms[part](x.astype(jnp.float32) + wide).astype(x.dtype)


def make_dense(inputs: int, outputs: int, rngs: nnx.Rngs) -> Dense:
  """Makes a dense layer whose weights have the variance of torch's layers."""
  return Dense(inputs, outputs, stddev=(3 * inputs) ** -0.5, rngs=rngs)
