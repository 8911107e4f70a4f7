"""A document in, scores of labels out: embedding, encoder, pooling, head."""

from collections.abc import Iterator
import dataclasses
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np

from xjax.core.config_part import field, kinds_that
from xjax.core.errors import ConfigError
from xjax.core.mesh import documents_second
from xjax.core.types import Batch
from xjax.data.config import (
  FeatureFilesConfig,
  SubwordsConfig,
  TokensConfig,
  WordsConfig,
)
from xjax.losses.contract import ChunkLoss, LabelWeights
from xjax.score.config import ModelConfig
from xjax.score.encoders.bigru import BiGRUConfig
from xjax.score.encoders.contract import (
  EncoderConfig,
  EncoderInputs,
  InputConfig,
)
from xjax.score.encoders.layers import EmbeddingConfig
from xjax.score.encoders.unpacking import unpack_documents
from xjax.score.heads.attention_weights import attention_weights
from xjax.score.heads.contract import (
  Head,
  HeadConfig,
  HeadInputs,
  TokenFeatures,
)
from xjax.score.heads.fused import RowStep, fused_loss
from xjax.score.heads.label_attention import LabelAttentionConfig
from xjax.score.heads.streaming import head_loss
from xjax.score.heads.update import Slots
from xjax.score.pooling import NoPooling, PoolingConfig
from xjax.score.pretrained.architecture import Architecture


@dataclasses.dataclass
class NeuralModel(ModelConfig):
  """embedding -> encoder -> pooling -> head."""

  reads = (WordsConfig, SubwordsConfig, FeatureFilesConfig)

  embedding: InputConfig = field(EmbeddingConfig, 'Makes vectors of tokens.')
  encoder: EncoderConfig = field(BiGRUConfig, 'Puts them in context.')
  pooling: PoolingConfig = field(
    NoPooling, 'Makes one vector of a document, for heads that read one.'
  )
  head: HeadConfig = field(LabelAttentionConfig, 'Scores labels.')

  def check_tokens(self, config: Any) -> Iterator[str]:
    tokens, encoder = config.data.tokens, self.encoder
    kind = f'config.data.tokens={type(tokens).__name__}(...)'
    if tokens.by_zone != encoder.by_zone:
      yield (
        f'config.data.tokens.by_zone={tokens.by_zone}: must be True with '
        f'config.model.encoder={kinds_that("by_zone", EncoderConfig)}, and '
        'False with any other'
      )
    if not isinstance(tokens, self.embedding.reads):
      yield (
        f'{kind}: config.model.embedding={type(self.embedding).__name__}(...) '
        f'reads {self.embedding.reads.__name__}(...)'
      )
    if tokens.pretrained != encoder.pretrained:
      cut = kinds_that('pretrained', TokensConfig)
      yield (
        f'{kind}: {cut} goes with '
        f'config.model.encoder={kinds_that("pretrained", EncoderConfig)}, and '
        'each with nothing else'
      )


_PARTS = {
  'embedding': InputConfig,
  'encoder': EncoderConfig,
  'pooling': PoolingConfig,
  'head': HeadConfig,
}


class TextModel(nnx.Module):
  """embedding -> encoder -> pooling -> head.

  A document's scores do not depend on the documents it is batched with, nor on
  the length they are padded to.

  Attributes:
    embedding: (tokens_TB or features_TBD, dtype, rngs) -> x_TBD; None: the
      encoder reads tokens_TB.
    encoder: (x_TBD, real_TB, rngs) -> h_TBD, 0 at padding.
    pooling: (TokenFeatures, rngs) -> document_BD; None: the head reads tokens.
    head: scores labels.
    dtype: of activations and products; softmax, loss and sums stay float32, and
      parameters, but for label rows that are stored otherwise.
  """

  def __init__(
    self,
    embedding: nnx.Module | None,
    encoder: nnx.Module,
    pooling: nnx.Module | None,
    head: Head,
    *,
    dtype: jnp.dtype,
  ):
    self.embedding = embedding
    self.encoder = encoder
    self.pooling = pooling
    self.head = head
    self.dtype = jnp.dtype(dtype)

  def features(self, batch: Batch, rngs: nnx.Rngs | None = None) -> Any:
    """What the head reads of a batch on the context mesh.

    Args:
      batch: documents; rows that only fill it may have length 0.
      rngs: stream `dropout`; None: no dropout, as in judging.

    Returns:
      A pytree of arrays with documents first: what the head prepares of the
      encoded tokens, or where there is a pooling, of document_BD.
    """
    x_TBD = documents_second(_time_first(batch))
    real_TB = _real(len(x_TBD), batch)
    if self.embedding is not None:
      x_TBD = documents_second(self.embedding(x_TBD, self.dtype, rngs))
    h_TBD = self.encoder(x_TBD, real_TB, rngs)
    hidden_BTD = documents_second(h_TBD).swapaxes(0, 1)
    if batch.first_B is not None:
      hidden_BTD = unpack_documents(hidden_BTD, batch.first_B, batch.lengths_B)
    tokens = TokenFeatures(hidden_BTD, _encoded_lengths(batch))
    pooled = tokens if self.pooling is None else self.pooling(tokens, rngs)
    return self.head.prepare(pooled)

  def loss(
    self,
    batch: Batch,
    loss: ChunkLoss,
    rngs: nnx.Rngs | None = None,
    weights: LabelWeights | None = None,
  ) -> jax.Array:
    """float32 scalar: sum of the loss over labels and real documents."""
    return head_loss(
      self.head if rngs is None else self.head.thinned(rngs),
      self.features(batch, rngs),
      batch.positives_BP,
      batch.mask_B,
      loss,
      weights,
    )

  def fused_loss(
    self,
    batch: Batch,
    loss: ChunkLoss,
    rngs: nnx.Rngs | None,
    weights: LabelWeights | None,
    rows: RowStep,
  ) -> tuple[jax.Array, tuple[nnx.State, Slots]]:
    """The loss, and the head's rows and their slots after a step of them."""
    return fused_loss(
      self.head,
      self.features(batch, rngs),
      batch.positives_BP,
      batch.mask_B,
      loss,
      rows,
      weights,
    )

  def attention(self, batch: Batch, ids_BK: jax.Array) -> jax.Array:
    """alpha_BKT as attention_weights, of a head whose labels attend."""
    return attention_weights(self.head, self.features(batch), ids_BK)


def _time_first(batch: Batch) -> jax.Array:
  """Word ids [T, B], or by zone [T, B, Z]; or features_TBD."""
  if batch.features_BTD is not None:
    return jnp.moveaxis(batch.features_BTD, 1, 0)
  return jnp.moveaxis(batch.tokens_BT, -1, 0)


def _real(steps: int, batch: Batch) -> jax.Array:
  """Real tokens, bool [T, B], or by zone [T, B, Z]; padding is False.

  Where documents are packed, int32 [T, rows]: whose token it is.
  """
  if batch.segments_BT is not None:
    return documents_second(batch.segments_BT.T)
  lengths = batch.lengths_B
  return jnp.arange(steps).reshape(-1, *[1] * lengths.ndim) < lengths


def _encoded_lengths(batch: Batch) -> jax.Array:
  """int32 [B] of the encoder's output: tokens, or by zone the zones."""
  if batch.lengths_B.ndim == 1:
    return batch.lengths_B
  return (batch.lengths_B > 0).sum(axis=1, dtype=jnp.int32)


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
    ConfigError: a part is of another kind than its place.
  """
  for name, base in _PARTS.items():
    if not isinstance(part := getattr(config, name), base):
      raise ConfigError(f'no {name} is made from {part!r}')
  bias = None if label_priors is None else initial_biases(label_priors)
  none = np.zeros(n_labels, bool)
  unseen, hidden = (none if x is None else x for x in (unseen, hidden))
  embedding = config.embedding.build(vocab_size, rngs)
  dim = 0 if embedding is None else embedding.dim
  encoder = config.encoder.build(EncoderInputs(dim, dtype, architecture), rngs)
  pooling = config.pooling.build(encoder.dim, rngs)
  inputs = HeadInputs(
    dim=encoder.dim,
    n_labels=n_labels,
    bias_L=bias,
    seen_L=~(unseen | hidden),
    hidden_L=hidden,
    # Descriptors are of word vectors, or of the encoder's own.
    descriptor_dim=dim or encoder.dim,
  )
  head = config.head.build(inputs, rngs)
  return TextModel(embedding, encoder, pooling, head, dtype=dtype)


def smoothed_priors(train_counts: np.ndarray, n_train: int) -> np.ndarray:
  """float64 [L] label probabilities (n + 1/2) / (N + 1), never 0 nor 1.

  Args:
    train_counts: [L] training documents per label.
    n_train: N, training documents.
  """
  return (np.asarray(train_counts, np.float64) + 0.5) / (n_train + 1)


def initial_biases(priors: np.ndarray) -> np.ndarray:
  """float64 [L], logits of label probabilities, at which biases begin."""
  priors = np.asarray(priors, np.float64)
  if not np.all((priors > 0) & (priors < 1)):
    raise ValueError('label priors must lie strictly between 0 and 1')
  return np.log(priors) - np.log1p(-priors)
