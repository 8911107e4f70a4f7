"""A document in, scores of labels out: embedding, encoder, pooling, head."""

from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp

from xjax.core.mesh import documents_second
from xjax.core.types import Batch
from xjax.losses.contract import ChunkLoss, LabelWeights
from xjax.score.encoders.unpacking import unpacked
from xjax.score.heads.attention_weights import attention_weights
from xjax.score.heads.contract import Head, TokenFeatures
from xjax.score.heads.fused import RowStep, fused_loss
from xjax.score.heads.streaming import head_loss
from xjax.score.heads.update import Slots


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
      hidden_BTD = unpacked(hidden_BTD, batch.first_B, batch.lengths_B)
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
