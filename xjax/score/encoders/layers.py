"""Word embeddings, dropout, dense layers and norms."""

import dataclasses

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp

from xjax.core.config_part import AMOUNT, AT_LEAST_1, RATE, field
from xjax.core.numerics import full_precision
from xjax.score.encoders.contract import InputConfig
from xjax.score.heads.contract import Frozen


@dataclasses.dataclass
class EmbeddingConfig(InputConfig):
  """Word embeddings, trained or pretrained."""

  dim: int = field(200, 'Size of a word vector.', AT_LEAST_1, tiny=8)
  dropout: float = field(
    0.2, 'Rate over whole channels of a document (spatial dropout).', RATE
  )
  word_dropout: float = field(0.02, 'Rate over whole words.', RATE)
  init_scale: float = field(
    0.1,
    "Standard deviation of the first vectors' entries, of words that have no "
    'pretrained vector.',
    AMOUNT,
  )
  vectors: str = field(
    '',
    'File of pretrained vectors, of size dim, that words begin with (word2vec '
    'text or binary, or GloVe); empty: none.',
    may_change=True,
    tiny='',
  )
  frozen: bool = field(False, 'Whether the vectors stay as they begin.')

  def build(self, vocab_size: int, rngs: nnx.Rngs) -> nnx.Module:
    return WordEmbedding(vocab_size, self, rngs=rngs)


def dropout(
  x: jax.Array,
  rate: float,
  rngs: nnx.Rngs | None,
  *,
  shared: tuple[int, ...] = (),
) -> jax.Array:
  """Zeroes entries with probability rate and scales up what is left.

  For all layers but those of the pretrained encoders: what was drawn is kept
  for the gradient, and a draw may be shared along axes. Where that array is
  large, and a gradient is written by hand, coins.dropped draws again instead.

  Args:
    x: floats of any shape.
    rate: in [0, 1), to the nearest 2^-16 below 1.
    rngs: stream `dropout`; None: x is returned as it is.
    shared: axes along which one draw holds for all entries.

  Returns:
    As x; x itself where the rate is 0, if only by rounding.
  """
  # Sixteen random bits decide an entry: half the time of drawing floats.
  kept = max(1, round((1 - rate) * 2**16))
  if rngs is None or kept == 2**16:
    return x
  shape = [1 if axis in shared else n for axis, n in enumerate(x.shape)]
  words = jax.random.bits(rngs.dropout(), (*shape[:-1], -(-shape[-1] // 2)))
  halves = lax.bitcast_convert_type(words, jnp.uint16)
  draws = halves.reshape(*shape[:-1], -1)[..., : shape[-1]]
  return jnp.where(draws < kept, x * (2**16 / kept), 0)


class WordEmbedding(nnx.Module):
  """Word vectors with dropout of channels and of words.

  Attributes:
    table: float32 [vocabulary, D].
    dim: D.
  """

  def __init__(
    self, vocab_size: int, config: EmbeddingConfig, *, rngs: nnx.Rngs
  ):
    """Small random vectors: what is learnt soon outweighs them."""
    self.config = config
    self.dim = config.dim
    normal = nnx.initializers.normal(config.init_scale)
    variable = Frozen if config.frozen else nnx.Param
    self.table = variable(normal(rngs.params(), (vocab_size, config.dim)))

  def __call__(
    self, tokens_TB: jax.Array, dtype: jnp.dtype, rngs: nnx.Rngs | None
  ) -> jax.Array:
    """Vectors of tokens.

    Args:
      tokens_TB: int32 ids, time first; or [T, B, Z], whose every zone is to
        dropout a document.
      dtype: of the result.
      rngs: stream `dropout`, or None: no dropout.

    Returns:
      x_TBD.
    """
    table = self.table[...]
    if self.config.frozen:
      table = lax.stop_gradient(table)
    x_TBD = table[tokens_TB].astype(dtype)
    x_TBD = dropout(x_TBD, self.config.dropout, rngs, shared=(0,))
    word = (x_TBD.ndim - 1,)
    return dropout(x_TBD, self.config.word_dropout, rngs, shared=word)


class Dense(nnx.Module):
  """x W + b.

  Attributes:
    kernel: W, float32 [inputs, outputs].
    bias: b, float32 [outputs].
  """

  def __init__(
    self, inputs: int, outputs: int, *, stddev: float, rngs: nnx.Rngs
  ):
    """A normal kernel and no bias.

    Args:
      inputs, outputs: sizes.
      stddev: of the kernel.
      rngs: stream `params`.
    """
    normal = nnx.initializers.normal(stddev)
    self.kernel = nnx.Param(normal(rngs.params(), (inputs, outputs)))
    self.bias = nnx.Param(jnp.zeros(outputs))

  def __call__(self, x: jax.Array) -> jax.Array:
    """[..., outputs] in x's dtype."""
    # Flattened by hand: the kernel's gradient, a sum over several axes, would
    # copy both its factors.
    flat = x.reshape(-1, x.shape[-1])
    kernel = self.kernel[...].astype(x.dtype)
    product = jnp.matmul(flat, kernel, precision=full_precision(x.dtype))
    product = product.reshape(*x.shape[:-1], -1)
    return product + self.bias[...].astype(x.dtype)


class LayerNorm(nnx.Module):
  """Layer norm over the last axis (Ba et al. 2016), in float32.

  Attributes:
    scale, bias: float32 [D].
  """

  def __init__(self, dim: int, eps: float):
    """Scale 1, bias 0.

    Args:
      dim: D.
      eps: added to the variance.
    """
    self.eps = eps
    self.scale = nnx.Param(jnp.ones(dim))
    self.bias = nnx.Param(jnp.zeros(dim))

  def __call__(self, x: jax.Array) -> jax.Array:
    """As x, in its dtype."""
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    variance = jnp.square(centred).mean(axis=-1, keepdims=True)
    normed = centred * lax.rsqrt(variance + self.eps)
    return (normed * self.scale[...] + self.bias[...]).astype(x.dtype)
