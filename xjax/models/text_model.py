"""A document in, scores of labels out: embedding, encoder, pooling, head."""

from collections.abc import Sequence

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from xjax.core.mesh import DATA
from xjax.core.types import Batch
from xjax.heads.contract import Head, TokenFeatures
from xjax.heads.streaming import head_loss
from xjax.heads.topk import head_topk
from xjax.losses.contract import ChunkLoss


class TextModel(nnx.Module):
  """embedding -> encoder -> pooling -> head.

  A document's scores do not depend on the documents it is batched with, nor on
  the length they are padded to.

  Attributes:
    embedding: (tokens_TB, dtype, rngs) -> x_TBD.
    encoder: (x_TBD, real_TB, rngs) -> h_TBD, 0 at padding.
    pooling: TokenFeatures -> document_BD; None: the head reads tokens.
    head: scores labels.
    dtype: of activations and products; parameters, softmax, loss and sums stay
      float32.
  """

  def __init__(
    self,
    embedding: nnx.Module,
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

  def features(
    self, batch: Batch, rngs: nnx.Rngs | None = None
  ) -> TokenFeatures | jax.Array:
    """What the head reads of a batch on the context mesh.

    Args:
      batch: documents; rows that only fill it may have length 0.
      rngs: stream `dropout`; None: no dropout, as in judging.

    Returns:
      Encoded tokens, 0 beyond a document's length, or where there is a pooling
      document_BD.
    """
    tokens_TB = _over_data(batch.tokens_BT.T)
    steps_T = jnp.arange(tokens_TB.shape[0])
    real_TB = steps_T[:, None] < batch.lengths_B
    x_TBD = self.embedding(tokens_TB, self.dtype, rngs)
    h_TBD = self.encoder(_over_data(x_TBD), real_TB, rngs)
    hidden_BTD = _over_data(h_TBD).transpose(1, 0, 2)
    tokens = TokenFeatures(hidden_BTD, batch.lengths_B)
    return tokens if self.pooling is None else self.pooling(tokens)

  def loss(
    self, batch: Batch, loss: ChunkLoss, rngs: nnx.Rngs | None = None
  ) -> jax.Array:
    """float32 scalar: sum of the loss over labels and real documents."""
    return head_loss(
      self.head,
      self.features(batch, rngs),
      batch.positives_BP,
      batch.mask_B,
      loss,
    )

  def topk(
    self,
    batch: Batch,
    k: int,
    weights: jax.Array | None = None,
    slices: Sequence[jax.Array] = (),
    allowed: jax.Array | None = None,
  ) -> tuple[jax.Array, jax.Array]:
    """(ids_GBK, scores_GBK) as in core.types.Scorer."""
    return head_topk(
      self.head,
      self.features(batch),
      k,
      weights=weights,
      slices=slices,
      allowed=allowed,
    )


def _over_data(x_TB: jax.Array) -> jax.Array:
  """Documents, the second axis, over the mesh's data axis."""
  return lax.with_sharding_constraint(x_TB, P(None, DATA))
