"""Hierarchical attention network: words, zones, document."""

import dataclasses

from flax import nnx
import jax

from xjax.core.config_part import AT_LEAST_1, RATE, field
from xjax.core.mesh import documents_second
from xjax.score.encoders.bigru import BiGRU, BiGRUConfig
from xjax.score.encoders.contract import EncoderConfig, EncoderInputs
from xjax.score.pooling import SelfAttention


@dataclasses.dataclass
class HANConfig(EncoderConfig):
  """Hierarchical attention: words make zones, zones make the document.

  Needs data.tokens.by_zone. Zones are the tokens of the pooling and the head.
  """

  units: int = field(
    300, "Per direction, over a zone's words.", AT_LEAST_1, tiny=8
  )
  layers: int = field(1, 'Over words, as of BiGRUConfig.', AT_LEAST_1)
  zone_units: int = field(
    300, "Per direction, over a document's zones.", AT_LEAST_1, tiny=8
  )
  dropout: float = field(
    0.3, 'Rate, as of BiGRUConfig, over words and over zones.', RATE
  )

  by_zone = True

  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    return HAN(inputs.dim, self, rngs=rngs)


class HAN(nnx.Module):
  """HAN's encoder (Yang et al. 2016; Chalkidis et al. 2019, Section 4).

  A BiGRU with self-attention reads the words of each zone by themselves and
  makes a vector of it; a second BiGRU reads the zones' vectors. Its states are
  what a pooling, for HAN the self-attention, makes a document of. Zones stand
  where Yang et al. have sentences.

  Attributes:
    dim: size of the output, twice the units over zones.
    words: the BiGRU over a zone's words.
    attention: makes a zone of its words.
    zones: the BiGRU over a document's zones.
  """

  def __init__(self, dim: int, config: HANConfig, *, rngs: nnx.Rngs):
    """Parts for inputs of size dim."""
    below = BiGRUConfig(config.units, config.layers, config.dropout)
    above = BiGRUConfig(config.zone_units, 1, config.dropout)
    self.words = BiGRU(dim, below, rngs=rngs)
    self.attention = SelfAttention(self.words.dim, rngs=rngs)
    self.zones = BiGRU(self.words.dim, above, rngs=rngs)
    self.dim = self.zones.dim

  def __call__(
    self, x_TBZD: jax.Array, real_TBZ: jax.Array, rngs: nnx.Rngs | None
  ) -> jax.Array:
    """States of zones.

    Args:
      x_TBZD: inputs, time first.
      real_TBZ: bool, False at padding; a document's zones without any word
        come after its others.
      rngs: stream `dropout`, or None: no dropout.

    Returns:
      h_ZBD, the zones in the place of time; 0 where a zone has no word.
    """
    steps, documents, zones, dim = x_TBZD.shape
    # A zone is to the first level what a document is to other encoders.
    each = steps, documents * zones
    x_TXD = documents_second(x_TBZD.reshape(*each, dim))
    real_TX = documents_second(real_TBZ.reshape(each))
    h_TXD = documents_second(self.words(x_TXD, real_TX, rngs))
    zone_XD = self.attention.over_time(h_TXD, real_TX)
    zone_ZBD = zone_XD.reshape(documents, zones, -1).swapaxes(0, 1)
    real_ZB = real_TBZ.any(axis=0).T
    zone_ZBD, real_ZB = map(documents_second, (zone_ZBD, real_ZB))
    return self.zones(zone_ZBD, real_ZB, rngs)
