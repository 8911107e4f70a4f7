"""Defines the unified head, which scores labels by rows and by descriptors."""

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
from xjax.core.numerics import full_precision
from xjax.core.rng import host_generator
from xjax.data.labels import draw_labels
from xjax.data.tokens_config import TokensConfig
from xjax.networks.encoders.encoder import EncoderConfig
from xjax.networks.heads.attend import attend, token_mask
from xjax.networks.heads.head import (
  DescriptorHeadConfig,
  Frozen,
  HeadInputs,
  TokenFeatures,
  label_rows,
  mean_bias,
  padded_row,
)
from xjax.networks.label_graph import DescriptorHead, unit_rows

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
