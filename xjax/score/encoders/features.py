"""Documents that come as vectors of an outside encoder."""

import dataclasses

from flax import nnx
import jax
import jax.numpy as jnp

from xjax.core.config_part import AT_LEAST_1, RATE, field
from xjax.data.config import FeatureFilesConfig
from xjax.score.encoders.contract import InputConfig
from xjax.score.encoders.layers import dropout


@dataclasses.dataclass
class FeaturesConfig(InputConfig):
  """Vectors that an outside encoder made; needs FeatureFilesConfig."""

  dim: int = field(
    768, 'Size of a vector, as in the files.', AT_LEAST_1, tiny=8
  )
  dropout: float = field(0.0, 'Rate over whole channels of a document.', RATE)

  reads = FeatureFilesConfig

  def build(self, vocab_size: int, rngs: nnx.Rngs) -> nnx.Module:
    return Features(self)


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
