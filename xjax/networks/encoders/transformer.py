"""Defines what pretrained transformers share: the choice of their layers."""

from flax import nnx
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Float32, Int32

from xjax.networks.encoders.encoder import PretrainedConfig
from xjax.networks.pretrained.architecture import Architecture

# The segments that `self_attention` reads, but with time as the first axis.
SegmentsTB = Bool[Array, 'T B'] | Int32[Array, 'T B']


class Transformer(nnx.Module):
  """Encodes text with transformer layers, and joins the states of some layers.

  Attributes:
    width: size of the state of a layer.
    dim: size D of a token's vector, `width` times the number of joined layers.
  """

  def __init__(
    self,
    architecture: Architecture,
    config: PretrainedConfig,
    *,
    dtype: DTypeLike = jnp.float32,
  ):
    """Sets the sizes; a subclass makes the layers.

    Args:
      architecture: sizes of the encoder.
      config: which layers are joined, and `remat`.
      dtype: dtype of activations and products.
    """
    self.width = architecture.dim
    self.joined = config.joined or (-1,)
    self.dim = self.width * len(self.joined)
    self.dtype = jnp.dtype(dtype)
    self.remat = config.remat

  def __call__(
    self,
    ids_TB: Int32[Array, 'T B'],
    segments_TB: SegmentsTB,
    rngs: nnx.Rngs | None,
    kept_BT: Float32[Array, 'B T'] | None = None,
  ) -> Float[Array, 'T B {self.dim}']:
    """Returns the states of the joined layers, by default of the last layer.

    Args:
      ids_TB: int32 token ids, time first.
      segments_TB: bool or int32. A bool is False at padding. An int32 is 0 at
        padding. Elsewhere it is 1, 2, ... for the first, second, ... document
        of a column. Tokens attend only to the tokens of their own document,
        and the positions of each document start from 0.
      rngs: stream `dropout`, or None for no dropout.
      kept_BT: float32 factors of the word vectors, or None if all factors are
        1. Only encoders that can mask words get factors
        (EncoderConfig.masks_words).

    Returns:
      h_TBD in dtype, 0 at padding.
    """
    kept = {} if kept_BT is None else {'kept_BT': kept_BT}
    states = self.states(ids_TB, segments_TB, rngs, **kept)
    h_BTD = jnp.concatenate([states[layer] for layer in self.joined], axis=-1)
    real_BT1 = (segments_TB.T != 0)[:, :, None]
    return jnp.where(real_BT1, h_BTD, 0).swapaxes(0, 1)

  def states(
    self,
    ids_TB: Int32[Array, 'T B'],
    segments_TB: SegmentsTB,
    rngs: nnx.Rngs | None,
  ) -> list[Float[Array, 'B T {self.width}']]:
    """Returns the embeddings and the states of each layer.

    Args:
      ids_TB, segments_TB, rngs: the arguments of __call__.

    Returns:
      A list of arrays h_BTD in dtype: the embeddings, then the states of each
      layer. The values at padding have no meaning.
    """
    raise NotImplementedError
