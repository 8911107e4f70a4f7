"""Self-attention: one vector of all of a document's vectors."""

import functools

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from xjax.core.mesh import BATCH, DATA
from xjax.core.numerics import full_precision
from xjax.score.heads.attend import MASKED
from xjax.score.heads.contract import TokenFeatures


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
