"""Defines the heads that score labels by their descriptors."""

from collections.abc import Iterator, Mapping
import dataclasses
from typing import Any

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Float32
import numpy as np

from xjax.core.config_part import AT_LEAST_0, RATE, field, kinds_that
from xjax.core.mesh import padded_labels
from xjax.core.numerics import full_precision, product
from xjax.core.rng import host_generator
from xjax.data.labels import draw_labels
from xjax.data.tokens_config import TokensConfig
from xjax.networks.encoders.encoder import EncoderConfig
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
from xjax.networks.label_graph import DescriptorHead, Joining, unit_rows


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


HIDDEN_RANGE = (1, 20)  # numbers of training documents of hidden labels


@dataclasses.dataclass
class UnifiedConfig(DescriptorHeadConfig):
  """Chooses label attention that uses descriptors and label rows.

  Every label is scored by its descriptor. A seen label also has its own row.
  """

  row_dropout: float = field(
    0.3, 'Share of the labels whose rows are left out in a training step.', RATE
  )
  hidden_labels: int = field(
    50,
    'Number of rare labels that training treats as unseen. From these labels, '
    'training learns how the scores of unseen labels compare with the scores '
    'of seen labels. Nothing else is learnt from these labels.',
    AT_LEAST_0,
  )
  aligned: bool = field(
    False,
    'Whether the vectors of descriptors and of tokens are in the same space '
    'from the start, because one pretrained encoder computes all of them. If '
    'True, the initial query and output vectors of labels are the vectors of '
    'the descriptors. If False, the initial vectors are random projections of '
    'the vectors of the descriptors.',
  )

  def build(self, inputs: HeadInputs, rngs: nnx.Rngs) -> 'Unified':
    head = Unified(self, inputs, rngs=rngs)
    return self.graph.attach(head, inputs, rngs)

  def draw_hidden(self, counts_L: np.ndarray, seed: int) -> np.ndarray:
    """Draws the labels that training treats as unseen, bool [L].

    They calibrate scores. Only labels with few training documents are drawn, so
    that training loses little. These rare labels are ranked by frequency, and
    the drawn labels are spread evenly over this ranking.
    """
    hidden_L = super().draw_hidden(counts_L, seed)
    if self.hidden_labels:
      rng = host_generator(seed, 'hidden_labels')
      n, path = self.hidden_labels, 'model.head.hidden_labels'
      hidden_L[draw_labels(counts_L, n, HIDDEN_RANGE, rng, path)] = True
    return hidden_L

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    encoder = config.model.encoder
    same_space = encoder.keeps_space and config.data.tokens.dense
    if self.aligned and not (encoder.pretrained or same_space):
      encoders = kinds_that('pretrained', EncoderConfig)
      yield (
        f'{path}.aligned=True: descriptors and tokens must be in one space. '
        f'Either set config.model.encoder={encoders}, or set both '
        f'config.model.encoder={kinds_that("keeps_space", EncoderConfig)} and '
        f'config.data.tokens={kinds_that("dense", TokensConfig)}'
      )


class Unified(DescriptorHead):
  """Scores labels by attention, with label rows and with descriptors.

  The head computes logits like LabelAttention, but u_l, w_l and b_l are sums.
  Only the first term of each sum needs the label's own row:

    u_l = m_l a_l + P e_l
    w_l = m_l o_l + Q e_l
    b_l = m_l c_l + q . e_l + r

  Here e_l is the frozen embedding of the label's descriptor, scaled to length
  1. The label's own rows are a_l, o_l and c_l. The factor m_l is 1 for labels
  that are seen in training and not hidden for calibration, else 0.

  An unseen label is scored only by its descriptor. Let z be the logit of an
  unseen label by the equations above. The final logit of this label is s z + t,
  which can be compared with the logits of seen labels. The parameters s and t
  are learnt on the hidden labels, which train no other parameter (calibrated
  stacking: Chao et al. 2016; Liu et al. 2018).

  Each training step leaves out the rows of some randomly chosen seen labels. So
  P, Q, q and r learn to score labels without rows.

  With a graph of labels (label_graph.LabelGraph), e_l + R g_l takes the place
  of e_l in w_l and b_l, where g_l is the graph's vector of the label. In u_l,
  it does so only with graph_queries. R starts at zero, so the head starts as
  the head without a graph. The hidden labels do not train the graph either.

  All arrays are float32. `attention` and `output` are a and o, [L, D]; `bias`
  is c, [L]. `own` is m, [L]; it equals `seen`, except in the head that
  with_dropout returns. The kernels are P and Q, [E, D], and q, [E]; `offset` is
  r. `graph_rows`, in the head that `ready` returns, are R g, [L, E].
  """

  unit_descriptors = True

  def __init__(
    self, config: UnifiedConfig, inputs: HeadInputs, *, rngs: nnx.Rngs
  ):
    # The rows start at zero, so that P and Q first learn what all labels have
    # in common.
    self.n_labels, self.chunk = inputs.n_labels, config.chunk
    self.row_dropout = config.row_dropout
    rows, dim = padded_labels(inputs.n_labels), inputs.dim
    size, seen_L = inputs.descriptor_dim, inputs.seen_L
    offset = mean_bias(inputs)
    bias_L = np.zeros(inputs.n_labels)
    if inputs.bias_L is not None:
      bias_L = np.asarray(inputs.bias_L) - offset
    if config.aligned:
      start = nnx.initializers.constant(jnp.eye(size, dim))
    else:
      start = nnx.initializers.normal(dim**-0.5)
    self.attention = label_rows(jnp.zeros((rows, dim)))
    self.output = label_rows(jnp.zeros((rows, dim)))
    self.bias = label_rows(padded_row(bias_L, rows))
    self.descriptors = label_rows(jnp.zeros((rows, size)), Frozen)
    self.seen = label_rows(padded_row(seen_L, rows), Frozen)
    self.own = label_rows(padded_row(seen_L, rows), Frozen)
    self.hidden = label_rows(padded_row(inputs.hidden_L, rows), Frozen)
    self.attention_kernel = nnx.Param(start(rngs.params(), (size, dim)))
    self.output_kernel = nnx.Param(start(rngs.params(), (size, dim)))
    self.bias_kernel = nnx.Param(jnp.zeros(size))
    self.offset = nnx.Param(jnp.float32(offset))
    self.unseen_scale = nnx.Param(jnp.float32(1.0))
    self.unseen_offset = nnx.Param(jnp.float32(0.0))

  def logits(
    self, features: TokenFeatures, chunk: Mapping[str, jax.Array]
  ) -> Float32[Array, 'B C']:
    hidden_BTD = features.hidden_BTD
    attention_CD, output_CD, bias_C = self._label_vectors(chunk)
    attended_BC = attend(
      hidden_BTD,
      token_mask(features),
      attention_CD.astype(hidden_BTD.dtype),
      output_CD.astype(hidden_BTD.dtype),
    )
    logits_BC = attended_BC + bias_C
    # Hidden labels train only s and t. For all other parameters, hidden labels
    # are unseen.
    calibrated_BC = (
      self.unseen_scale[...] * lax.stop_gradient(logits_BC)
      + self.unseen_offset[...]
    )
    return jnp.where(chunk['seen'] > 0, logits_BC, calibrated_BC)

  def queries(self, chunk: Mapping[str, jax.Array]) -> Float32[Array, 'C D']:
    return self._label_vectors(chunk)[0]

  def learns(self, chunk: Mapping[str, jax.Array]) -> jax.Array:
    return (chunk['seen'] > 0) | (chunk['hidden'] > 0)

  def with_dropout(self, rngs: nnx.Rngs) -> 'Unified':
    """Returns the head without the rows of a random part of the labels."""
    if not self.row_dropout:
      return self
    keep_L = jax.random.bernoulli(
      rngs.dropout(), 1 - self.row_dropout, self.own.shape
    )
    graphdef, params = nnx.split(self)
    own_L = jnp.where(keep_L, self.own[...], 0.0)
    params['own'] = params['own'].replace(own_L)
    return nnx.merge(graphdef, params)

  def _label_vectors(
    self, chunk: Mapping[str, jax.Array]
  ) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the queries u_CD, outputs w_CD and biases b_C of a chunk."""
    query_CE = embedding_CE = unit_rows(lax.stop_gradient(chunk['descriptors']))
    own_C = lax.stop_gradient(chunk['own'])
    if 'graph_rows' in chunk:
      embedding_CE = embedding_CE + chunk['graph_rows']
    if self.graph_queries:
      query_CE = embedding_CE

    def project(x_CE: jax.Array, kernel: nnx.Param) -> jax.Array:
      precision = full_precision(x_CE.dtype)
      return jnp.matmul(x_CE, kernel[...], precision=precision)

    bias_C = own_C * chunk['bias'] + project(embedding_CE, self.bias_kernel)
    return (
      own_C[:, None] * chunk['attention']
      + project(query_CE, self.attention_kernel),
      own_C[:, None] * chunk['output']
      + project(embedding_CE, self.output_kernel),
      bias_C + self.offset[...],
    )
