"""Computes the attention weights of a few labels over a document's tokens."""

from collections.abc import Mapping

from flax import nnx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int32

from xjax.core.numerics import full_precision
from xjax.core.types import PAD
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.head import Head, TokenFeatures


class AttentionHead(Head):
  """Scores labels that attend to the tokens of a document.

  The head reads TokenFeatures. The attention weights of a label are the softmax
  of hidden_t . query_l over a document's tokens. `logits` multiplies the
  tokens' features by the attention weights.
  """

  def queries(self, chunk: Mapping[str, jax.Array]) -> Float[Array, 'C D']:
    """Returns the vectors with which labels, in any order, attend to tokens."""
    raise NotImplementedError


def attention_weights(
  head: AttentionHead, features: TokenFeatures, ids_BK: Int32[Array, 'B K']
) -> Float32[Array, 'B K T']:
  """Returns the attention weights with which the given labels are scored.

  The function gathers only the rows of the given labels from their shards, and
  needs no [B, L, T] array. It runs under jit on the context mesh. The weights
  sum to 1 over a document's tokens, and are 0 for ids that are PAD.
  """
  graphdef, rows, shared = split_head(head)
  ids_X = jnp.where(ids_BK == PAD, 0, ids_BK).reshape(-1)
  rows = jax.tree.map(lambda x: jnp.take(x, ids_X, axis=0), rows)
  label_head = nnx.merge(graphdef, rows, shared)
  queries_XD = label_head.queries(nnx.to_pure_dict(rows))
  hidden_BTD = features.hidden_BTD
  score_BKT = jnp.einsum(
    'BTD,BKD->BKT',
    hidden_BTD,
    # `logits` also rounds the queries to the features' dtype.
    queries_XD.astype(hidden_BTD.dtype).reshape(*ids_BK.shape, -1),
    precision=full_precision(hidden_BTD.dtype),
    preferred_element_type=jnp.float32,
  )
  # A row that only fills the batch may have no token. Its weights are all 0.
  valid_BKT = features.real_BT[:, None] & (ids_BK != PAD)[:, :, None]
  return jax.nn.softmax(score_BKT, axis=2, where=valid_BKT)
