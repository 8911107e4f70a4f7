"""Computes the attention of labels to tokens."""

from collections.abc import Mapping

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int32

from xjax.core.numerics import full_precision, product
from xjax.core.types import PAD
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.head import Head, TokenFeatures
from xjax.networks.heads.ova import scores

MASKED = -1e30  # finite, so that a row without any token gives no NaN


def token_mask(features: TokenFeatures) -> Float32[Array, 'B T']:
  """Returns 0 at a document's tokens and MASKED beyond them."""
  return jnp.where(features.real_BT, 0.0, MASKED)


def attend(
  hidden_BTD: Float[Array, 'B T D'],
  mask_BT: Float32[Array, 'B T'],
  attention_CD: Float[Array, 'C D'],
  output_CD: Float[Array, 'C D'] | None = None,
) -> Float32[Array, 'B C']:
  """Computes the logits of a chunk of labels, without the biases.

  The result is v_l . w_l. LabelAttention defines the symbols. mask_BT is that
  of token_mask, and label rows have the features' dtype. If the two rows of a
  label are the same, output_CD is None, which takes half of the products.
  """
  documents, tokens, dim = hidden_BTD.shape
  hidden_XD = hidden_BTD.reshape(documents * tokens, dim)
  shape = (len(attention_CD), documents, tokens)
  # Labels are the first axis of the arrays [C, B, T]. So sums over tokens read
  # memory in order, and the products need no transposed copies.
  value_CBT = score_CBT = scores(attention_CD, hidden_XD).reshape(shape)
  if output_CD is not None:
    value_CBT = scores(output_CD, hidden_XD).reshape(shape)
  score_CBT = score_CBT + mask_BT
  # The result does not depend on what is subtracted, so no gradient has to flow
  # through it.
  largest_CB1 = lax.stop_gradient(score_CBT.max(axis=2, keepdims=True))
  weight_CBT = jnp.exp(score_CBT - largest_CB1)
  # The weighted sum over tokens is divided by the sum of the weights. Dividing
  # each weight first would take more divisions.
  return ((weight_CBT * value_CBT).sum(axis=2) / weight_CBT.sum(axis=2)).T


class AttentionHead(Head):
  """Scores labels that attend to the tokens of a document.

  The attention weights of a label are the softmax of hidden_t . query_l over a
  document's tokens.
  """

  def queries(self, chunk: Mapping[str, jax.Array]) -> Float[Array, 'C D']:
    """Returns the vectors with which labels, in any order, attend to tokens."""
    raise NotImplementedError


def attended_values(
  features: TokenFeatures, queries_CD: Float[Array, 'C D']
) -> Float32[Array, 'B C U']:
  """Returns values_BTU, summed with the attention weights of labels."""
  hidden_BTD = features.hidden_BTD
  dtype = hidden_BTD.dtype
  score_BTC = product(hidden_BTD, queries_CD.astype(dtype), (2, 1))
  score_BTC += token_mask(features)[:, :, None]
  alpha_BTC = jax.nn.softmax(score_BTC, axis=1).astype(dtype)
  return product(alpha_BTC, features.values_BTU, (1, 1), shared=1)


def attention_weights(
  head: AttentionHead, features: TokenFeatures, ids_BK: Int32[Array, 'B K']
) -> Float32[Array, 'B K T']:
  """Returns the attention weights with which the given labels are scored.

  There is no [B, L, T] array. The function runs under jit on the context mesh.
  The weights sum to 1 over a document's tokens, and are 0 for ids that are PAD.
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
