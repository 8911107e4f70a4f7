"""Poolings: one vector of a document, made of its tokens' vectors."""

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

from xjax.core.config_part import RATE, ConfigPart, field, kinds_that
from xjax.core.mesh import BATCH, DATA
from xjax.core.numerics import full_precision
from xjax.score.encoders.contract import EncoderConfig
from xjax.score.encoders.layers import Dense, dropout
from xjax.score.heads.attend import MASKED
from xjax.score.heads.contract import TokenFeatures


@dataclasses.dataclass
class PoolingConfig(ConfigPart, abstract=True):
  """What makes one vector of a document's vectors.

  Attributes:
    pools: whether there is such a vector at all.
    pooler: whether its dense layer may begin with pretrained weights.
  """

  pools: ClassVar[bool] = True
  pooler = False

  @abc.abstractmethod
  def build(self, dim: int, rngs: nnx.Rngs) -> nnx.Module | None:
    """A module (TokenFeatures, rngs) -> document_BD; None: there is none.

    Args:
      dim: size D of a token's vector, and of the document's.
      rngs: stream `params`.
    """


@dataclasses.dataclass
class NoPooling(PoolingConfig):
  """None: the head reads tokens."""

  pools = False

  def build(self, dim: int, rngs: nnx.Rngs) -> None:
    return None


@dataclasses.dataclass
class MeanConfig(PoolingConfig):
  """The mean over tokens; of a document of one vector, that vector."""

  def build(self, dim: int, rngs: nnx.Rngs) -> nnx.Module:
    return Mean(dim)


class Mean(nnx.Module):
  """document = sum_t h_t / T over the document's T tokens.

  Attributes:
    dim: size of the vectors, and of the document's.
  """

  def __init__(self, dim: int):
    """For vectors of size dim."""
    self.dim = dim

  def __call__(
    self, features: TokenFeatures, rngs: nnx.Rngs | None = None
  ) -> jax.Array:
    """document_BD in the features' dtype; 0 for a document of no tokens.

    Args:
      features: encoded tokens.
      rngs: not read.
    """
    del rngs
    hidden_BTD = features.hidden_BTD
    # Padding is 0, so that all may be summed.
    total_BD = hidden_BTD.sum(axis=1, dtype=jnp.float32)
    count_B1 = jnp.maximum(features.lengths_B, 1)[:, None]
    return (total_BD / count_B1).astype(hidden_BTD.dtype)


@dataclasses.dataclass
class ClsConfig(PoolingConfig):
  """The first token's vector, [CLS]."""

  dropout: float = field(0.1, 'Rate over it.', RATE)
  pooler: bool = field(
    False,
    'Whether a dense layer with tanh, pretrained where the folder has one, '
    'comes before.',
  )

  def build(self, dim: int, rngs: nnx.Rngs) -> nnx.Module:
    return Cls(dim, self, rngs=rngs)

  def check(self, config: Any, path: str) -> Iterator[str]:
    if not config.model.encoder.pretrained:
      yield (
        f'{path}=ClsConfig(...): needs config.model.encoder='
        f'{kinds_that("pretrained", EncoderConfig)}, which reads a token [CLS]'
      )


class Cls(nnx.Module):
  """BERT's pooling (Devlin et al. 2019, Section 3): h_0, or tanh(W h_0 + b).

  Attributes:
    dim: size of the vectors, and of the document's.
    dense: W and b, the pooler; None: there is none.
  """

  def __init__(self, dim: int, config: ClsConfig, *, rngs: nnx.Rngs):
    """Fresh weights.

    Args:
      dim: size of the vectors.
      config: dropout, and whether there is a pooler.
      rngs: stream `params`.
    """
    self.dim = dim
    self.rate = config.dropout
    self.dense = (
      Dense(dim, dim, stddev=0.02, rngs=rngs) if config.pooler else None
    )

  def __call__(
    self, features: TokenFeatures, rngs: nnx.Rngs | None
  ) -> jax.Array:
    """document_BD in the features' dtype.

    Args:
      features: encoded tokens.
      rngs: stream `dropout`, or None: no dropout.
    """
    first_BD = features.hidden_BTD[:, 0]
    if self.dense is not None:
      first_BD = jnp.tanh(self.dense(first_BD))
    return dropout(first_BD, self.rate, rngs)


@dataclasses.dataclass
class SelfAttentionConfig(PoolingConfig):
  """A sum weighted by attention that all labels share."""

  def build(self, dim: int, rngs: nnx.Rngs) -> nnx.Module:
    return SelfAttention(dim, rngs=rngs)


class SelfAttention(nnx.Module):
  """BIGRU-ATT's and HAN's pooling (Chalkidis et al. 2019, Section 4).

  s_t = u . tanh(W h_t + b); a = softmax of s over the document's tokens;
  document = sum_t a_t h_t (Yang et al. 2016, Equations 5 to 7). Chalkidis et
  al. give no equation for s and cite Xu et al. 2015, where it is this network
  of one hidden layer with the state of a decoder added, of which there is none
  here. The authors' code has it for HAN; for BIGRU-ATT it has tanh(u . h + b),
  which is at most 1: no token could weigh e^2 times another.

  Attributes:
    dim: size of the vectors, and of the document's.
    kernel: W, float32 [D, D].
    bias: b, float32 [D].
    query: u, float32 [D].
  """

  def __init__(self, dim: int, *, rngs: nnx.Rngs):
    """Glorot kernel, zero bias, a random query of about unit length.

    Args:
      dim: size D of the vectors.
      rngs: stream `params`.
    """
    self.dim = dim
    glorot = nnx.initializers.glorot_uniform()
    normal = nnx.initializers.normal(dim**-0.5)
    self.kernel = nnx.Param(glorot(rngs.params(), (dim, dim)))
    self.bias = nnx.Param(jnp.zeros(dim))
    self.query = nnx.Param(normal(rngs.params(), (dim,)))

  def __call__(
    self, features: TokenFeatures, rngs: nnx.Rngs | None = None
  ) -> jax.Array:
    """document_BD in the features' dtype; 0 for a document of no tokens.

    Runs on the context mesh (`jax.set_mesh`), documents over its data axis.

    Args:
      features: encoded tokens.
      rngs: not read.
    """
    del rngs
    return self._pooled(features.hidden_BTD, features.real_BT, 1)

  def over_time(self, h_TBD: jax.Array, real_TB: jax.Array) -> jax.Array:
    """The same of vectors with time first, as encoders have them.

    Args:
      h_TBD: vectors, 0 at padding.
      real_TB: bool, False at padding.

    Returns:
      document_BD.
    """
    return self._pooled(h_TBD, real_TB, 0)

  def _pooled(self, h: jax.Array, real: jax.Array, axis: int) -> jax.Array:
    given = P(None, DATA) if axis == 0 else BATCH
    # By hand, as in bigru.py: a partitioner may gather the whole batch.
    run = jax.shard_map(
      functools.partial(_shard_pooled, axis),
      in_specs=(given, given, P()),
      out_specs=BATCH,
    )
    weights = self.kernel, self.bias, self.query
    return run(h, real, [weight[...] for weight in weights])


def _shard_pooled(
  axis: int, h: jax.Array, real: jax.Array, weights: list[jax.Array]
) -> jax.Array:
  """Sums of one shard's vectors over an axis; softmax and sum in float32."""
  dtype = h.dtype
  # Transposed, this sums the weights' gradients over shards, in float32.
  kernel_DD, bias_D, query_D = lax.pcast(weights, DATA, to='varying')
  hidden = jnp.matmul(
    h.reshape(-1, h.shape[-1]),
    kernel_DD.astype(dtype),
    precision=full_precision(dtype),
    preferred_element_type=jnp.float32,
  )
  # A sum and no product: float32 on every device.
  score = (jnp.tanh(hidden + bias_D) * query_D).sum(axis=1).reshape(real.shape)
  weight = jax.nn.softmax(jnp.where(real, score, MASKED), axis=axis)
  return (weight[..., None] * h).sum(axis=axis).astype(dtype)
