"""Defines the layers that encoders share: embeddings, dropout, dense, norm."""

import dataclasses

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int32

from xjax.core.config_part import AMOUNT, AT_LEAST_1, RATE, field
from xjax.core.numerics import full_precision
from xjax.networks.encoders.encoder import InputConfig
from xjax.networks.heads.head import Frozen


@dataclasses.dataclass
class EmbeddingConfig(InputConfig):
  """Chooses word embeddings, which can start from pretrained vectors."""

  dim: int = field(200, 'Size of a word vector.', AT_LEAST_1, tiny=8)
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
    tiny='',
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

  This function keeps its random draws for the gradient. In the layers of
  pretrained encoders, the array of draws would be large. Those layers use
  seeded_dropout (dropout_bits.py), which computes its draws again.

  Args:
    rate: probability in [0, 1), rounded to a multiple of 2^-16 below 1.
    rngs: stream `dropout`. If None, x is returned unchanged.
    shared: axes along which all entries share one draw.
  """
  # Drawing 16 random bits for each entry takes half the time of drawing floats.
  kept = max(1, round((1 - rate) * 2**16))
  if rngs is None or kept == 2**16:
    return x
  shape = [1 if axis in shared else n for axis, n in enumerate(x.shape)]
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
    normal = nnx.initializers.normal(config.init_scale)
    variable = Frozen if config.frozen else nnx.Param
    self.table = variable(normal(rngs.params(), (vocab_size, config.dim)))

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
    normal = nnx.initializers.normal(stddev)
    self.kernel = nnx.Param(normal(rngs.params(), (inputs, outputs)))
    self.bias = nnx.Param(jnp.zeros(outputs)) if bias else None

  def __call__(
    self, x: Float[Array, '*axes inputs']
  ) -> Float[Array, '*axes outputs']:
    # All axes except the last are merged first. Otherwise the kernel's gradient
    # would be a sum over several axes, and both of its factors would be copied.
    flat = x.reshape(-1, x.shape[-1])
    kernel = self.kernel[...].astype(x.dtype)
    product = jnp.matmul(flat, kernel, precision=full_precision(x.dtype))
    product = product.reshape(*x.shape[:-1], -1)
    if self.bias is None:
      return product
    return product + self.bias[...].astype(x.dtype)


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
