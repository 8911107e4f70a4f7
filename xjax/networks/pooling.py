"""Defines poolings, which compute one vector of a document from its tokens."""

import abc
from collections.abc import Iterator
import dataclasses
import functools
from typing import Any, ClassVar

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float

from xjax.core.config_part import RATE, ConfigPart, field, kinds_that
from xjax.core.mesh import BATCH, DATA
from xjax.core.numerics import product
from xjax.networks.encoders.encoder import EncoderConfig
from xjax.networks.encoders.layers import Dense, dropout
from xjax.networks.heads.attend import MASKED
from xjax.networks.heads.head import TokenFeatures, normal


@dataclasses.dataclass
class PoolingConfig(ConfigPart, abstract=True):
  """Chooses how the vectors of a document's tokens become one vector."""

  pools: ClassVar[bool] = True  # if False, the head reads the tokens
  pooler = False  # a dense layer, which can start from pretrained weights

  @abc.abstractmethod
  def build(self, dim: int, rngs: nnx.Rngs) -> nnx.Module | None:
    """Makes a module (TokenFeatures, rngs) -> document_BD; None: no pooling."""


@dataclasses.dataclass
class NoPooling(PoolingConfig):
  """Chooses no pooling, so that the head reads tokens."""

  pools = False

  def build(self, dim: int, rngs: nnx.Rngs) -> None:
    return None


@dataclasses.dataclass
class MeanConfig(PoolingConfig):
  """Chooses the pooling that computes the mean over tokens.

  If a document has only one vector, the mean is this vector.
  """

  def build(self, dim: int, rngs: nnx.Rngs) -> nnx.Module:
    return Mean(dim)


class Mean(nnx.Module):
  """Computes the mean over a document's tokens, 0 if there is none."""

  def __init__(self, dim: int):
    self.dim = dim

  def __call__(
    self, features: TokenFeatures, rngs: nnx.Rngs | None = None
  ) -> Float[Array, 'B {self.dim}']:
    del rngs
    hidden_BTD = features.hidden_BTD
    # The vectors at padding are 0, so the sum may include them.
    total_BD = hidden_BTD.sum(axis=1, dtype=jnp.float32)
    count_B1 = jnp.maximum(features.lengths_B, 1)[:, None]
    return (total_BD / count_B1).astype(hidden_BTD.dtype)


@dataclasses.dataclass
class ClsConfig(PoolingConfig):
  """Chooses the vector of the token [CLS] as the document's vector.

  [CLS] is the first token of BERT and the last token of XLNet.
  """

  dropout: float = field(0.1, "Dropout rate of the document's vector.", RATE)
  pooler: bool = field(
    False,
    'Whether to apply a dense layer with tanh before dropout. The layer starts '
    "from pretrained weights if the encoder's folder has such weights. Folders "
    'of XLNet need not have such weights, so there the layer may start from '
    'fresh weights.',
  )

  def build(self, dim: int, rngs: nnx.Rngs) -> nnx.Module:
    return Cls(dim, self, rngs=rngs)

  def faults(self, config: Any, path: str) -> Iterator[str]:
    if not config.model.encoder.pretrained:
      yield (
        f'{path}=ClsConfig(...): needs config.model.encoder='
        f'{kinds_that("pretrained", EncoderConfig)}, because only these '
        'encoders read a token [CLS]'
      )
    if self.pooler and len(config.model.encoder.joined) > 1:
      yield (
        f'{path}.pooler=True: needs config.model.encoder.joined with one layer '
        'at most, because pretrained poolers read one layer'
      )


class Cls(nnx.Module):
  """Pools tokens as BERT does (Devlin et al. 2019, Section 3).

  The result is the vector h of the token [CLS], with a pooler tanh(W h + b).
  XLNet's summary of a text is the same.
  """

  def __init__(self, dim: int, config: ClsConfig, *, rngs: nnx.Rngs):
    self.dim = dim
    self.rate = config.dropout
    self.dense = (
      Dense(dim, dim, stddev=0.02, rngs=rngs) if config.pooler else None
    )

  def __call__(
    self, features: TokenFeatures, rngs: nnx.Rngs | None
  ) -> Float[Array, 'B {self.dim}']:
    summary_BD = features.summary_BD
    if self.dense is not None:
      summary_BD = jnp.tanh(self.dense(summary_BD))
    return dropout(summary_BD, self.rate, rngs)


@dataclasses.dataclass
class SelfAttentionConfig(PoolingConfig):
  """Chooses a weighted sum of tokens, with attention that all labels share."""

  def build(self, dim: int, rngs: nnx.Rngs) -> nnx.Module:
    return SelfAttention(dim, rngs=rngs)


class SelfAttention(nnx.Module):
  """Pools tokens as BIGRU-ATT and HAN do (Chalkidis et al. 2019, Section 4).

  The equations are Equations 5 to 7 of Yang et al. 2016:

    s_t = u . tanh(W h_t + b)
    a = softmax of s over the document's tokens
    document = sum_t a_t h_t

  Chalkidis et al. give no equation for s, and cite Xu et al. 2015, whose
  network also reads the state of a decoder.

  Their code computes s so for HAN, but for BIGRU-ATT s = tanh(u . h + b), with
  which the weight of a token is at most e^2 times that of another.
  """

  def __init__(self, dim: int, *, rngs: nnx.Rngs):
    self.dim = dim
    glorot = nnx.initializers.glorot_uniform()
    self.kernel = nnx.Param(glorot(rngs.params(), (dim, dim)))
    self.bias = nnx.Param(jnp.zeros(dim))
    self.query = nnx.Param(normal(rngs, (dim,), dim**-0.5))

  def __call__(
    self, features: TokenFeatures, rngs: nnx.Rngs | None = None
  ) -> Float[Array, 'B {self.dim}']:
    """Returns the weighted sum of each document's tokens, 0 if it has none."""
    del rngs
    return self._pool(features.hidden_BTD, features.real_BT, 1)

  def over_time(
    self, h_TBD: Float[Array, 'T B D'], real_TB: Bool[Array, 'T B']
  ) -> Float[Array, 'B D']:
    """Pools vectors whose first axis is time, as encoders return them."""
    return self._pool(h_TBD, real_TB, 0)

  def _pool(
    self,
    h: Float[Array, 'first second D'],
    real: Bool[Array, 'first second'],
    axis: int,
  ) -> Float[Array, 'B D']:
    spec = P(None, DATA) if axis == 0 else BATCH
    # Shards are explicit, as in recurrent.py, because XLA's partitioner may
    # gather the whole batch on every device.
    run = jax.shard_map(
      functools.partial(_pool_shard, axis),
      in_specs=(spec, spec, P()),
      out_specs=BATCH,
    )
    weights = self.kernel, self.bias, self.query
    return run(h, real, [weight[...] for weight in weights])


def _pool_shard(axis, h, real, weights) -> Float[Array, 'B D']:
  """Pools one shard's vectors over an axis, with sums in float32."""
  dtype = h.dtype
  # In the backward pass, pcast sums the weights' gradients over shards, in
  # float32.
  kernel_DD, bias_D, query_D = lax.pcast(weights, DATA, to='varying')
  flat_XD = h.reshape(-1, h.shape[-1])
  hidden = product(flat_XD, kernel_DD.astype(dtype), (1, 0))
  # The score is a sum instead of a matrix product, because some devices compute
  # sums in float32, but not matrix products.
  score = (jnp.tanh(hidden + bias_D) * query_D).sum(axis=1).reshape(real.shape)
  weight = jax.nn.softmax(jnp.where(real, score, MASKED), axis=axis)
  return (weight[..., None] * h).sum(axis=axis).astype(dtype)
