"""Documents that come as vectors, and an encoder that leaves them so."""

from flax import nnx
import jax
import jax.numpy as jnp

from xjax.score.config import FeaturesConfig
from xjax.score.encoders.layers import dropout


class Features(nnx.Module):
  """Vectors of an outside encoder, with dropout of channels.

  Attributes:
    dim: size D of a vector.
  """

  def __init__(self, config: FeaturesConfig):
    """Nothing is learnt."""
    self.config = config
    self.dim = config.dim

  def __call__(
    self, features_TBD: jax.Array, dtype: jnp.dtype, rngs: nnx.Rngs | None
  ) -> jax.Array:
    """The vectors in another dtype.

    Args:
      features_TBD: float32, time first, 0 at padding.
      dtype: of the result.
      rngs: stream `dropout`, or None: no dropout.

    Returns:
      x_TBD.
    """
    x_TBD = features_TBD.astype(dtype)
    return dropout(x_TBD, self.config.dropout, rngs, shared=(0,))


class Identity(nnx.Module):
  """An encoder that puts nothing in context.

  Attributes:
    dim: size of input and output.
  """

  def __init__(self, dim: int):
    """For inputs of size dim."""
    self.dim = dim

  def __call__(
    self, x_TBD: jax.Array, real_TB: jax.Array, rngs: nnx.Rngs | None
  ) -> jax.Array:
    """x_TBD, but 0 at padding.

    Args:
      x_TBD: inputs, time first.
      real_TB: bool, False at padding.
      rngs: not read.
    """
    del rngs
    return jnp.where(real_TB[:, :, None], x_TBD, 0)
