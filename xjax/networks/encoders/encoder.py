"""Defines the base classes of the configs of embeddings and of encoders."""

import abc
import dataclasses
from typing import ClassVar

from flax import nnx
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from xjax.core.config_part import RATE, ConfigPart, field
from xjax.data.config import (
  PaddedConfig,
  SubwordsConfig,
  WordsConfig,
)
from xjax.networks.pretrained.architecture import Architecture


@dataclasses.dataclass
class InputConfig(ConfigPart, abstract=True):
  """Chooses how the tokens of documents become vectors.

  Attributes:
    reads: the class of data.tokens that the embedding reads.
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
      A module, or None if the encoder reads token ids itself. The arguments of
      the module are tokens_TB or features_TBD, then dtype and rngs. The module
      returns x_TBD and has an attribute `dim`, the size D.
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
    pretrained: whether the encoder and its tokenizer are read from a folder.
      PretrainedConfig sets this to True.
    keeps_space: whether the vectors of tokens stay in the space of the
      embedding, so that they can be compared with embedded descriptors.
    masks_words: whether the model can multiply the word vectors of a document
      by factors, as further views of the document need. Encoders that read
      token ids themselves must be called with `kept_BT` for this purpose.
    remat: whether the backward pass computes the layers again. It is None for
      encoders that never compute their layers again.
    joined: the layers whose states are joined, or () if there is no choice.
  """

  by_zone: ClassVar[bool] = False
  pretrained: ClassVar[bool] = False
  keeps_space: ClassVar[bool] = False
  masks_words: ClassVar[bool] = True
  remat = None
  joined = ()

  @abc.abstractmethod
  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    """Makes the encoder, with fresh parameters.

    Args:
      inputs: sizes and dtype of the encoder's input.
      rngs: stream `params`.

    Returns:
      A module, which is called with x_TBD, real_TB and rngs, and returns h_TBD.
      Time is the first axis. real_TB is bool, False at padding, and h is 0 at
      padding. rngs has the stream `dropout`, or is None for no dropout. The
      module's attribute `dim` is the size of h. The module runs on the context
      mesh. Documents are divided over the data axis.
    """


@dataclasses.dataclass
class PretrainedConfig(EncoderConfig, abstract=True):
  """Fine-tunes a pretrained transformer, which reads subwords.

  Attributes:
    architecture: the class of the architectures that the encoder can have.
  """

  architecture: ClassVar[type[Architecture]]

  folder: str = field(
    '',
    "Folder of the pretrained model in Hugging Face's layout, with "
    'config.json, model.safetensors and the tokenizer; or the name of a model '
    'in the local Hugging Face cache. A run reads the folder only at its '
    'start. With several hosts, each host reads the folder and needs it at '
    'this path. An empty value works only with SyntheticData. The encoder is '
    'then small and has fresh weights, and its tokenizer is built from the '
    'words of the training split.',
    may_change=True,
    tiny='',
  )
  dropout: float = field(
    0.1,
    'Dropout rate of the embeddings, and of the outputs of self-attention and '
    'of the feed-forward network in each layer.',
    RATE,
  )
  attention_dropout: float = field(
    0.1,
    'Dropout rate of the attention weights. If this rate is 0 and '
    'train.compute_dtype=bfloat16, GPUs use a flash kernel for BertConfig.',
    RATE,
  )
  remat: bool = field(
    False,
    'Whether the backward pass computes the layers again instead of keeping '
    'their activations. If True, training takes less memory and more time. The '
    'result is the same.',
    may_change=True,
  )
  spare_rows: bool = field(
    False,
    'Whether the word table of the folder is allowed to end with any number of '
    'spare rows. The tokenizer has no ids for spare rows. If False, spare rows '
    'are allowed only if they round the table up to a multiple of 8, 16, 32, '
    '64 or 128 rows. Any other number of spare rows is an error, because the '
    'table seems to belong to another model.',
    may_change=True,
  )

  pretrained = True
  masks_words = False
  joined: tuple[int, ...] = field(
    (),
    'The layers whose states are joined: 1 is the first layer, -1 is the last. '
    'If empty, the states of the last layer are returned. LightXML reads the '
    'last five layers.',
    tiny=lambda layers: tuple(range(-min(2, len(layers)), 0)),
  )


@dataclasses.dataclass
class NoEncoder(EncoderConfig):
  """Chooses no encoder, so that the vectors of tokens stay as they are."""

  keeps_space = True

  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    return Identity(inputs.dim)


class Identity(nnx.Module):
  """Returns the vectors of tokens as they are.

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
