"""Defines the CNN encoder, which is one convolution over time."""

import dataclasses

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float

from xjax.core.config_part import AT_LEAST_1, RATE, field
from xjax.core.mesh import DATA
from xjax.core.numerics import full_precision
from xjax.networks.encoders.encoder import EncoderConfig, EncoderInputs
from xjax.networks.encoders.layers import dropout


@dataclasses.dataclass
class CNNConfig(EncoderConfig):
  """Chooses one convolution over a document's tokens as the encoder."""

  filters: int = field(
    200, 'Number of filters, also the size of the output.', AT_LEAST_1
  )
  width: int = field(3, 'Number of tokens that a filter sees.', AT_LEAST_1)
  dropout: float = field(0.1, 'Dropout rate of the output.', RATE)

  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    return CNN(inputs.dim, self, rngs=rngs)


class CNN(nnx.Module):
  """Encodes tokens as CNN-LWAN does (Mullenbach et al. 2018, Section 2.1).

  For inputs x and filters of width w, the state of token t is (Equation 1)
  h_t = tanh(b + sum_k x_(t + k - (w - 1) // 2) K_k), with k from 0 to w - 1.
  The inputs before a document's first token and after its last token are zeros.
  So there is one state for each token, and padding changes no state.
  """

  def __init__(self, dim: int, config: CNNConfig, *, rngs: nnx.Rngs):
    self.config = config
    self.dim = config.filters
    glorot = nnx.initializers.glorot_uniform()
    shape = config.width, dim, config.filters
    self.kernel = nnx.Param(glorot(rngs.params(), shape))
    self.bias = nnx.Param(jnp.zeros(config.filters))

  def __call__(
    self,
    x_TBD: Float[Array, 'T B D'],
    real_TB: Bool[Array, 'T B'],
    rngs: nnx.Rngs | None,
  ) -> Float[Array, 'T B {self.dim}']:
    """Returns one state for each token, 0 at padding."""
    over_data = P(None, DATA)
    # Shards are explicit, as in recurrent.py, because XLA's partitioner may
    # gather the whole batch on every device.
    run = jax.shard_map(
      _shard_states, in_specs=(over_data, over_data, P()), out_specs=over_data
    )
    h_TBU = run(x_TBD, real_TB, [self.kernel[...], self.bias[...]])
    return dropout(h_TBU, self.config.dropout, rngs)


def _shard_states(x_TBD, real_TB, weights) -> Float[Array, 'T B U']:
  dtype = x_TBD.dtype
  # In the backward pass, pcast sums the weights' gradients over shards, in
  # float32.
  kernel, bias_U = lax.pcast(weights, DATA, to='varying')
  real_TB1 = real_TB[:, :, None].astype(dtype)
  # XLA's convolution takes no more time than its matrix products alone would
  # take. One product for each k takes an eighth more time, and one product of
  # shifted copies takes a quarter more time.
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
