"""Label-wise attention (LWAN): every label attends to a document by itself."""

from collections.abc import Mapping

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np

from xjax.core.mesh import LABEL, padded_labels
from xjax.heads.contract import TokenFeatures

MASKED = -1e30  # finite: a row of no tokens at all must not make NaN


class LabelAttention(nnx.Module):
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
  ) -> jax.Array:
    """logits_BC of a chunk of label rows, by masked attention over tokens."""
    hidden_BTD = features.hidden_BTD
    attention_CD, output_CD = (
      chunk[name].astype(hidden_BTD.dtype) for name in ('attention', 'output')
    )
    product = 'BTD,CD->BTC'
    score_BTC = jnp.einsum(
      product, hidden_BTD, attention_CD, preferred_element_type=jnp.float32
    )
    value_BTC = jnp.einsum(
      product, hidden_BTD, output_CD, preferred_element_type=jnp.float32
    )
    tokens_T = jnp.arange(hidden_BTD.shape[1])
    real_BT = tokens_T < features.lengths_B[:, None]
    score_BTC += jnp.where(real_BT, 0.0, MASKED)[:, :, None]
    alpha_BTC = jax.nn.softmax(score_BTC, axis=1)
    return (alpha_BTC * value_BTC).sum(axis=1) + chunk['bias']
