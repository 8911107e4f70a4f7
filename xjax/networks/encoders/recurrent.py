"""Defines the parts that recurrent encoders share: layers and products."""

from collections.abc import Callable, Sequence
import dataclasses
import functools
from typing import ClassVar

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Float32

from xjax.core.config_part import AT_LEAST_1, RATE, field
from xjax.core.mesh import DATA
from xjax.core.numerics import full_precision
from xjax.networks.encoders.encoder import EncoderConfig
from xjax.networks.encoders.layers import dropout


@dataclasses.dataclass
class RecurrentConfig(EncoderConfig, abstract=True):
  """Chooses a bidirectional recurrent network of one or more layers."""

  units: int = field(300, 'Hidden units of each direction.', AT_LEAST_1, tiny=8)
  layers: int = field(
    1,
    'Number of layers. The second and later layers have a residual connection.',
    AT_LEAST_1,
  )
  dropout: float = field(
    0.2,
    'Dropout rate of the inputs of the second and later layers, and of the '
    'output.',
    RATE,
  )


class Direction(nnx.Module):
  """Computes one direction of one layer of a recurrent network.

  The parameters are the input kernel [D, V] and the recurrent kernel [U, V],
  with the gates side by side, the bias [V], and the vectors.
  """

  gates: ClassVar[int]  # with the candidate
  vectors: ClassVar[tuple[str, ...]]  # names of parameters [U] that start at 0
  # A function of x_TBD, of real_TB as float32, of the values of all parameters,
  # and of `reverse`. It returns the state after each token.
  states: ClassVar[Callable[..., Float32[Array, 'T B U']]]

  def __init__(self, dim: int, units: int, *, reverse: bool, rngs: nnx.Rngs):
    """Draws the kernels; all other parameters are zero.

    The input kernels follow Glorot's rule; the recurrent kernels are
    orthogonal.
    """
    self.reverse = reverse
    glorot = nnx.initializers.glorot_uniform()
    orthogonal = nnx.initializers.orthogonal()
    n = self.gates
    self.kernel = nnx.Param(draw_gates(glorot, rngs, (dim, units), n))
    self.bias = nnx.Param(jnp.zeros(n * units))
    self.recurrent = nnx.Param(draw_gates(orthogonal, rngs, (units, units), n))
    for name in self.vectors:
      setattr(self, name, nnx.Param(jnp.zeros(units)))

  def __call__(
    self, x_TBD: Float[Array, 'T B D'], real_TB: Bool[Array, 'T B']
  ) -> Float[Array, 'T B U']:
    """Returns the state after each token, 0 at padding, on the context mesh."""
    names = 'kernel', 'bias', 'recurrent', *self.vectors
    weights = [getattr(self, name) for name in names]
    run = functools.partial(self.states, reverse=self.reverse)
    return states_over_shards(run, x_TBD, real_TB, weights)


class Bidirectional(nnx.Module):
  """Reads tokens with one or more layers of a recurrent network.

  In each layer, one network reads from the first token on, and another one
  reads from the last token on; their states are side by side. Layers after the
  first have a residual connection.
  """

  direction: ClassVar[type[Direction]]  # class of the network of one direction

  def __init__(self, dim: int, config: RecurrentConfig, *, rngs: nnx.Rngs):
    self.config = config
    self.dim = 2 * config.units
    sizes = [dim] + [self.dim] * (config.layers - 1)
    self.forwards = nnx.List(
      self.direction(n, config.units, reverse=False, rngs=rngs) for n in sizes
    )
    self.backwards = nnx.List(
      self.direction(n, config.units, reverse=True, rngs=rngs) for n in sizes
    )

  def __call__(
    self,
    x_TBD: Float[Array, 'T B D'],
    real_TB: Bool[Array, 'T B'],
    rngs: nnx.Rngs | None,
  ) -> Float[Array, 'T B {self.dim}']:
    for layer, (forward, backward) in enumerate(
      zip(self.forwards, self.backwards)
    ):
      if layer:
        x_TBD = dropout(x_TBD, self.config.dropout, rngs)
      h_TBD = jnp.concatenate(
        [forward(x_TBD, real_TB), backward(x_TBD, real_TB)], axis=2
      )
      x_TBD = x_TBD + h_TBD if layer else h_TBD
    return dropout(x_TBD, self.config.dropout, rngs)


def states_over_shards(
  states: Callable[..., Float32[Array, 'T B U']],
  x_TBD: Float[Array, 'T B D'],
  real_TB: Bool[Array, 'T B'],
  weights: Sequence[nnx.Param],
) -> Float[Array, 'T B U']:
  """Computes the states of one direction, on each shard of documents.

  The function runs on the context mesh (`jax.set_mesh`). Documents are divided
  over the data axis. `states` gets matrices in x's dtype, and float32 vectors.
  """
  dtype = x_TBD.dtype

  def shard_states(
    x_TBD: jax.Array, real_TB: jax.Array, weights: list[jax.Array]
  ) -> jax.Array:
    # In the backward pass, pcast sums the weights' gradients over shards, in
    # float32.
    varying = lax.pcast(weights, DATA, to='varying')
    values = [w.astype(dtype) if w.ndim > 1 else w for w in varying]
    return states(x_TBD, real_TB.astype(jnp.float32), *values).astype(dtype)

  over_data = P(None, DATA)
  # Shards are explicit, because the products merge T with B. XLA's partitioner
  # cannot follow a merged axis, and would gather the whole batch on every
  # device.
  run = jax.shard_map(
    shard_states, in_specs=(over_data, over_data, P()), out_specs=over_data
  )
  return run(x_TBD, real_TB, [weight[...] for weight in weights])


def draw_gates(
  initializer: Callable, rngs: nnx.Rngs, shape: tuple[int, int], gates: int
) -> Float32[Array, 'inputs V']:
  """Draws a kernel of the given shape for each gate, side by side."""
  return jnp.concatenate(
    [initializer(rngs.params(), shape) for _ in range(gates)], axis=1
  )


def state_product(
  x: Float[Array, '*axes inputs'], kernel: Float[Array, 'inputs outputs']
) -> Float32[Array, '*axes outputs']:
  """Multiplies x, in the kernel's dtype, by the kernel; sums are float32."""
  flat = x.reshape(-1, x.shape[-1]).astype(kernel.dtype)
  out = jnp.matmul(
    flat,
    kernel,
    precision=full_precision(kernel.dtype),
    preferred_element_type=jnp.float32,
  )
  return out.reshape(*x.shape[:-1], -1)


def kernel_gradient(
  x_TBD: Float[Array, 'T B D'], d_TBV: Float[Array, 'T B V']
) -> Float[Array, 'D V']:
  """Returns a kernel's gradient, the sum of outer products over T and B."""
  # T and B are merged first, because an einsum over two axes would copy both
  # arrays.
  flat_XD = x_TBD.reshape(-1, x_TBD.shape[-1])
  flat_XV = d_TBV.reshape(-1, d_TBV.shape[-1]).astype(x_TBD.dtype)
  return lax.dot_general(
    flat_XD,
    flat_XV,
    (((0,), (0,)), ((), ())),
    precision=full_precision(x_TBD.dtype),
    preferred_element_type=jnp.float32,
  ).astype(x_TBD.dtype)


def states_before(
  h_TBU: Float32[Array, 'T B U'], first_BU: Float32[Array, 'B U'], reverse: bool
) -> Float32[Array, 'T B U']:
  """Returns the state before each step, given the state after each step."""
  if reverse:
    return jnp.concatenate([h_TBU[1:], first_BU[None]])
  return jnp.concatenate([first_BU[None], h_TBU[:-1]])
