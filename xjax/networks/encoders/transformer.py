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
  """Encodes text with transformer layers, and joins the states of some."""

  def __init__(
    self,
    architecture: Architecture,
    config: PretrainedConfig,
    *,
    dtype: DTypeLike = jnp.float32,
  ):
    # A subclass makes the layers.
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

    Positions of each document start from 0. kept_BT are factors of the word
    vectors, for encoders that can mask words (EncoderConfig.masks_words).
    States are 0 at padding.
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
    """Returns the embeddings and then the states of each layer.

    States at padding mean nothing. Encoders that mask words also take kept_BT.
    """
    raise NotImplementedError
