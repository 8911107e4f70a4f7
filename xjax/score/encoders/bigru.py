"""Defines the bidirectional GRU, with little work inside its loops.

The gradient is written by hand, because with JAX's gradient a training step of
BiGRU-LWAN takes 1.08 times as long (in processor seconds, on two CPU cores).
"""

from collections.abc import Callable
import dataclasses
import functools

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Float32

from xjax.core.config_part import AT_LEAST_1, RATE, field
from xjax.core.mesh import DATA
from xjax.core.numerics import full_precision
from xjax.score.encoders.contract import EncoderConfig, EncoderInputs
from xjax.score.encoders.layers import dropout


@dataclasses.dataclass
class BiGRUConfig(EncoderConfig):
  """Chooses a bidirectional GRU of one or more layers as the encoder."""

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

  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    return BiGRU(inputs.dim, self, rngs=rngs)


class GRU(nnx.Module):
  """Computes one direction of one layer (Cho et al. 2014).

  For an input x and a state h, the gates are r = sigmoid(W_r x + b_r + U_r h)
  and z = sigmoid(W_z x + b_z + U_z h). The candidate state is
  n = tanh(W_n x + b_n + r (U_n h + c)). The new state is
  h' = (1 - z) n + z h. As in cuDNN, r multiplies U_n h + c, and not only h.

  Attributes:
    kernel: W, float32 [D, V]. The V = 3U columns belong to r, then z, then n.
    bias: b, float32 [V].
    recurrent: U, float32 [U, V].
    candidate_bias: c, float32 [U].
  """

  def __init__(self, dim: int, units: int, *, reverse: bool, rngs: nnx.Rngs):
    """Draws the kernels and sets the biases to zero.

    The input kernels follow Glorot's rule; the recurrent kernels are
    orthogonal.

    Args:
      dim: input size D.
      units: size U of the hidden state.
      reverse: whether the GRU reads from the last token to the first.
      rngs: stream `params`.
    """
    self.reverse = reverse
    glorot = nnx.initializers.glorot_uniform()
    orthogonal = nnx.initializers.orthogonal()
    self.kernel = nnx.Param(_draw_gates(glorot, rngs, (dim, units)))
    self.bias = nnx.Param(jnp.zeros(3 * units))
    self.recurrent = nnx.Param(_draw_gates(orthogonal, rngs, (units, units)))
    self.candidate_bias = nnx.Param(jnp.zeros(units))

  def __call__(
    self, x_TBD: Float[Array, 'T B D'], real_TB: Bool[Array, 'T B']
  ) -> Float[Array, 'T B U']:
    """Returns the state after each token.

    The GRU runs on the context mesh (`jax.set_mesh`). Documents are divided
    over the data axis.

    Args:
      x_TBD: inputs, time first.
      real_TB: bool, False at padding.

    Returns:
      h_TBU, in x's dtype and 0 at padding.
    """
    over_data = P(None, DATA)
    # Shards are explicit, because the products merge T with B. XLA's
    # partitioner cannot follow a merged axis, and would gather the whole batch
    # on every device.
    run = jax.shard_map(
      functools.partial(_shard_states, self.reverse),
      in_specs=(over_data, over_data, P()),
      out_specs=over_data,
    )
    weights = self.kernel, self.bias, self.recurrent, self.candidate_bias
    return run(x_TBD, real_TB, [weight[...] for weight in weights])


def _shard_states(
  reverse: bool,
  x_TBD: Float[Array, 'T B D'],
  real_TB: Bool[Array, 'T B'],
  weights: list[Array],
) -> Float[Array, 'T B U']:
  """Returns the states of one shard's documents."""
  dtype = x_TBD.dtype
  # In the backward pass, pcast sums the weights' gradients over shards, in
  # float32.
  kernel_DV, bias_V, recurrent_UV, candidate_bias_U = lax.pcast(
    weights, DATA, to='varying'
  )
  h_TBU = gru(
    x_TBD,
    real_TB.astype(jnp.float32),
    kernel_DV.astype(dtype),
    bias_V,
    recurrent_UV.astype(dtype),
    candidate_bias_U,
    reverse,
  )
  return h_TBU.astype(dtype)


def _draw_gates(
  initializer: Callable, rngs: nnx.Rngs, shape: tuple[int, int]
) -> Float32[Array, 'inputs V']:
  """Draws three kernels of the given shape, one for each gate, side by side."""
  return jnp.concatenate(
    [initializer(rngs.params(), shape) for _ in range(3)], axis=1
  )


@functools.partial(jax.custom_vjp, nondiff_argnums=(6,))
def gru(
  x_TBD: Float[Array, 'T B D'],
  real_TB: Float32[Array, 'T B'],
  kernel_DV: Float[Array, 'D V'],
  bias_V: Float32[Array, ' V'],
  recurrent_UV: Float[Array, 'U V'],
  candidate_bias_U: Float32[Array, ' U'],
  reverse: bool,
) -> Float32[Array, 'T B U']:
  """Computes all states of a GRU whose initial state is zero.

  The state is set to zero at padded steps. So a reversed pass reaches a
  document's last token with the zero state, however long the padding is.

  Each of the two loops (forward and backward pass) has one product with U and
  the computations that need the result of this product. All other work (W's
  products and the gradients of all parameters) is done for all steps at once.

  Args:
    x_TBD: inputs, in the dtype of the products.
    real_TB: float32, 1 at tokens and 0 at padding.
    kernel_DV: W, in x's dtype, with V = 3U columns in the order r, z, n.
    bias_V: b, float32.
    recurrent_UV: U, in x's dtype.
    candidate_bias_U: c, float32.
    reverse: whether to start from the last step.

  Returns:
    h_TBU: float32.
  """
  arrays = x_TBD, real_TB, kernel_DV, bias_V, recurrent_UV, candidate_bias_U
  return _states(*arrays, reverse, keep_gates=False)[0]


def _states(
  x_TBD: Float[Array, 'T B D'],
  real_TB: Float32[Array, 'T B'],
  kernel_DV: Float[Array, 'D V'],
  bias_V: Float32[Array, ' V'],
  recurrent_UV: Float[Array, 'U V'],
  candidate_bias_U: Float32[Array, ' U'],
  reverse: bool,
  keep_gates: bool,
) -> tuple[Float32[Array, 'T B U'], ...]:
  """Computes the states, and the gates if the gradient needs the gates.

  Args:
    x_TBD, real_TB, kernel_DV, bias_V, recurrent_UV, candidate_bias_U, reverse:
      arguments of `gru`.
    keep_gates: whether to return the gates.

  Returns:
    h_TBU. If keep_gates is True, also r, z, n and q = U_n h + c of each step.
  """
  # Each gate has an array of its own. If the gates were cut from one array in
  # the loop, XLA's CPU code for the computations after the product would not be
  # vectorised. These computations would take as long as the product.
  inputs = [_product(x_TBD, kernel) for kernel in jnp.split(kernel_DV, 3, 1)]
  biases = jnp.split(bias_V, 3)

  def step(h_BU: jax.Array, inputs: tuple) -> tuple[jax.Array, tuple]:
    *inputs_BU, real_B = inputs
    xr, xz, xn = (x + bias for x, bias in zip(inputs_BU, biases))
    ur, uz, un = jnp.split(_product(h_BU, recurrent_UV), 3, 1)
    r, z = jax.nn.sigmoid(xr + ur), jax.nn.sigmoid(xz + uz)
    q = un + candidate_bias_U
    n = jnp.tanh(xn + r * q)
    h_BU = ((1 - z) * n + z * h_BU) * real_B[:, None]
    return h_BU, (h_BU, r, z, n, q) if keep_gates else (h_BU,)

  # zeros_like is used instead of zeros, because the initial state must vary
  # over the mesh's data axis like the later states.
  first_BU = jnp.zeros_like(inputs[0][0])
  _, states = lax.scan(step, first_BU, (*inputs, real_TB), reverse=reverse)
  return states


def _gru_forward(
  x_TBD: Float[Array, 'T B D'],
  real_TB: Float32[Array, 'T B'],
  kernel_DV: Float[Array, 'D V'],
  bias_V: Float32[Array, ' V'],
  recurrent_UV: Float[Array, 'U V'],
  candidate_bias_U: Float32[Array, ' U'],
  reverse: bool,
) -> tuple[Float32[Array, 'T B U'], tuple]:
  """Returns the result of `gru` and the arrays that its gradient needs."""
  arrays = x_TBD, real_TB, kernel_DV, bias_V, recurrent_UV, candidate_bias_U
  h_TBU, *gates = _states(*arrays, reverse, keep_gates=True)
  return h_TBU, (x_TBD, real_TB, kernel_DV, recurrent_UV, h_TBU, gates)


def _gru_backward(
  reverse: bool, saved: tuple, dh_TBU: Float32[Array, 'T B U']
) -> tuple:
  """Returns the gradients of the arguments of `gru`."""
  x_TBD, real_TB, kernel_DV, recurrent_UV, h_TBU, (r, z, n, q) = saved
  before_TBU = _states_before(h_TBU, reverse)
  # by_n, by_r and by_z are the derivatives of a step's state with respect to
  # the inputs of the activations n, r and z.
  real_TB1 = real_TB[:, :, None]
  by_n = (1 - z) * (1 - n**2) * real_TB1
  by_r = by_n * q * r * (1 - r)
  by_z = (before_TBU - n) * z * (1 - z) * real_TB1
  by_carried_TBV = jnp.concatenate([by_r, by_z, by_n * r], axis=2)
  recurrent_VU = recurrent_UV.T

  def step(later_BU: jax.Array, inputs: tuple) -> tuple[jax.Array, jax.Array]:
    dh_BU, by_carried_BV, by_h_BU = inputs
    dh_BU += later_BU
    dcarried_BV = jnp.tile(dh_BU, 3) * by_carried_BV
    return dh_BU * by_h_BU + _product(dcarried_BV, recurrent_VU), dh_BU

  _, dh_TBU = lax.scan(
    step,
    jnp.zeros_like(dh_TBU[0]),
    (dh_TBU, by_carried_TBV, z * real_TB1),
    reverse=not reverse,
  )
  units = len(recurrent_UV)
  dcarried_TBV = jnp.tile(dh_TBU, 3) * by_carried_TBV
  dinputs_TBV = jnp.concatenate(
    [dcarried_TBV[..., : 2 * units], dh_TBU * by_n], axis=2
  )
  return (
    _product(dinputs_TBV, kernel_DV.T).astype(x_TBD.dtype),
    None,
    _kernel_gradient(x_TBD, dinputs_TBV),
    dinputs_TBV.sum(axis=(0, 1)),
    _kernel_gradient(before_TBU.astype(x_TBD.dtype), dcarried_TBV),
    dcarried_TBV[..., 2 * units :].sum(axis=(0, 1)),
  )


gru.defvjp(_gru_forward, _gru_backward)


def _product(
  x: Float[Array, '*axes inputs'], kernel: Float[Array, 'inputs outputs']
) -> Float32[Array, '*axes outputs']:
  """Multiplies x by the kernel along x's last axis, with sums in float32."""
  flat = x.reshape(-1, x.shape[-1]).astype(kernel.dtype)
  out = jnp.matmul(
    flat,
    kernel,
    precision=full_precision(kernel.dtype),
    preferred_element_type=jnp.float32,
  )
  return out.reshape(*x.shape[:-1], -1)


def _kernel_gradient(
  x_TBD: Float[Array, 'T B D'], d_TBV: Float[Array, 'T B V']
) -> Float[Array, 'D V']:
  """Returns a kernel's gradient, the sum of outer products over T and B.

  Args:
    x_TBD: arrays that the forward pass multiplied by the kernel.
    d_TBV: gradient of these products.

  Returns:
    Gradient in x's dtype.
  """
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


def _states_before(
  h_TBU: Float32[Array, 'T B U'], reverse: bool
) -> Float32[Array, 'T B U']:
  """Returns the state before each step, given the state after each step."""
  zero = jnp.zeros_like(h_TBU[:1])
  if reverse:
    return jnp.concatenate([h_TBU[1:], zero])
  return jnp.concatenate([zero, h_TBU[:-1]])


class BiGRU(nnx.Module):
  """Reads tokens with one or more layers of bidirectional GRUs.

  Layers after the first have a residual connection.

  Attributes:
    dim: size of the output, twice the units.
    forwards: for each layer, the GRU that reads from the first token on.
    backwards: for each layer, the GRU that reads from the last token on.
  """

  def __init__(self, dim: int, config: BiGRUConfig, *, rngs: nnx.Rngs):
    """Makes the layers, with fresh parameters.

    Args:
      dim: size D of the inputs.
      config: sizes and dropout rate.
      rngs: stream `params`.
    """
    self.config = config
    self.dim = 2 * config.units
    sizes = [dim] + [self.dim] * (config.layers - 1)
    self.forwards = nnx.List(
      GRU(n, config.units, reverse=False, rngs=rngs) for n in sizes
    )
    self.backwards = nnx.List(
      GRU(n, config.units, reverse=True, rngs=rngs) for n in sizes
    )

  def __call__(
    self,
    x_TBD: Float[Array, 'T B D'],
    real_TB: Bool[Array, 'T B'],
    rngs: nnx.Rngs | None,
  ) -> Float[Array, 'T B {self.dim}']:
    """Returns the states of both directions, side by side.

    Args:
      x_TBD: inputs, time first.
      real_TB: bool, False at padding.
      rngs: stream `dropout`, or None for no dropout.

    Returns:
      h_TBD, in x's dtype and 0 at padding.
    """
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
