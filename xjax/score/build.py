"""Models from their configs."""

from flax import nnx
import jax.numpy as jnp
import numpy as np

from xjax.core.errors import ConfigError
from xjax.score.config import (
  BertConfig,
  BiGRUConfig,
  ClsConfig,
  CNNConfig,
  EmbeddingConfig,
  EncoderConfig,
  FeaturesConfig,
  HANConfig,
  HeadConfig,
  InputConfig,
  LabelAttentionConfig,
  MeanConfig,
  NeuralModel,
  NoEmbedding,
  NoEncoder,
  NoPooling,
  OneVsAllConfig,
  PoolingConfig,
  SelfAttentionConfig,
  UnifiedConfig,
  ZeroShotConfig,
)
from xjax.score.encoders.bert import Bert
from xjax.score.encoders.bigru import BiGRU
from xjax.score.encoders.cls import Cls
from xjax.score.encoders.cnn import CNN
from xjax.score.encoders.features import Features, Identity
from xjax.score.encoders.han import HAN
from xjax.score.encoders.layers import WordEmbedding
from xjax.score.encoders.mean import Mean
from xjax.score.encoders.self_attention import SelfAttention
from xjax.score.heads.contract import Head
from xjax.score.heads.label_attention import LabelAttention
from xjax.score.heads.ova import OneVsAll
from xjax.score.heads.unified import Unified
from xjax.score.heads.zero_shot import ZeroShot
from xjax.score.pretrained.architecture import Architecture
from xjax.score.text_model import TextModel


def build(
  config: NeuralModel,
  *,
  vocab_size: int,
  n_labels: int,
  architecture: Architecture | None = None,
  label_priors: np.ndarray | None = None,
  unseen: np.ndarray | None = None,
  hidden: np.ndarray | None = None,
  dtype: jnp.dtype = jnp.float32,
  rngs: nnx.Rngs,
) -> TextModel:
  """A model with fresh parameters; needs a mesh context (`jax.set_mesh`).

  Args:
    config: its parts.
    vocab_size: word ids, padding and unknown included; 0 where there are none.
    n_labels: labels to score.
    architecture: of a pretrained encoder; None: there is none.
    label_priors: [L] probabilities strictly between 0 and 1 (`smoothed_priors`)
      at whose logits the output biases begin; None: biases begin at 0.
    unseen: bool [L], labels without training documents; None: none are.
    hidden: bool [L], further labels that a unified head calibrates by; None:
      none are.
    dtype: of activations and products.
    rngs: stream `params`.

  Returns:
    The model: label rows sharded over the label axis, those of OneVsAll over
    all devices; all else replicated.

  Raises:
    ConfigError: a field that cannot be.
  """
  bias = None if label_priors is None else first_biases(label_priors)
  embedding = _embedding(config.embedding, vocab_size, rngs)
  if isinstance(config.encoder, BertConfig):
    encoder = Bert(architecture, config.encoder, dtype=dtype, rngs=rngs)
  else:
    encoder = _encoder(config.encoder, embedding.dim, rngs)
  pooling = _pooling(config.pooling, encoder.dim, rngs)
  none = np.zeros(n_labels, bool)
  unseen, hidden = (none if x is None else x for x in (unseen, hidden))
  if config.head.describes:
    # Descriptors are of word vectors, or of the encoder's own.
    size = encoder.dim if embedding is None else embedding.dim
    head = _descriptor_head(
      config.head, encoder.dim, size, bias, ~(unseen | hidden), hidden, rngs
    )
  else:
    head = _head(config.head, encoder.dim, n_labels, bias, rngs)
  return TextModel(embedding, encoder, pooling, head, dtype=dtype)


def _embedding(
  config: InputConfig, vocab_size: int, rngs: nnx.Rngs
) -> nnx.Module | None:
  match config:
    case EmbeddingConfig():
      return WordEmbedding(vocab_size, config, rngs=rngs)
    case FeaturesConfig():
      return Features(config)
    case NoEmbedding():
      return None
  raise ConfigError(f'no embedding is made from {config!r}')


def _encoder(config: EncoderConfig, dim: int, rngs: nnx.Rngs) -> nnx.Module:
  match config:
    case BiGRUConfig():
      return BiGRU(dim, config, rngs=rngs)
    case CNNConfig():
      return CNN(dim, config, rngs=rngs)
    case HANConfig():
      return HAN(dim, config, rngs=rngs)
    case NoEncoder():
      return Identity(dim)
  raise ConfigError(f'no encoder is made from {config!r}')


def _pooling(
  config: PoolingConfig, dim: int, rngs: nnx.Rngs
) -> nnx.Module | None:
  match config:
    case NoPooling():
      return None
    case SelfAttentionConfig():
      return SelfAttention(dim, rngs=rngs)
    case MeanConfig():
      return Mean(dim)
    case ClsConfig():
      return Cls(dim, config, rngs=rngs)
  raise ConfigError(f'no pooling is made from {config!r}')


def _head(
  config: HeadConfig,
  dim: int,
  n_labels: int,
  bias: np.ndarray | None,
  rngs: nnx.Rngs,
) -> Head:
  """A head that reads features of size dim."""
  match config:
    case LabelAttentionConfig():
      return LabelAttention(
        n_labels, dim, chunk=config.chunk, bias=bias, rngs=rngs
      )
    case OneVsAllConfig():
      return OneVsAll(
        n_labels,
        dim,
        chunk=config.chunk,
        bias=bias,
        storage=config.storage,
        bottleneck=config.bottleneck,
        rngs=rngs,
      )
  raise ConfigError(f'no head is made from {config!r}')


def _descriptor_head(
  config: HeadConfig,
  dim: int,
  size: int,
  bias: np.ndarray | None,
  seen: np.ndarray,
  hidden: np.ndarray,
  rngs: nnx.Rngs,
) -> Head:
  """A head that reads features of size dim, and descriptors of another."""
  match config:
    case ZeroShotConfig(chunk=chunk):
      offset = 0.0 if bias is None or not seen.any() else bias[seen].mean()
      # All but the unseen labels are learnt from: none need be hidden.
      return ZeroShot(
        len(seen),
        dim,
        size,
        chunk=chunk,
        seen=seen,
        offset=float(offset),
        rngs=rngs,
      )
    case UnifiedConfig():
      return Unified(
        len(seen),
        dim,
        size,
        chunk=config.chunk,
        seen=seen,
        hidden=hidden,
        row_dropout=config.row_dropout,
        aligned=config.aligned,
        bias=bias,
        rngs=rngs,
      )
  raise ConfigError(f'no head is made from {config!r}')


def smoothed_priors(train_counts: np.ndarray, n_train: int) -> np.ndarray:
  """float64 [L] label probabilities (n + 1/2) / (N + 1), never 0 nor 1.

  Args:
    train_counts: [L] training documents per label.
    n_train: N, training documents.
  """
  return (np.asarray(train_counts, np.float64) + 0.5) / (n_train + 1)


def first_biases(priors: np.ndarray) -> np.ndarray:
  """float64 [L], logits of label probabilities, at which biases begin."""
  priors = np.asarray(priors, np.float64)
  if not np.all((priors > 0) & (priors < 1)):
    raise ValueError('label priors must lie strictly between 0 and 1')
  return np.log(priors) - np.log1p(-priors)
