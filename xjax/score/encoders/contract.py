"""Defines the base classes of the configs of embeddings and of encoders."""

import abc
import dataclasses
from typing import ClassVar

from flax import nnx
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from xjax.core.config_part import ConfigPart
from xjax.data.config import (
  PaddedConfig,
  SubwordsConfig,
  WordsConfig,
)
from xjax.score.pretrained.architecture import Architecture


@dataclasses.dataclass
class InputConfig(ConfigPart, abstract=True):
  """Chooses how the tokens of documents become vectors.

  Attributes:
    reads: the kind of data.tokens that the embedding reads.
    vectors: file of pretrained vectors, or '' if there is none.
  """

  reads: ClassVar[type[PaddedConfig]] = WordsConfig
  vectors = ''

  @abc.abstractmethod
  def build(self, vocab_size: int, rngs: nnx.Rngs) -> nnx.Module | None:
    """Makes the embedding, with fresh parameters.

    Args:
      vocab_size: number of word ids, including the ids of padding and of
        unknown words; 0 if documents do not consist of word ids.
      rngs: stream `params`.

    Returns:
      A module (tokens_TB or features_TBD, dtype, rngs) -> x_TBD with an
      attribute `dim`, the size D; or None if the encoder reads token ids
      itself.
    """


@dataclasses.dataclass
class NoEmbedding(InputConfig):
  """Chooses no embedding, for encoders that read token ids themselves."""

  reads = SubwordsConfig

  def build(self, vocab_size: int, rngs: nnx.Rngs) -> None:
    return None


@dataclasses.dataclass(frozen=True)
class EncoderInputs:
  """Holds the facts about a run that an encoder needs when it is built.

  Attributes:
    dim: size of the embedding's vectors, or 0 if the encoder reads token ids.
    dtype: dtype of activations and products.
    architecture: sizes of the pretrained encoder, or None if the encoder is not
      pretrained.
  """

  dim: int
  dtype: DTypeLike
  architecture: Architecture | None = None


@dataclasses.dataclass
class EncoderConfig(ConfigPart, abstract=True):
  """Chooses the encoder, which adds context to the vectors of tokens.

  Attributes:
    by_zone: whether the encoder reads words zone by zone (data.tokens.by_zone).
    pretrained: whether the encoder is read from a folder, with its tokenizer.
      It is True for BertConfig and its subclasses.
    keeps_space: whether the vectors of tokens stay in the space of the
      embedding, so that they can be compared with embedded descriptors.
    remat: whether layers are computed again for gradients. It is a field of
      encoders that can compute layers again, and None for all other encoders.
  """

  by_zone: ClassVar[bool] = False
  pretrained: ClassVar[bool] = False
  keeps_space: ClassVar[bool] = False
  remat = None

  @abc.abstractmethod
  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    """Makes the encoder, with fresh parameters.

    Args:
      inputs: sizes and dtype of the encoder's input.
      rngs: stream `params`.

    Returns:
      A module (x_TBD, real_TB, rngs) -> h_TBD with an attribute `dim`, the size
      of h; h is 0 at padding. Time is the first axis. real_TB is bool, False at
      padding. rngs has the stream `dropout`, or is None for no dropout. The
      module runs on the context mesh. Documents are divided over the data axis.
    """


@dataclasses.dataclass
class NoEncoder(EncoderConfig):
  """Chooses no encoder, so that the vectors of tokens stay as they are."""

  keeps_space = True

  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    return Identity(inputs.dim)


class Identity(nnx.Module):
  """Passes on the vectors of tokens without a change.

  Attributes:
    dim: size of input and output.
  """

  def __init__(self, dim: int):
    """Makes an encoder for vectors of size dim."""
    self.dim = dim

  def __call__(
    self,
    x_TBD: Float[Array, 'T B D'],
    real_TB: Bool[Array, 'T B'],
    rngs: nnx.Rngs | None,
  ) -> Float[Array, 'T B D']:
    """Returns the input, with 0 at padding.

    Args:
      x_TBD: inputs, time first.
      real_TB: bool, False at padding.
      rngs: ignored.

    Returns:
      h_TBD, in x's dtype.
    """
    del rngs
    return jnp.where(real_TB[:, :, None], x_TBD, 0)
