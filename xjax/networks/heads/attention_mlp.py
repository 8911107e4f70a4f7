"""Defines the head of AttentionXML: attention, then an MLP for all labels."""

from collections.abc import Mapping
import dataclasses

from flax import nnx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32
import numpy as np

from xjax.core.config_part import AT_LEAST_1, Bound, field
from xjax.core.mesh import padded_labels
from xjax.core.numerics import product
from xjax.networks.encoders.layers import dense
from xjax.networks.heads.attend import AttentionHead, attended_values
from xjax.networks.heads.head import (
  HeadConfig,
  HeadInputs,
  TokenFeatures,
  label_rows,
)

_SIZES = Bound(
  lambda sizes: sizes and min(sizes) >= 1, 'one or more sizes >= 1'
)


@dataclasses.dataclass
class AttentionMLPConfig(HeadConfig):
  """Chooses label-wise attention, then an MLP that all labels share.

  This is the head of AttentionXML.
  """

  attends = True
  row_biases = False

  chunk: int = field(
    64,
    'Number of labels that are scored at a time. A smaller number takes less '
    'memory. The number never changes results. A chunk needs an array of '
    'documents x chunk x mlp[0].',
    AT_LEAST_1,
  )
  mlp: tuple[int, ...] = field(
    (256,), 'Sizes of the hidden layers of the MLP.', _SIZES
  )

  def build(self, inputs: HeadInputs, rngs: nnx.Rngs) -> 'AttentionMLP':
    return AttentionMLP(self, inputs, rngs=rngs)


class AttentionMLP(AttentionHead):
  """Scores each label by its attention to the tokens, then by a shared MLP.

  See You et al. 2019 (AttentionXML). The logit of a label l is computed from
  the features h_t of all tokens t of a document:

    alpha_tl = softmax over tokens of h_t . a_l
    v_l = sum_t alpha_tl h_t
    logit_l = MLP(v_l)

  The MLP has ReLU layers, then a layer with one output. Only a_l belongs to the
  label, so in a document of one token, all labels have the same logit.
  """

  def __init__(
    self, config: AttentionMLPConfig, inputs: HeadInputs, *, rngs: nnx.Rngs
  ):
    self.n_labels, self.chunk = inputs.n_labels, config.chunk
    n_labels, dim = inputs.n_labels, inputs.dim
    # Glorot's rule, without the padding rows.
    limit = (6 / (n_labels + dim)) ** 0.5
    rows = jax.random.uniform(
      rngs.params(), (padded_labels(n_labels), dim), jnp.float32, -limit, limit
    )
    self.attention = label_rows(rows)
    glorot = nnx.initializers.glorot_uniform()
    sizes = (dim, *config.mlp, 1)
    self.kernels = nnx.List(
      nnx.Param(glorot(rngs.params(), shape))
      for shape in zip(sizes[:-1], sizes[1:])
    )
    self.biases = nnx.List(nnx.Param(jnp.zeros(size)) for size in sizes[1:])
    if inputs.bias_L is not None:
      # No other score that is the same for all labels has a lower loss.
      mean = (1 / (1 + np.exp(-np.asarray(inputs.bias_L, np.float64)))).mean()
      self.biases[-1][...] += np.log(mean) - np.log1p(-mean)

  def prepare(self, features: TokenFeatures) -> TokenFeatures:
    """Computes the products of tokens with the MLP's first kernel."""
    hidden_BTD = features.hidden_BTD
    # v_l W_1 = sum_t alpha_tl (h_t W_1), where W_1 is the MLP's first kernel.
    # So h_t W_1 is computed once for all labels, and v_l is not needed. With U
    # units in the first layer, a label and a document need T (D + U)
    # multiplications, instead of (2 T + U) D.
    values_BTU = dense(hidden_BTD, self.kernels[0][...])
    return TokenFeatures(hidden_BTD, features.lengths_B, values_BTU=values_BTU)

  def logits(
    self, features: TokenFeatures, chunk: Mapping[str, jax.Array]
  ) -> Float32[Array, 'B C']:
    dtype = features.hidden_BTD.dtype
    x = attended_values(features, self.queries(chunk))
    for kernel, bias in zip(self.kernels[1:], self.biases[:-1]):
      x = jax.nn.relu(x + bias[...]).astype(dtype)
      x = product(x, kernel[...].astype(dtype), (2, 0))
    return x[:, :, 0] + self.biases[-1][...]

  def queries(self, chunk: Mapping[str, jax.Array]) -> Float32[Array, 'C D']:
    return chunk['attention']
