"""Defines the hierarchical attention network, which reads words, then zones."""

import dataclasses

from flax import nnx
from jaxtyping import Array, Bool, Float

from xjax.core.config_part import AT_LEAST_1, RATE, field
from xjax.core.mesh import documents_second
from xjax.networks.encoders.encoder import EncoderConfig, EncoderInputs
from xjax.networks.encoders.recurrent_cells import BiGRU, BiGRUConfig
from xjax.networks.pooling import SelfAttention


@dataclasses.dataclass
class HANConfig(EncoderConfig):
  """Chooses a hierarchical attention network, which encodes each zone.

  This encoder needs data.tokens.by_zone=True. The pooling and the head then
  read one vector for each zone, not one for each token.
  """

  units: int = field(
    300,
    "Hidden units of each direction of the GRU over a zone's words.",
    AT_LEAST_1,
  )
  layers: int = field(
    1, 'Layers of the GRU over words, as in BiGRUConfig.', AT_LEAST_1
  )
  zone_units: int = field(
    300,
    "Hidden units of each direction of the GRU over a document's zones.",
    AT_LEAST_1,
  )
  dropout: float = field(
    0.3,
    'Dropout rate of the GRUs over words and over zones, as in BiGRUConfig.',
    RATE,
  )

  by_zone = True

  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    return HAN(inputs.dim, self, rngs=rngs)


class HAN(nnx.Module):
  """Encodes documents by a hierarchical attention network (HAN).

  See Yang et al. 2016, and Chalkidis et al. 2019, Section 4. A BiGRU with
  self-attention reads each zone separately and computes one vector for the
  zone. A second BiGRU reads the vectors of the zones. A pooling then reads the
  states of the second BiGRU. Yang et al. use sentences instead of zones.
  """

  def __init__(self, dim: int, config: HANConfig, *, rngs: nnx.Rngs):
    words_config = BiGRUConfig(config.units, config.layers, config.dropout)
    zones_config = BiGRUConfig(config.zone_units, 1, config.dropout)
    self.words = BiGRU(dim, words_config, rngs=rngs)
    self.attention = SelfAttention(self.words.dim, rngs=rngs)
    self.zones = BiGRU(self.words.dim, zones_config, rngs=rngs)
    self.dim = self.zones.dim

  def __call__(
    self,
    x_TBZD: Float[Array, 'T B Z D'],
    real_TBZ: Bool[Array, 'T B Z'],
    rngs: nnx.Rngs | None,
  ) -> Float[Array, 'Z B {self.dim}']:
    """Returns one state for each zone; zones without words are 0, and last."""
    steps, documents, zones, dim = x_TBZD.shape
    # The first BiGRU reads each zone as if it were a document.
    shape = steps, documents * zones
    x_TXD = documents_second(x_TBZD.reshape(*shape, dim))
    real_TX = documents_second(real_TBZ.reshape(shape))
    h_TXD = documents_second(self.words(x_TXD, real_TX, rngs))
    zone_XD = self.attention.over_time(h_TXD, real_TX)
    zone_ZBD = zone_XD.reshape(documents, zones, -1).swapaxes(0, 1)
    real_ZB = real_TBZ.any(axis=0).T
    zone_ZBD, real_ZB = map(documents_second, (zone_ZBD, real_ZB))
    return self.zones(zone_ZBD, real_ZB, rngs)
