"""CNN encoder: one convolution over time."""

import dataclasses

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from xjax.core.config_part import AT_LEAST_1, RATE, field
from xjax.core.mesh import DATA
from xjax.core.numerics import full_precision
from xjax.score.encoders.contract import EncoderConfig, EncoderInputs
from xjax.score.encoders.layers import dropout


@dataclasses.dataclass
class CNNConfig(EncoderConfig):
  """One convolution over time."""

  filters: int = field(200, 'Size of the output.', AT_LEAST_1, tiny=8)
  width: int = field(3, 'Tokens that a filter sees.', AT_LEAST_1)
  dropout: float = field(0.1, 'Rate over the output.', RATE)

  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    return CNN(inputs.dim, self, rngs=rngs)


class CNN(nnx.Module):
  """CNN-LWAN's encoder (Mullenbach et al. 2018, Section 2.1, Equation 1).

  h_t = tanh(b + sum_k x_(t + k - (w - 1) // 2) K_k), k from 0 to w - 1, with
  zeros before a document's first and after its last token: as many states as
  tokens, which a padded length changes in nothing.

  Attributes:
    dim: size of the output, the number of filters.
    kernel: K, float32 [w, D, F].
    bias: b, float32 [F].
  """

  def __init__(self, dim: int, config: CNNConfig, *, rngs: nnx.Rngs):
    """Glorot kernel, zero bias.

    Args:
      dim: input size D.
      config: filters, width and dropout.
      rngs: stream `params`.
    """
    self.config = config
    self.dim = config.filters
    glorot = nnx.initializers.glorot_uniform()
    shape = config.width, dim, config.filters
    self.kernel = nnx.Param(glorot(rngs.params(), shape))
    self.bias = nnx.Param(jnp.zeros(config.filters))

  def __call__(
    self, x_TBD: jax.Array, real_TB: jax.Array, rngs: nnx.Rngs | None
  ) -> jax.Array:
    """One state for each token.

    Runs on the context mesh (`jax.set_mesh`), documents over its data axis.

    Args:
      x_TBD: inputs, time first.
      real_TB: bool, False at padding.
      rngs: stream `dropout`, or None: no dropout.

    Returns:
      h_TBD, in x's dtype; 0 at padding.
    """
    over_data = P(None, DATA)
    # By hand, as in bigru.py: a partitioner may gather the whole batch.
    run = jax.shard_map(
      _shard_states,
      in_specs=(over_data, over_data, P()),
      out_specs=over_data,
    )
    h_TBD = run(x_TBD, real_TB, [self.kernel[...], self.bias[...]])
    return dropout(h_TBD, self.config.dropout, rngs)


def _shard_states(
  x_TBD: jax.Array, real_TB: jax.Array, weights: list[jax.Array]
) -> jax.Array:
  """States of one shard's documents."""
  dtype = x_TBD.dtype
  # Transposed, this sums the weights' gradients over shards, in float32.
  kernel, bias_U = lax.pcast(weights, DATA, to='varying')
  real_TB1 = real_TB[:, :, None].astype(dtype)
  # XLA's convolution takes what the bare products of a step take, or less; a
  # product for each k an eighth more, one product of shifted copies a quarter.
  summed_TBU = lax.conv_general_dilated(
    x_TBD * real_TB1,
    kernel.astype(dtype),
    window_strides=(1,),
    padding='SAME',
    dimension_numbers=('WNC', 'WIO', 'WNC'),
    precision=full_precision(dtype),
  )
  h_TBU = jnp.tanh(summed_TBU.astype(jnp.float32) + bias_U)
  return h_TBU.astype(dtype) * real_TB1
