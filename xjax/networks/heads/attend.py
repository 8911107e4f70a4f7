"""Computes the attention of labels to tokens, with gradients by hand."""

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

MASKED = -1e30  # finite, so that a row without any token gives no NaN


def token_mask(features: TokenFeatures) -> Float32[Array, 'B T']:
  """Returns 0 at a document's tokens and MASKED beyond them."""
  return jnp.where(features.real_BT, 0.0, MASKED)


@jax.custom_vjp
def attend(
  hidden_BTD: Float[Array, 'B T D'],
  mask_BT: Float32[Array, 'B T'],
  attention_CD: Float[Array, 'C D'],
  output_CD: Float[Array, 'C D'],
) -> Float32[Array, 'B C']:
  """Computes the logits of a chunk of labels, without the biases.

  The result is v_l . w_l. LabelAttention defines the symbols. mask_BT is that
  of token_mask, and label rows have the features' dtype.
  """
  return _attend(hidden_BTD, mask_BT, attention_CD, output_CD)[0]


def _attend(hidden_BTD, mask_BT, attention_CD, output_CD):
  documents, tokens, dim = hidden_BTD.shape
  hidden_XD = hidden_BTD.reshape(documents * tokens, dim)
  shape = (len(attention_CD), documents, tokens)
  # Labels are the first axis of the arrays [C, B, T]. So sums over tokens read
  # memory in order, and the products need no transposed copies.
  score_CBT = product(attention_CD, hidden_XD, (1, 1)).reshape(shape)
  value_CBT = product(output_CD, hidden_XD, (1, 1)).reshape(shape)
  score_CBT += mask_BT
  # The weighted sum over tokens is divided by the sum of the weights. Dividing
  # each weight first would take more divisions.
  weight_CBT = jnp.exp(score_CBT - score_CBT.max(axis=2, keepdims=True))
  total_CB = weight_CBT.sum(axis=2)
  attended_CB = (weight_CBT * value_CBT).sum(axis=2) / total_CB
  saved = hidden_XD, attention_CD, output_CD
  return attended_CB.T, (*saved, value_CBT, weight_CBT, total_CB, attended_CB)


def _attend_backward(saved: tuple, cotangent_BC: jax.Array) -> tuple:
  hidden_XD, attention_CD, output_CD = saved[:3]
  value_CBT, weight_CBT, total_CB, attended_CB = saved[3:]
  shape = (len(attention_CD), len(hidden_XD))
  dtype = hidden_XD.dtype
  # Let p = dz alpha, where dz is the gradient of the result. The gradient of
  # h_t . w_l is p, and that of h_t . u_l is p (h_t . w_l - v_l . w_l). So this
  # pass needs one pass over arrays [C, B, T] and four products, each as large
  # as one of the two of the forward pass.
  dvalue_CBT = weight_CBT * (cotangent_BC.T / total_CB)[:, :, None]
  dscore_CBT = dvalue_CBT * (value_CBT - attended_CB[:, :, None])
  # Without the barrier, XLA computes these arrays again for each product that
  # reads them.
  dvalue_CX, dscore_CX = lax.optimization_barrier(
    (
      dvalue_CBT.astype(dtype).reshape(shape),
      dscore_CBT.astype(dtype).reshape(shape),
    )
  )
  dhidden_XD = product(dscore_CX, attention_CD, (0, 0))
  dhidden_XD += product(dvalue_CX, output_CD, (0, 0))
  return (
    dhidden_XD.astype(dtype).reshape(*value_CBT.shape[1:], -1),
    None,
    product(dscore_CX, hidden_XD, (1, 0)).astype(dtype),
    product(dvalue_CX, hidden_XD, (1, 0)).astype(dtype),
  )


attend.defvjp(_attend, _attend_backward)


@jax.custom_vjp
def attend_with_one_row(
  hidden_BTD: Float[Array, 'B T D'],
  mask_BT: Float32[Array, 'B T'],
  rows_CD: Float[Array, 'C D'],
) -> Float32[Array, 'B C']:
  """Computes `attend` for labels whose two rows are the same.

  This takes half of the products of `attend`. The result is
  v = sum_t alpha_t s_t, where s_t = h_t . e_l, and alpha is the softmax of s
  over the tokens. Let dz be the gradient of the result. Then the gradient of
  s_t is dz alpha_t (1 + s_t - v).
  """
  return _attend_with_one_row(hidden_BTD, mask_BT, rows_CD)[0]


def _attend_with_one_row(hidden_BTD, mask_BT, rows_CD):
  documents, tokens, dim = hidden_BTD.shape
  hidden_XD = hidden_BTD.reshape(documents * tokens, dim)
  shape = (len(rows_CD), documents, tokens)
  score_CBT = product(rows_CD, hidden_XD, (1, 1)).reshape(shape)
  masked_CBT = score_CBT + mask_BT
  weight_CBT = jnp.exp(masked_CBT - masked_CBT.max(axis=2, keepdims=True))
  total_CB = weight_CBT.sum(axis=2)
  attended_CB = (weight_CBT * score_CBT).sum(axis=2) / total_CB
  saved = hidden_XD, rows_CD, score_CBT, weight_CBT, total_CB, attended_CB
  return attended_CB.T, saved


def _attend_with_one_row_backward(saved, cotangent_BC) -> tuple:
  hidden_XD, rows_CD, score_CBT, weight_CBT, total_CB, attended_CB = saved
  dtype = hidden_XD.dtype
  dscore_CBT = weight_CBT * (cotangent_BC.T / total_CB)[:, :, None]
  dscore_CBT *= 1 + score_CBT - attended_CB[:, :, None]
  dscore_CX = dscore_CBT.astype(dtype).reshape(len(rows_CD), -1)
  dhidden_XD = product(dscore_CX, rows_CD, (0, 0)).astype(dtype)
  return (
    dhidden_XD.reshape(*score_CBT.shape[1:], -1),
    None,
    product(dscore_CX, hidden_XD, (1, 0)).astype(dtype),
  )


attend_with_one_row.defvjp(_attend_with_one_row, _attend_with_one_row_backward)


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
