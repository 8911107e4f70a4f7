"""Defines zero-shot attention, which scores labels by descriptors only."""

from collections.abc import Mapping
import dataclasses

from flax import nnx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32

from xjax.core.mesh import padded_labels
from xjax.core.numerics import product
from xjax.networks.encoders.layers import dense
from xjax.networks.heads.attend import attend, attended_values, token_mask
from xjax.networks.heads.head import (
  DescriptorHeadConfig,
  Frozen,
  HeadInputs,
  TokenFeatures,
  label_rows,
  mean_bias,
  padded_row,
)
from xjax.networks.label_graph import DescriptorHead, Joining


@dataclasses.dataclass
class ZeroShotConfig(DescriptorHeadConfig):
  """Chooses label attention that uses only descriptors (ZERO-BIGRU-LWAN)."""

  trains_rows = False
  concatenates = True

  def build(self, inputs: HeadInputs, rngs: nnx.Rngs) -> 'ZeroShot':
    head = ZeroShot(self, inputs, rngs=rngs)
    return self.graph.attach(head, inputs, rngs)


class ZeroShot(DescriptorHead):
  """Scores labels by descriptors only.

  This is the head of ZERO-CNN-LWAN and ZERO-BIGRU-LWAN (Rios & Kavuluru 2018,
  Section 3; Chalkidis et al. 2019, Section 4). Let e_l be the frozen embedding
  of a label's descriptor, and let h_t be the features of token t. The head
  computes

    k_t = tanh(W h_t + b)
    alpha_tl = softmax over tokens of k_t . e_l
    v_l = sum_t alpha_tl k_t
    logit_l = v_l . e_l + c

  No label has parameters of its own. The loss leaves out labels without
  training documents.

  With a graph of labels (label_graph.LabelGraph), each label also has a vector
  g_l. There are two kinds of logits (Chalkidis et al. 2020, "add" and "concat"
  in their terms):

    Joining.ADD:    logit_l = v_l . (e_l + g_l) + c
    Joining.CONCAT: logit_l = tanh(W_o x_l + b_o) . [e_l ; g_l] + c,
                    where x_l = sum_t alpha_tl h_t

  Attention is that of e_l. With graph_queries, it is that of e_l + g_l.
  """

  # W_o, [D, 2 E], and b_o, only with Joining.CONCAT.
  graph_kernel: nnx.Param | None = None
  graph_bias: nnx.Param | None = None

  def __init__(
    self, config: ZeroShotConfig, inputs: HeadInputs, *, rngs: nnx.Rngs
  ):
    # The descriptors are zero until they are computed.
    self.n_labels, self.chunk = inputs.n_labels, config.chunk
    rows = padded_labels(inputs.n_labels)
    dim, size = inputs.dim, inputs.descriptor_dim
    self.descriptors = label_rows(jnp.zeros((rows, size)), Frozen)
    self.seen = label_rows(padded_row(inputs.seen_L, rows), Frozen)
    glorot = nnx.initializers.glorot_uniform()
    self.kernel = nnx.Param(glorot(rngs.params(), (dim, size)))
    self.bias = nnx.Param(jnp.zeros(size))
    # Rare labels need very negative logits. But v_l . e_l is at least minus the
    # sum of |e_l|, because each number in v_l is between -1 and 1, and training
    # cannot change e_l. With c, logits can be lower.
    # This head hides no labels for calibration, so training uses all labels
    # with training documents.
    self.offset = nnx.Param(jnp.float32(mean_bias(inputs)))

  def start_graph(
    self, joining: Joining, dim: int, size: int, rngs: nnx.Rngs
  ) -> None:
    if joining is Joining.CONCAT:
      glorot = nnx.initializers.glorot_uniform()
      self.graph_kernel = nnx.Param(glorot(rngs.params(), (dim, 2 * size)))
      self.graph_bias = nnx.Param(jnp.zeros(2 * size))

  def prepare(self, features: TokenFeatures) -> TokenFeatures:
    """Computes the vectors k_BTE of tokens, in the space of the descriptors."""
    # The vectors are 0 at padding. So all logits of a document without tokens
    # are c (with Joining.CONCAT, if b_o is 0).
    hidden_BTD = features.hidden_BTD
    keys_BTE = jnp.tanh(dense(hidden_BTD, self.kernel[...], self.bias[...]))
    keys_BTE = jnp.where(features.real_BT[:, :, None], keys_BTE, 0)
    values_BTD = None if self.graph_kernel is None else hidden_BTD
    return TokenFeatures(keys_BTE, features.lengths_B, values_BTU=values_BTD)

  def logits(
    self, features: TokenFeatures, chunk: Mapping[str, jax.Array]
  ) -> Float32[Array, 'B C']:
    keys_BTE = features.hidden_BTD
    tokens = keys_BTE, token_mask(features)
    query_CE = self.queries(chunk).astype(keys_BTE.dtype)
    if self.graph_kernel is not None:
      return self._side_by_side(features, chunk) + self.offset[...]
    if 'graph_rows' not in chunk or self.graph_queries:
      return attend(*tokens, query_CE) + self.offset[...]
    # Chalkidis et al. 2020 have v_l = sum_t alpha_tl h_t here as well. This
    # head keeps the sum of k_t, as without a graph, because h_t has size D and
    # e_l + g_l has size E: their product exists only if D = E.
    output_CE = _with_graph(chunk).astype(keys_BTE.dtype)
    return attend(*tokens, query_CE, output_CE) + self.offset[...]

  def _side_by_side(
    self, features: TokenFeatures, chunk: Mapping[str, jax.Array]
  ) -> Float32[Array, 'B C']:
    dtype = features.hidden_BTD.dtype
    x_BCD = attended_values(features, self.queries(chunk)).astype(dtype)
    kernel_DF = self.graph_kernel[...].astype(dtype)
    x_BCF = jnp.tanh(product(x_BCD, kernel_DF, (2, 0)) + self.graph_bias[...])
    rows_CF = jnp.concatenate(
      [jax.lax.stop_gradient(chunk['descriptors']), chunk['graph_rows']], axis=1
    )
    return (x_BCF * rows_CF).sum(axis=2)

  def queries(self, chunk: Mapping[str, jax.Array]) -> Float32[Array, 'C E']:
    if self.graph_queries:
      return _with_graph(chunk)
    return jax.lax.stop_gradient(chunk['descriptors'])

  def learns(self, chunk: Mapping[str, jax.Array]) -> jax.Array:
    return chunk['seen'] > 0


def _with_graph(chunk: Mapping[str, jax.Array]) -> Float32[Array, 'C E']:
  """Returns the sums e + g of a chunk of labels."""
  return jax.lax.stop_gradient(chunk['descriptors']) + chunk['graph_rows']
