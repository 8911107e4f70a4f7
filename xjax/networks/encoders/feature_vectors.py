"""Defines the input of models that read vectors of an outside encoder."""

import dataclasses

from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Float32

from xjax.core.config_part import AT_LEAST_1, RATE, field
from xjax.data.tokens_config import FeatureFilesConfig
from xjax.networks.encoders.encoder import InputConfig
from xjax.networks.encoders.layers import dropout


@dataclasses.dataclass
class FeaturesConfig(InputConfig):
  """Chooses vectors that an outside encoder has computed and stored in files.

  This input needs data.tokens=FeatureFilesConfig(...).
  """

  dim: int = field(768, 'Size of a vector in the files.', AT_LEAST_1)
  dropout: float = field(
    0.0,
    'Dropout rate of channels. A channel is one feature at all tokens of a '
    'document.',
    RATE,
  )

  reads = FeatureFilesConfig

  def build(self, vocab_size: int, rngs: nnx.Rngs) -> nnx.Module:
    return Features(self)


class Features(nnx.Module):
  """Passes on the vectors of an outside encoder, with dropout of channels."""

  def __init__(self, config: FeaturesConfig):
    self.config = config
    self.dim = config.dim

  def __call__(
    self,
    features_TBD: Float32[Array, 'T B D'],
    dtype: DTypeLike,
    rngs: nnx.Rngs | None,
  ) -> Float[Array, 'T B D']:
    x_TBD = features_TBD.astype(dtype)
    return dropout(x_TBD, self.config.dropout, rngs, shared=(0,))
