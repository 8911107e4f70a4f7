"""Defines bidirectional recurrent networks, for any cell (GRU or LSTM)."""

from collections.abc import Sequence
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
from xjax.core.numerics import product
from xjax.networks.encoders.encoder import EncoderConfig
from xjax.networks.encoders.layers import dropout


@dataclasses.dataclass
class RecurrentConfig(EncoderConfig, abstract=True):
  """Chooses a bidirectional recurrent network of one or more layers."""

  units: int = field(300, 'Hidden units of each direction.', AT_LEAST_1)
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


# States of a cell, what it computes for each gate, and its learned vectors [U].
States = Gates = Vectors = Sequence[jax.Array]


class Direction(nnx.Module):
  """Computes one direction of one layer of a recurrent network.

  The parameters are the input kernel W [D, V] and the recurrent kernel U
  [U, V], with the gates side by side, the bias b [V], and the vectors [U].
  """

  gates: ClassVar[int]  # with the candidate
  vectors: ClassVar[tuple[str, ...]]  # names of parameters [U] that start at 0
  # Whether the vectors are the states before the first token, else one zero.
  learns_first: ClassVar[bool] = False

  def __init__(self, dim: int, units: int, *, reverse: bool, rngs: nnx.Rngs):
    """Draws Glorot input and orthogonal recurrent kernels; all else is 0."""
    self.reverse = reverse
    glorot = nnx.initializers.glorot_uniform()
    orthogonal = nnx.initializers.orthogonal()
    n = self.gates
    self.kernel = nnx.Param(_draw_gates(glorot, rngs, (dim, units), n))
    self.bias = nnx.Param(jnp.zeros(n * units))
    self.recurrent = nnx.Param(_draw_gates(orthogonal, rngs, (units, units), n))
    for name in self.vectors:
      setattr(self, name, nnx.Param(jnp.zeros(units)))

  @staticmethod
  def step(
    states: States,
    given: Gates,
    carried: Gates,
    vectors: Vectors,
    real_B1: jax.Array,
  ) -> tuple[States, Gates]:
    """Returns the states after a token, and what the gradient needs.

    The first state is the output.
    `given` are W x + b of each gate, and `carried` are U h. real_B1 is 1 at
    tokens; it is 0 at padding, where the states are the first ones.
    """
    raise NotImplementedError

  @staticmethod
  def backward(
    dh_TBU: jax.Array,
    before: States,
    saved: tuple,
    real_TB1: jax.Array,
    recurrent_VU: jax.Array,
    reverse: bool,
  ) -> tuple[jax.Array, jax.Array, Vectors]:
    """Returns the gradients of `given` and `carried` [T, B, V], and of vectors.

    `before` are the states before each token. `saved` are those after it, and
    what `step` returns for the gradient.
    """
    raise NotImplementedError

  def __call__(
    self, x_TBD: Float[Array, 'T B D'], real_TB: Bool[Array, 'T B']
  ) -> Float[Array, 'T B U']:
    """Returns the state after each token, 0 at padding, on the context mesh."""
    dtype, cell, reverse = x_TBD.dtype, type(self), self.reverse

    def shard_states(x_TBD, real_TB, weights):
      # In the backward pass, pcast sums the weights' gradients over shards, in
      # float32.
      varying = lax.pcast(weights, DATA, to='varying')
      # Products are in x's dtype; vectors stay float32.
      kernel, bias, recurrent, *vectors = (
        w.astype(dtype) if w.ndim > 1 else w for w in varying
      )
      real_TB = real_TB.astype(jnp.float32)
      weights = kernel, bias, recurrent, tuple(vectors)
      return recurrence(cell, reverse, x_TBD, real_TB, *weights).astype(dtype)

    over_data = P(None, DATA)
    # Shards are explicit, because the products merge T with B. XLA's
    # partitioner cannot follow a merged axis, and would gather the whole batch
    # on every device.
    run = jax.shard_map(
      shard_states, in_specs=(over_data, over_data, P()), out_specs=over_data
    )
    names = 'kernel', 'bias', 'recurrent', *self.vectors
    return run(x_TBD, real_TB, [getattr(self, name)[...] for name in names])


# Each of the two loops (forward and backward pass) has one product with U and
# the computations that need its result. All other work (W's products and the
# gradients of all parameters) is done for all steps at once. For this, the
# gradient is written by hand: with JAX's gradient, a training step of
# BiGRU-LWAN takes 1.08 times as long (in processor seconds, on two CPU cores).
@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def recurrence(
  cell: type[Direction],
  reverse: bool,
  x_TBD: Float[Array, 'T B D'],
  real_TB: Float32[Array, 'T B'],
  kernel_DV: Float[Array, 'D V'],
  bias_V: Float32[Array, ' V'],
  recurrent_UV: Float[Array, 'U V'],
  vectors: Vectors,
) -> Float32[Array, 'T B U']:
  """Computes all outputs of a recurrent network, 0 at padding.

  real_TB is 1 at tokens and 0 at padding. At padded steps, states are set to
  the first ones, with which a reversed pass then reaches a document's last
  token.
  """
  arrays = x_TBD, real_TB, kernel_DV, bias_V, recurrent_UV, vectors
  h_TBU = _states(cell, reverse, *arrays, keep=False)[0]
  return h_TBU * real_TB[:, :, None] if cell.learns_first else h_TBU


def _states(
  cell, reverse, x_TBD, real_TB, kernel_DV, bias_V, recurrent_UV, vectors, keep
):
  """Returns the output of each step, with `keep` also all that is saved."""
  # Each gate has an array of its own. If the gates were cut from one array in
  # the loop, XLA's CPU code for the computations after the product would not be
  # vectorised. These computations would take as long as the product.
  n = cell.gates
  inputs = [state_product(x_TBD, w) for w in jnp.split(kernel_DV, n, 1)]
  biases = jnp.split(bias_V, n)
  # zeros_like is used instead of zeros, because the first states must vary over
  # the mesh's data axis like the later states.
  first = _first_states(cell, jnp.zeros_like(inputs[0][0]), vectors)

  def step(states, inputs):
    *inputs_BU, real_B = inputs
    given = [x + bias for x, bias in zip(inputs_BU, biases)]
    carried = jnp.split(state_product(states[0], recurrent_UV), n, 1)
    real_B1 = real_B[:, None]
    states, gates = cell.step(states, given, carried, vectors, real_B1)
    return states, (*states, *gates) if keep else states[:1]

  return lax.scan(step, first, (*inputs, real_TB), reverse=reverse)[1]


def _first_states(cell, zero_BU, vectors) -> States:
  if not cell.learns_first:
    return (zero_BU,)
  return tuple(zero_BU + first_U for first_U in vectors)


def _forward(cell, reverse, *arrays):
  saved = _states(cell, reverse, *arrays, keep=True)
  h_TBU, real_TB1 = saved[0], arrays[1][:, :, None]
  return h_TBU * real_TB1 if cell.learns_first else h_TBU, (arrays, saved)


def _backward(cell, reverse, kept, dh_TBU):
  (x_TBD, real_TB, kernel_DV, _, recurrent_UV, vectors), saved = kept
  # The states were kept, so those before each step are only shifted.
  first = _first_states(cell, jnp.zeros_like(saved[0][0]), vectors)
  before = tuple(_states_before(*pair, reverse) for pair in zip(saved, first))
  dgiven_TBV, dcarried_TBV, dvectors = cell.backward(
    dh_TBU, before, saved, real_TB[:, :, None], recurrent_UV.T, reverse
  )
  return (
    state_product(dgiven_TBV, kernel_DV.T).astype(x_TBD.dtype),
    None,
    _kernel_gradient(x_TBD, dgiven_TBV),
    dgiven_TBV.sum(axis=(0, 1)),
    _kernel_gradient(before[0].astype(x_TBD.dtype), dcarried_TBV),
    dvectors,
  )


recurrence.defvjp(_forward, _backward)


class Bidirectional(nnx.Module):
  """Reads tokens with one or more layers of a recurrent network.

  In each layer, the states of both directions are side by side. Layers after
  the first have a residual connection.
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


def _draw_gates(initializer, rngs, shape, gates):
  return jnp.concatenate(
    [initializer(rngs.params(), shape) for _ in range(gates)], axis=1
  )


def state_product(
  x: Float[Array, '*axes inputs'], kernel: Float[Array, 'inputs outputs']
) -> Float32[Array, '*axes outputs']:
  """Multiplies x, in the kernel's dtype, by the kernel; sums are float32."""
  flat = x.reshape(-1, x.shape[-1]).astype(kernel.dtype)
  return product(flat, kernel, (1, 0)).reshape(*x.shape[:-1], -1)


def _kernel_gradient(x_TBD, d_TBV):
  """Returns a kernel's gradient, the sum of outer products over T and B."""
  # T and B are merged first, because an einsum over two axes would copy both
  # arrays.
  flat_XD = x_TBD.reshape(-1, x_TBD.shape[-1])
  flat_XV = d_TBV.reshape(-1, d_TBV.shape[-1]).astype(x_TBD.dtype)
  return product(flat_XD, flat_XV, (0, 0)).astype(x_TBD.dtype)


def _states_before(h_TBU, first_BU, reverse):
  if reverse:
    return jnp.concatenate([h_TBU[1:], first_BU[None]])
  return jnp.concatenate([first_BU[None], h_TBU[:-1]])
