"""Word embeddings and dropout."""

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp

from xjax.heads.frozen import Frozen
from xjax.models.config import EmbeddingConfig


def dropout(
  x: jax.Array,
  rate: float,
  rngs: nnx.Rngs | None,
  *,
  shared: tuple[int, ...] = (),
) -> jax.Array:
  """Zeroes entries with probability rate and scales up what is left.

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
