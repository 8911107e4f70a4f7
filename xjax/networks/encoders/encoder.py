"""Defines the base classes of the configs of embeddings and of encoders."""

import abc
import dataclasses
import enum
from typing import ClassVar

from flax import nnx
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from xjax.core.config_part import RATE, ConfigPart, field
from xjax.data.tokens_config import PaddedConfig, SubwordsConfig, WordsConfig
from xjax.networks.pretrained.architecture import Architecture


@dataclasses.dataclass
class InputConfig(ConfigPart, abstract=True):
  """Chooses how the tokens of documents become vectors."""

  reads: ClassVar[type[PaddedConfig]] = WordsConfig  # the class of data.tokens
  vectors = ''  # file of pretrained vectors, or ''

  @abc.abstractmethod
  def build(self, vocab_size: int, rngs: nnx.Rngs) -> nnx.Module | None:
    """Makes (tokens_TB or features_TBD, dtype, rngs) -> x_TBD, of size `dim`.

    vocab_size counts the ids of padding and of unknown words; it is 0 if
    documents do not consist of word ids. The result is None if the encoder
    reads token ids itself. rngs has the stream `params`.
    """


@dataclasses.dataclass
class NoEmbedding(InputConfig):
  """Chooses no embedding, for encoders that read token ids themselves."""

  reads = SubwordsConfig

  def build(self, vocab_size: int, rngs: nnx.Rngs) -> None:
    return None


@dataclasses.dataclass(frozen=True)
class EncoderInputs:
  """Holds the facts about a run that an encoder needs when it is built."""

  dim: int  # size of the embedding's vectors; 0 if the encoder reads token ids
  dtype: DTypeLike  # of activations and products
  architecture: Architecture | None = None  # of the pretrained encoder, if any


@dataclasses.dataclass
class EncoderConfig(ConfigPart, abstract=True):
  """Chooses the encoder, which adds context to the vectors of tokens."""

  by_zone: ClassVar[bool] = False  # reads words zone by zone (tokens.by_zone)
  pretrained: ClassVar[bool] = False  # read from a folder, with its tokenizer
  # Whether vectors stay in the space of the embedding, so that they can be
  # compared with embedded descriptors.
  keeps_space: ClassVar[bool] = False
  # Whether the model can multiply word vectors by factors, as views need.
  # Encoders that read token ids are called with `kept_BT` for this.
  masks_words: ClassVar[bool] = True
  remat = None  # or what the backward pass computes again
  joined = ()  # the layers whose states are joined, if there is a choice

  @abc.abstractmethod
  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    """Makes a module (x_TBD, real_TB, rngs) -> h_TBD, of size `dim`.

    Time is the first axis. real_TB is bool, False at padding, where h is 0.
    rngs has the stream `dropout`, or is None for no dropout. The module runs on
    the context mesh, and documents are divided over the data axis.
    """


class Remat(enum.Enum):
  """Says what the backward pass of a layer computes again."""

  NONE = 'none'
  DOTS = 'dots'  # all but the results of dense layers
  EVERYTHING = 'everything'


@dataclasses.dataclass
class PretrainedConfig(EncoderConfig, abstract=True):
  """Fine-tunes a pretrained transformer, which reads subwords."""

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
  remat: Remat = field(
    Remat.NONE,
    'What the backward pass computes again instead of keeping it: with '
    'everything, all activations of the layers; with dots, all but the results '
    'of dense layers. Training then takes less memory and more time. The '
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
  )


@dataclasses.dataclass
class NoEncoder(EncoderConfig):
  """Chooses no encoder, so that the vectors of tokens stay as they are."""

  keeps_space = True

  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    return Identity(inputs.dim)


class Identity(nnx.Module):
  """Returns the vectors of tokens as they are, but 0 at padding."""

  def __init__(self, dim: int):
    self.dim = dim

  def __call__(
    self,
    x_TBD: Float[Array, 'T B D'],
    real_TB: Bool[Array, 'T B'],
    rngs: nnx.Rngs | None,
  ) -> Float[Array, 'T B D']:
    del rngs
    return jnp.where(real_TB[:, :, None], x_TBD, 0)
