"""What an embedding and an encoder are, and how a config chooses one."""

import abc
import dataclasses
from typing import ClassVar

from flax import nnx
import jax
import jax.numpy as jnp

from xjax.core.config_part import ConfigPart
from xjax.data.config import (
  PaddedConfig,
  SubwordsConfig,
  WordsConfig,
)
from xjax.score.pretrained.architecture import Architecture


@dataclasses.dataclass
class InputConfig(ConfigPart, abstract=True):
  """How a batch's documents become vectors.

  Attributes:
    reads: the kind of data.tokens that it reads.
    vectors: file of pretrained vectors; empty: none.
  """

  reads: ClassVar[type[PaddedConfig]] = WordsConfig
  vectors = ''

  @abc.abstractmethod
  def build(self, vocab_size: int, rngs: nnx.Rngs) -> nnx.Module | None:
    """A module (tokens_TB or features_TBD, dtype, rngs) -> x_TBD, with `dim`.

    Args:
      vocab_size: word ids, padding and unknown included; 0: there are none.
      rngs: stream `params`.

    Returns:
      The module; None: the encoder reads token ids.
    """


@dataclasses.dataclass
class NoEmbedding(InputConfig):
  """They do not: the encoder reads token ids."""

  reads = SubwordsConfig

  def build(self, vocab_size: int, rngs: nnx.Rngs) -> None:
    return None


@dataclasses.dataclass(frozen=True)
class EncoderInputs:
  """What an encoder is made for.

  Attributes:
    dim: size of the embedding's vectors; 0: it reads token ids.
    dtype: of activations and products.
    architecture: of the pretrained encoder; None: there is none.
  """

  dim: int
  dtype: jnp.dtype
  architecture: Architecture | None = None


@dataclasses.dataclass
class EncoderConfig(ConfigPart, abstract=True):
  """What makes vectors in context of a document's vectors.

  Attributes:
    by_zone: whether it reads words zone by zone (data.tokens.by_zone).
    pretrained: whether it is read from a folder, with its tokenizer: that of
      BertConfig and of what extends it.
    keeps_space: whether tokens' vectors stay in the space of the embedding, so
      that descriptors which it embeds can be compared with them.
    remat: whether layers are computed again for gradients; a field where they
      can be, else None.
  """

  by_zone: ClassVar[bool] = False
  pretrained: ClassVar[bool] = False
  keeps_space: ClassVar[bool] = False
  remat = None

  @abc.abstractmethod
  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    """A module (x_TBD, real_TB, rngs) -> h_TBD with `dim`, h 0 at padding.

    Time is the first axis. real_TB is bool, False at padding; rngs has the
    stream `dropout`, or is None where nothing is dropped. The module runs on
    the context mesh, documents over its data axis.

    Args:
      inputs: what it is made for.
      rngs: stream `params`.
    """


@dataclasses.dataclass
class NoEncoder(EncoderConfig):
  """None: vectors stay as they are."""

  keeps_space = True

  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    return Identity(inputs.dim)


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
