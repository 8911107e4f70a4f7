"""Label-wise attention (LWAN): every label attends to a document by itself."""

from collections.abc import Mapping

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32
import numpy as np

from xjax.core.mesh import LABEL, padded_labels
from xjax.heads.attention_weights import AttentionHead
from xjax.heads.contract import TokenFeatures
from xjax.heads.precision import full_precision

MASKED = -1e30  # finite: a row of no tokens at all must not make NaN


class LabelAttention(AttentionHead):
  """BIGRU-LWAN's head (Mullenbach et al. 2018; Chalkidis et al. 2019, Sec. 4).

  a_tl = h_t . u_l; alpha = softmax of a over the document's tokens;
  v_l = sum_t alpha_tl h_t; logit_l = v_l . w_l + b_l. Since v_l . w_l is
  sum_t alpha_tl (h_t . w_l), two products with [D, C] and a weighted sum over
  tokens are enough, and no [B, C, D] array is made.

  Attributes:
    attention: u, float32 [L, D].
    output: w, float32 [L, D].
    bias: b, float32 [L].
  """

  def __init__(
    self,
    n_labels: int,
    dim: int,
    *,
    chunk: int,
    bias: np.ndarray | None = None,
    rngs: nnx.Rngs,
  ):
    """Random rows of about unit length.

    Args:
      n_labels: labels; rows are padded to a multiple that shards evenly.
      dim: size D of the token features.
      chunk: labels scored at a time.
      bias: [L] first output biases; None: zeros.
      rngs: stream `params`.
    """
    self.n_labels = n_labels
    self.chunk = chunk
    rows = padded_labels(n_labels)
    normal = nnx.initializers.normal(dim**-0.5)
    row_sharding = (LABEL, None)
    self.attention = nnx.Param(
      normal(rngs.params(), (rows, dim)), out_sharding=row_sharding
    )
    self.output = nnx.Param(
      normal(rngs.params(), (rows, dim)), out_sharding=row_sharding
    )
    first = np.zeros(rows, np.float32)
    if bias is not None:
      first[:n_labels] = bias
    self.bias = nnx.Param(jnp.asarray(first), out_sharding=(LABEL,))

  def logits(
    self, features: TokenFeatures, chunk: Mapping[str, jax.Array]
  ) -> Float32[Array, 'B C']:
    """logits_BC of a chunk of label rows, by masked attention over tokens."""
    hidden_BTD = features.hidden_BTD
    attended_BC = attend(
      hidden_BTD,
      token_mask(features),
      self.queries(chunk).astype(hidden_BTD.dtype),
      chunk['output'].astype(hidden_BTD.dtype),
    )
    return attended_BC + chunk['bias']

  def queries(self, chunk: Mapping[str, jax.Array]) -> Float32[Array, 'C D']:
    """u_CD."""
    return chunk['attention']


def token_mask(features: TokenFeatures) -> Float32[Array, 'B T']:
  """0 at a document's tokens and MASKED beyond them."""
  return jnp.where(features.real_BT, 0.0, MASKED)


@jax.custom_vjp
def attend(
  hidden_BTD: Float[Array, 'B T D'],
  mask_BT: Float32[Array, 'B T'],
  attention_CD: Float[Array, 'C D'],
  output_CD: Float[Array, 'C D'],
) -> Float32[Array, 'B C']:
  """v_l . w_l for a chunk of labels.

  The gradient is written out: with p = dz alpha, d(h_t . w_l) = p and
  d(h_t . u_l) = p (h_t . w_l - v_l . w_l), so four products of the same size as
  the forward's two and one pass over [C, B, T] make all of it. Labels come
  first in those arrays: sums over tokens run along memory, and the products
  need no transposed copies of them.

  Args:
    hidden_BTD: token features.
    mask_BT: float32, 0 at tokens and MASKED beyond them.
    attention_CD, output_CD: label rows, in the features' dtype.

  Returns:
    float32 [B, C].
  """
  return _attend(hidden_BTD, mask_BT, attention_CD, output_CD)[0]


def _attend(
  hidden_BTD: jax.Array,
  mask_BT: jax.Array,
  attention_CD: jax.Array,
  output_CD: jax.Array,
) -> tuple[jax.Array, tuple]:
  documents, tokens, dim = hidden_BTD.shape
  hidden_XD = hidden_BTD.reshape(documents * tokens, dim)
  shape = (len(attention_CD), documents, tokens)
  score_CBT = _product(attention_CD, hidden_XD, (1, 1)).reshape(shape)
  value_CBT = _product(output_CD, hidden_XD, (1, 1)).reshape(shape)
  score_CBT += mask_BT
  # exp(score - max), whose sum divides only what was summed over tokens.
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
  dvalue_CBT = weight_CBT * (cotangent_BC.T / total_CB)[:, :, None]
  dscore_CBT = dvalue_CBT * (value_CBT - attended_CB[:, :, None])
  # Without the barrier these are made again for each product that reads them.
  dvalue_CX, dscore_CX = lax.optimization_barrier(
    (
      dvalue_CBT.astype(dtype).reshape(shape),
      dscore_CBT.astype(dtype).reshape(shape),
    )
  )
  dhidden_XD = _product(dscore_CX, attention_CD, (0, 0))
  dhidden_XD += _product(dvalue_CX, output_CD, (0, 0))
  return (
    dhidden_XD.astype(dtype).reshape(*value_CBT.shape[1:], -1),
    None,
    _product(dscore_CX, hidden_XD, (1, 0)).astype(dtype),
    _product(dvalue_CX, hidden_XD, (1, 0)).astype(dtype),
  )


attend.defvjp(_attend, _attend_backward)


def _product(a: jax.Array, b: jax.Array, axes: tuple[int, int]) -> jax.Array:
  """Contracts one axis of each matrix, summed in float32."""
  return lax.dot_general(
    a,
    b,
    (((axes[0],), (axes[1],)), ((), ())),
    precision=full_precision(a.dtype),
    preferred_element_type=jnp.float32,
  )
