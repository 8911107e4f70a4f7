"""Models from their configs."""

from flax import nnx
import jax.numpy as jnp
import numpy as np

from xjax.core.errors import ConfigError
from xjax.heads.label_attention import LabelAttention
from xjax.models.bigru import BiGRU
from xjax.models.config import (
  BiGRUConfig,
  LabelAttentionConfig,
  NeuralModel,
)
from xjax.models.layers import WordEmbedding
from xjax.models.text_model import TextModel


def build(
  config: NeuralModel,
  *,
  vocab_size: int,
  n_labels: int,
  label_priors: np.ndarray | None = None,
  dtype: jnp.dtype = jnp.float32,
  rngs: nnx.Rngs,
) -> TextModel:
  """A model with fresh parameters; needs a mesh context (`jax.set_mesh`).

  Args:
    config: its parts.
    vocab_size: word ids, padding and unknown included.
    n_labels: labels to score.
    label_priors: [L] probabilities strictly between 0 and 1 (`smoothed_priors`)
      at whose logits the output biases begin; None: biases begin at 0.
    dtype: of activations and products.
    rngs: stream `params`.

  Returns:
    The model: label rows sharded over the label axis, all else replicated.

  Raises:
    ConfigError: a field that cannot be.
  """
  match config.encoder:
    case BiGRUConfig():
      new_encoder = BiGRU
    case _:
      raise ConfigError(f'no encoder is made from {config.encoder!r}')
  match config.head:
    case LabelAttentionConfig():
      new_head = LabelAttention
    case _:
      raise ConfigError(f'no head is made from {config.head!r}')
  _check(config)
  embedding = WordEmbedding(vocab_size, config.embedding, rngs=rngs)
  encoder = new_encoder(config.embedding.dim, config.encoder, rngs=rngs)
  head = new_head(
    n_labels,
    encoder.dim,
    chunk=config.head.chunk,
    bias=None if label_priors is None else _logit(label_priors),
    rngs=rngs,
  )
  return TextModel(embedding, encoder, head, dtype=dtype)


def smoothed_priors(train_counts: np.ndarray, n_train: int) -> np.ndarray:
  """float64 [L] label probabilities (n + 1/2) / (N + 1), never 0 nor 1.

  Args:
    train_counts: [L] training documents per label.
    n_train: N, training documents.
  """
  return (np.asarray(train_counts, np.float64) + 0.5) / (n_train + 1)


def _logit(priors: np.ndarray) -> np.ndarray:
  priors = np.asarray(priors, np.float64)
  if not np.all((priors > 0) & (priors < 1)):
    raise ValueError('label priors must lie strictly between 0 and 1')
  return np.log(priors) - np.log1p(-priors)


def _check(config: NeuralModel) -> None:
  sizes = {
    'embedding.dim': config.embedding.dim,
    'encoder.units': config.encoder.units,
    'encoder.layers': config.encoder.layers,
    'head.chunk': config.head.chunk,
  }
  rates = {
    'embedding.dropout': config.embedding.dropout,
    'embedding.word_dropout': config.embedding.word_dropout,
    'encoder.dropout': config.encoder.dropout,
  }
  for name, value in sizes.items():
    if value < 1:
      raise ConfigError(f'model.{name} is {value}: it must be at least 1')
  for name, value in rates.items():
    if not 0 <= value < 1:
      raise ConfigError(f'model.{name} is {value}: it must be in [0, 1)')
