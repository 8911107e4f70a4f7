"""Labels known by rows of their own and by their descriptors."""

from collections.abc import Iterator, Mapping
import dataclasses
from typing import Any

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Float32
import numpy as np

from xjax.core.config_part import AT_LEAST_0, RATE, at_most, field, kinds_that
from xjax.core.mesh import LABEL, padded_labels
from xjax.core.numerics import full_precision
from xjax.score.encoders.contract import EncoderConfig
from xjax.score.heads.attend import attend, token_mask
from xjax.score.heads.attention_weights import AttentionHead
from xjax.score.heads.contract import (
  DescriptorHeadConfig,
  Frozen,
  HeadInputs,
  TokenFeatures,
  padded_row,
)


@dataclasses.dataclass
class UnifiedConfig(DescriptorHeadConfig):
  """Label attention by rows of a label's own and by its descriptor."""

  row_dropout: float = field(
    0.3, 'Share of the labels that go without their rows in a step.', RATE
  )
  hidden_labels: int = field(
    50,
    'Rare labels that are seen in no other way than to learn how scores of '
    'unseen labels compare with those of seen ones.',
    AT_LEAST_0,
    tiny=at_most(1),
  )
  aligned: bool = field(
    False,
    'Whether descriptors and tokens are of one space from the start, as one '
    'pretrained encoder makes them: labels then begin with their descriptors '
    'as queries and outputs, and not with random maps of them.',
  )

  def build(self, inputs: HeadInputs, rngs: nnx.Rngs) -> 'Unified':
    return Unified(
      inputs.n_labels,
      inputs.dim,
      inputs.descriptor_dim,
      chunk=self.chunk,
      seen=inputs.seen_L,
      hidden=inputs.hidden_L,
      row_dropout=self.row_dropout,
      aligned=self.aligned,
      bias=inputs.bias_L,
      rngs=rngs,
    )

  def check(self, config: Any, path: str) -> Iterator[str]:
    yield from super().check(config, path)
    encoder = config.model.encoder
    passes = encoder.keeps_space and config.data.tokens.dense
    if self.aligned and not (encoder.pretrained or passes):
      able = kinds_that('pretrained', EncoderConfig)
      yield (
        f'{path}.aligned=True: descriptors and tokens are of one space '
        f'with {able}, or {kinds_that("keeps_space", EncoderConfig)} and '
        'vectors of an outside encoder'
      )


class Unified(AttentionHead):
  """Label-wise attention with u_l, w_l and b_l of two parts each.

  u_l = m_l a_l + P e_l, w_l = m_l o_l + Q e_l, b_l = m_l c_l + q . e_l + r,
  with e_l the frozen embedding of the label's descriptor, brought to length 1,
  rows a_l, o_l, c_l of its own, and m_l = 1 for labels that are seen in
  training, those set apart for calibration left out. An unseen label is
  scored by its descriptor; the scores of both are made comparable by logit =
  s z + t for unseen labels, with s and t learnt on labels that are hidden from
  all else (calibrated stacking: Chao et al. 2016; Liu et al. 2018).

  In training, a random part of the seen labels goes without its own rows, so
  that the descriptors learn to do alone.

  Attributes:
    attention, output, bias: a and o, float32 [L, D], and c, [L].
    descriptors: e at its own length, float32 [L, E], frozen.
    seen: float32 [L], frozen; 1 for labels that have rows of their own.
    own: m, float32 [L], frozen; as seen, but in a thinned head.
    hidden: float32 [L], frozen; 1 for the labels that calibrate.
    attention_kernel, output_kernel: P and Q, float32 [E, D].
    bias_kernel, offset: q, float32 [E], and r, [].
    unseen_scale, unseen_offset: s and t, float32 [].
  """

  def __init__(
    self,
    n_labels: int,
    dim: int,
    size: int,
    *,
    chunk: int,
    seen: np.ndarray,
    hidden: np.ndarray,
    row_dropout: float,
    aligned: bool = False,
    bias: np.ndarray | None = None,
    rngs: nnx.Rngs,
  ):
    """Own rows are zero at first: what labels share is learnt by descriptors.

    Args:
      n_labels: labels; rows are padded to a multiple that shards evenly.
      dim: size D of the token features.
      size: E, of the descriptors' embeddings.
      chunk: labels scored at a time.
      seen: bool [L], the labels with rows of their own.
      hidden: bool [L], unseen ones with training documents, to calibrate by.
      row_dropout: share of the seen labels that go without in a step.
      aligned: whether P and Q begin as the identity, for E = D; else random.
      bias: [L] first biases c_l + r; None: zeros.
      rngs: stream `params`.
    """
    self.n_labels = n_labels
    self.chunk = chunk
    self.row_dropout = row_dropout
    rows = padded_labels(n_labels)
    bias = np.zeros(n_labels) if bias is None else np.asarray(bias)
    offset = bias[seen].mean() if seen.any() else 0.0
    matrix = {'out_sharding': (LABEL, None)}
    row = {'out_sharding': (LABEL,)}
    if aligned:
      start = nnx.initializers.constant(jnp.eye(size, dim))
    else:
      start = nnx.initializers.normal(dim**-0.5)
    self.attention = nnx.Param(jnp.zeros((rows, dim)), **matrix)
    self.output = nnx.Param(jnp.zeros((rows, dim)), **matrix)
    self.bias = nnx.Param(padded_row(bias - offset, rows), **row)
    self.descriptors = Frozen(jnp.zeros((rows, size)), **matrix)
    self.seen = Frozen(padded_row(seen, rows), **row)
    self.own = Frozen(padded_row(seen, rows), **row)
    self.hidden = Frozen(padded_row(hidden, rows), **row)
    self.attention_kernel = nnx.Param(start(rngs.params(), (size, dim)))
    self.output_kernel = nnx.Param(start(rngs.params(), (size, dim)))
    self.bias_kernel = nnx.Param(jnp.zeros(size))
    self.offset = nnx.Param(jnp.float32(offset))
    self.unseen_scale = nnx.Param(jnp.float32(1.0))
    self.unseen_offset = nnx.Param(jnp.float32(0.0))

  def logits(
    self, features: TokenFeatures, chunk: Mapping[str, jax.Array]
  ) -> Float32[Array, 'B C']:
    """logits_BC of a chunk of labels."""
    hidden_BTD = features.hidden_BTD
    attention_CD, output_CD, bias_C = self._label_vectors(chunk)
    attended_BC = attend(
      hidden_BTD,
      token_mask(features),
      attention_CD.astype(hidden_BTD.dtype),
      output_CD.astype(hidden_BTD.dtype),
    )
    logits_BC = attended_BC + bias_C
    # Hidden labels teach s and t alone: to all else they are unseen.
    calibrated_BC = (
      self.unseen_scale[...] * lax.stop_gradient(logits_BC)
      + self.unseen_offset[...]
    )
    return jnp.where(chunk['seen'] > 0, logits_BC, calibrated_BC)

  def queries(self, chunk: Mapping[str, jax.Array]) -> Float32[Array, 'C D']:
    """u_CD."""
    return self._label_vectors(chunk)[0]

  def learns(self, chunk: Mapping[str, jax.Array]) -> jax.Array:
    """bool_C, the labels with training documents."""
    return (chunk['seen'] > 0) | (chunk['hidden'] > 0)

  def with_dropout(self, rngs: nnx.Rngs) -> 'Unified':
    """The head with a random part of the labels bare of their own rows."""
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
    """u_CD, w_CD and b_C."""
    embedding_CE = _unit(lax.stop_gradient(chunk['descriptors']))
    own_C = lax.stop_gradient(chunk['own'])

    def project(kernel: nnx.Param) -> jax.Array:
      precision = full_precision(embedding_CE.dtype)
      return jnp.matmul(embedding_CE, kernel[...], precision=precision)

    attention_CD = own_C[:, None] * chunk['attention']
    output_CD = own_C[:, None] * chunk['output']
    return (
      attention_CD + project(self.attention_kernel),
      output_CD + project(self.output_kernel),
      own_C * chunk['bias'] + project(self.bias_kernel) + self.offset[...],
    )


def _unit(x_CE: jax.Array) -> jax.Array:
  """Rows of length 1; rows of zeros as they are."""
  norm_C1 = jnp.linalg.norm(x_CE, axis=1, keepdims=True)
  return x_CE / jnp.maximum(norm_C1, 1e-12)
