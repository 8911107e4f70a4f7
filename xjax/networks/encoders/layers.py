"""Defines the layers that encoders share: embeddings, dropout, dense, norm."""

import dataclasses

from flax import nnx
import jax
from jax import lax
from jax.ad_checkpoint import checkpoint_name
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Float32, Int32, Key, UInt32

from xjax.core.config_part import AMOUNT, AT_LEAST_1, RATE, field
from xjax.core.numerics import mix_bits, product
from xjax.networks.encoders.encoder import InputConfig
from xjax.networks.heads.head import Frozen, normal


@dataclasses.dataclass
class EmbeddingConfig(InputConfig):
  """Chooses word embeddings, which can start from pretrained vectors."""

  dim: int = field(200, 'Size of a word vector.', AT_LEAST_1)
  dropout: float = field(
    0.2,
    'Dropout rate of channels (spatial dropout). A channel is one feature at '
    'all tokens of a document.',
    RATE,
  )
  word_dropout: float = field(
    0.02, 'Dropout rate of words. The vector of a dropped word is 0.', RATE
  )
  init_scale: float = field(
    0.1,
    'Standard deviation of the entries of the initial vectors, for words '
    'without a pretrained vector.',
    AMOUNT,
  )
  vectors: str = field(
    '',
    'File of pretrained vectors of size dim, from which training starts. The '
    'format is word2vec (text or binary) or GloVe. If empty, there is no such '
    'file.',
    may_change=True,
  )
  frozen: bool = field(
    False, 'Whether training leaves the vectors at their initial values.'
  )

  def build(self, vocab_size: int, rngs: nnx.Rngs) -> nnx.Module:
    return WordEmbedding(vocab_size, self, rngs=rngs)


def dropout(
  x: Float[Array, '*shape'],
  rate: float,
  rngs: nnx.Rngs | None,
  *,
  shared: tuple[int, ...] = (),
) -> Float[Array, '*shape']:
  """Zeroes entries with probability `rate`, and scales up the other entries.

  The rate, in [0, 1), is rounded to a multiple of 2^-16. Entries along the axes
  `shared` have one draw. Without rngs (stream `dropout`), x is unchanged.
  """
  # Drawing 16 random bits for each entry takes half the time of drawing floats.
  kept = max(1, round((1 - rate) * 2**16))
  if rngs is None or kept == 2**16:
    return x
  shape = [1 if axis in shared else n for axis, n in enumerate(x.shape)]
  # The gradient keeps these draws. In the layers of pretrained encoders, their
  # array would be large; those use seeded_dropout.
  words = jax.random.bits(rngs.dropout(), (*shape[:-1], -(-shape[-1] // 2)))
  halves = lax.bitcast_convert_type(words, jnp.uint16)
  draws = halves.reshape(*shape[:-1], -1)[..., : shape[-1]]
  return jnp.where(draws < kept, x * (2**16 / kept), 0)


class WordEmbedding(nnx.Module):
  """Looks up word vectors, with dropout of channels and of words.

  Dropout treats each zone as a document.
  """

  def __init__(
    self, vocab_size: int, config: EmbeddingConfig, *, rngs: nnx.Rngs
  ):
    self.config = config
    self.dim = config.dim
    variable = Frozen if config.frozen else nnx.Param
    shape = vocab_size, config.dim
    self.table = variable(normal(rngs, shape, config.init_scale))

  def __call__(
    self,
    tokens_TB: Int32[Array, 'T B *Z'],
    dtype: DTypeLike,
    rngs: nnx.Rngs | None,
  ) -> Float[Array, 'T B *Z {self.dim}']:
    table = self.table[...]
    if self.config.frozen:
      table = lax.stop_gradient(table)
    x_TBD = table[tokens_TB].astype(dtype)
    x_TBD = dropout(x_TBD, self.config.dropout, rngs, shared=(0,))
    word = (x_TBD.ndim - 1,)
    return dropout(x_TBD, self.config.word_dropout, rngs, shared=word)


DENSE = 'dense'  # names the results of dense layers for remat policies


class Dense(nnx.Module):
  """Applies a dense layer, x W + b, to the last axis."""

  def __init__(
    self,
    inputs: int,
    outputs: int,
    *,
    stddev: float,
    rngs: nnx.Rngs,
    bias: bool = True,
  ):
    self.kernel = nnx.Param(normal(rngs, (inputs, outputs), stddev))
    self.bias = nnx.Param(jnp.zeros(outputs)) if bias else None

  def __call__(
    self, x: Float[Array, '*axes inputs']
  ) -> Float[Array, '*axes outputs']:
    bias = None if self.bias is None else self.bias[...]
    return dense(x, self.kernel[...], bias)


def dense(
  x: Float[Array, '*axes inputs'],
  kernel: Float32[Array, 'inputs outputs'],
  bias: Float32[Array, ' outputs'] | None = None,
) -> Float[Array, '*axes outputs']:
  """Computes x W + b in the dtype of x, with gradients of W and b in float32.

  Devices add up these gradients. In bfloat16, each of their sums would be
  rounded.
  """
  # All axes except the last are merged first. Otherwise the kernel's gradient
  # would be a sum over several axes, and both of its factors would be copied.
  flat = _dense(x.reshape(-1, x.shape[-1]), kernel, bias)
  return checkpoint_name(flat, DENSE).reshape(*x.shape[:-1], -1)


@jax.custom_vjp
def _dense(
  x_XD: jax.Array, kernel_DU: jax.Array, bias_U: jax.Array | None
) -> jax.Array:
  dtype = x_XD.dtype
  out_XU = product(x_XD, kernel_DU.astype(dtype), (1, 0), into=dtype)
  return out_XU if bias_U is None else out_XU + bias_U.astype(dtype)


def _dense_forward(x_XD, kernel_DU, bias_U) -> tuple:
  return _dense(x_XD, kernel_DU, bias_U), (x_XD, kernel_DU, bias_U)


def _dense_backward(saved: tuple, d_XU: jax.Array) -> tuple:
  x_XD, kernel_DU, bias_U = saved
  dtype = x_XD.dtype
  return (
    product(d_XU, kernel_DU.astype(dtype), (1, 1), into=dtype),
    product(x_XD, d_XU, (0, 0)),
    None if bias_U is None else d_XU.sum(axis=0, dtype=jnp.float32),
  )


_dense.defvjp(_dense_forward, _dense_backward)


class LayerNorm(nnx.Module):
  """Normalises the last axis in float32 (layer norm, Ba et al. 2016)."""

  def __init__(self, dim: int, eps: float):
    self.eps = eps
    self.scale = nnx.Param(jnp.ones(dim))
    self.bias = nnx.Param(jnp.zeros(dim))

  def __call__(self, x: Float[Array, '*axes D']) -> Float[Array, '*axes D']:
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    variance = jnp.square(centred).mean(axis=-1, keepdims=True)
    normed = centred * lax.rsqrt(variance + self.eps)
    return (normed * self.scale[...] + self.bias[...]).astype(x.dtype)


def seeds_of(key: Key[Array, ''], *shape: int) -> UInt32[Array, '*shape 2']:
  """Draws seeds for a group of dropouts of this shape, two numbers for each."""
  return jax.random.bits(key, (*shape, 2), jnp.uint32)


def kept_entries(
  shape: tuple[int, ...],
  rate: float,
  seeds: UInt32[Array, '2'],
  draw: Int32[Array, ''] | int = 0,
) -> Bool[Array, '...']:
  """Decides for each entry, independently, whether dropout keeps the entry.

  A hash of the entry's place decides. There must be fewer than 2^32 rows, along
  the last axis. `rate` is the probability of False, rounded to a multiple of
  2^-32. `draw` is the index of this draw, if several draws have the same seeds.
  """
  # A compiler puts the hash into the loop that uses the decision. With
  # jax.random.bernoulli, a training step of two of MiniLM's layers takes 1.15
  # times as long at 128 tokens and 1.7 times at 512 tokens (on two CPU cores).
  # The hash has two rounds of xor-shift and multiplication (Wellons 2018,
  # "lowbias32"), and a 64-bit key for each row.
  row = jnp.zeros((*shape[:-1], 1), jnp.uint32)
  for axis, size in enumerate(shape[:-1]):
    row = row * size + lax.broadcasted_iota(jnp.uint32, row.shape, axis)
  draw = jnp.asarray(draw).astype(jnp.uint32)
  row_key = mix_bits(
    mix_bits(row + seeds[0]) ^ (draw * jnp.uint32(0x9E3779B9) + seeds[1])
  )
  other_row_key = mix_bits(
    mix_bits(row ^ seeds[1]) + (draw * jnp.uint32(0x85EBCA6B) ^ seeds[0])
  )
  # With the barrier, the keys of a row are computed only once, and not again
  # for each entry.
  row_key, other_row_key = lax.optimization_barrier((row_key, other_row_key))
  place = lax.broadcasted_iota(
    jnp.uint32, (*[1] * (len(shape) - 1), shape[-1]), len(shape) - 1
  )
  x = row_key + place * jnp.uint32(0x9E3779B1)
  x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D) ^ other_row_key
  # The last xor-shift of lowbias32 is left out, because it does not change the
  # upper half of the bits.
  x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
  return x < jnp.uint32(min(2**32 - 1, round((1 - rate) * 2**32)))


def seeded_dropout(
  x: Float[Array, '*shape'],
  rate: float,
  seeds: UInt32[Array, '2'] | None,
  draw: Int32[Array, ''] | int = 0,
) -> Float[Array, '*shape']:
  """Zeroes entries with probability `rate`, and scales up the other entries.

  Without seeds, x is unchanged. The gradient of attention, which is written by
  hand, makes the same decisions again from the seeds.
  """
  if seeds is None or not rate:
    return x
  kept = kept_entries(x.shape, rate, seeds, draw)
  return jnp.where(kept, x * (1 / (1 - rate)), 0)
