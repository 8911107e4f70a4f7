"""Defines label-wise attention (LWAN), where each label attends to tokens."""

from collections.abc import Mapping
import dataclasses

from flax import nnx
import jax
from jaxtyping import Array, Float32

from xjax.core.mesh import padded_labels
from xjax.networks.heads.attend import AttentionHead, attend, token_mask
from xjax.networks.heads.head import (
  HeadConfig,
  HeadInputs,
  TokenFeatures,
  label_rows,
  normal,
  padded_row,
)


@dataclasses.dataclass
class LabelAttentionConfig(HeadConfig):
  """Chooses a head with label-wise attention (LWAN)."""

  attends = True

  def build(self, inputs: HeadInputs, rngs: nnx.Rngs) -> 'LabelAttention':
    return LabelAttention(self, inputs, rngs=rngs)


class LabelAttention(AttentionHead):
  """Scores each label by its own attention to the tokens, as BIGRU-LWAN does.

  See Mullenbach et al. 2018 and Chalkidis et al. 2019, Section 4. The logit of
  a label l is computed from the features h_t of all tokens t of a document:

    alpha_tl = softmax over tokens of h_t . u_l
    v_l = sum_t alpha_tl h_t
    logit_l = v_l . w_l + b_l

  `attention` holds u, and `output` holds w.
  """

  def __init__(
    self, config: LabelAttentionConfig, inputs: HeadInputs, *, rngs: nnx.Rngs
  ):
    self.n_labels, self.chunk = inputs.n_labels, config.chunk
    rows, dim = padded_labels(inputs.n_labels), inputs.dim
    self.attention = label_rows(normal(rngs, (rows, dim), dim**-0.5))
    self.output = label_rows(normal(rngs, (rows, dim), dim**-0.5))
    self.bias = label_rows(padded_row(inputs.bias_L, rows))

  def logits(
    self, features: TokenFeatures, chunk: Mapping[str, jax.Array]
  ) -> Float32[Array, 'B C']:
    hidden_BTD = features.hidden_BTD
    # v_l . w_l = sum_t alpha_tl (h_t . w_l) takes two products with [D, C]
    # arrays and a weighted sum over tokens, and no [B, C, D] array.
    attended_BC = attend(
      hidden_BTD,
      token_mask(features),
      self.queries(chunk).astype(hidden_BTD.dtype),
      chunk['output'].astype(hidden_BTD.dtype),
    )
    return attended_BC + chunk['bias']

  def queries(self, chunk: Mapping[str, jax.Array]) -> Float32[Array, 'C D']:
    return chunk['attention']
