"""Bidirectional GRU with everything hoisted out of its loops that can be.

Its gradient is written by hand: left to JAX, a training step of BiGRU-LWAN
takes 1.08 times as long (two CPU cores, processor seconds).
"""

from collections.abc import Callable
import dataclasses
import functools

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
class BiGRUConfig(EncoderConfig):
  """Bidirectional GRU."""

  units: int = field(300, 'Per direction.', AT_LEAST_1, tiny=8)
  layers: int = field(
    1, 'Stacked; from the second on with a residual connection.', AT_LEAST_1
  )
  dropout: float = field(
    0.2,
    'Rate over the inputs of each layer from the second on, and over the '
    'output.',
    RATE,
  )

  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    return BiGRU(inputs.dim, self, rngs=rngs)


class GRU(nnx.Module):
  """One direction of one layer (Cho et al. 2014, with cuDNN's reset gate).

  r = sigmoid(W_r x + b_r + U_r h); z likewise;
  n = tanh(W_n x + b_n + r (U_n h + c)); h' = (1 - z) n + z h.

  Attributes:
    kernel: W, float32 [D, V], the gates in the order r, z, n.
    bias: b, float32 [V].
    recurrent: U, float32 [U, V].
    candidate_bias: c, float32 [U].
  """

  def __init__(self, dim: int, units: int, *, reverse: bool, rngs: nnx.Rngs):
    """Glorot input kernel, orthogonal recurrent kernels, zero biases.

    Args:
      dim: input size D.
      units: U, of the hidden state.
      reverse: whether it reads from the last token to the first.
      rngs: stream `params`.
    """
    self.reverse = reverse
    glorot = nnx.initializers.glorot_uniform()
    orthogonal = nnx.initializers.orthogonal()
    self.kernel = nnx.Param(_three(glorot, rngs, (dim, units)))
    self.bias = nnx.Param(jnp.zeros(3 * units))
    self.recurrent = nnx.Param(_three(orthogonal, rngs, (units, units)))
    self.candidate_bias = nnx.Param(jnp.zeros(units))

  def __call__(self, x_TBD: jax.Array, real_TB: jax.Array) -> jax.Array:
    """States h_TBU, in x's dtype; 0 where real_TB is False.

    Runs on the context mesh (`jax.set_mesh`), documents over its data axis.
    """
    over_data = P(None, DATA)
    # By hand: the products merge T with B, and a partitioner that has to keep
    # track of such an axis gathers the whole batch on every device.
    run = jax.shard_map(
      functools.partial(_shard_states, self.reverse),
      in_specs=(over_data, over_data, P()),
      out_specs=over_data,
    )
    weights = self.kernel, self.bias, self.recurrent, self.candidate_bias
    return run(x_TBD, real_TB, [weight[...] for weight in weights])


def _shard_states(
  reverse: bool, x_TBD: jax.Array, real_TB: jax.Array, weights: list[jax.Array]
) -> jax.Array:
  """States of one shard's documents."""
  dtype = x_TBD.dtype
  # Transposed, this sums the weights' gradients over shards, in float32.
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


def _three(
  initializer: Callable, rngs: nnx.Rngs, shape: tuple[int, int]
) -> jax.Array:
  return jnp.concatenate(
    [initializer(rngs.params(), shape) for _ in range(3)], axis=1
  )


@functools.partial(jax.custom_vjp, nondiff_argnums=(6,))
def gru(
  x_TBD: jax.Array,
  real_TB: jax.Array,
  kernel_DV: jax.Array,
  bias_V: jax.Array,
  recurrent_UV: jax.Array,
  candidate_bias_U: jax.Array,
  reverse: bool,
) -> jax.Array:
  """All states of a GRU that begins with zeros.

  The state is zeroed at padded steps: a reversed pass reaches a document's last
  token with the zero state, however far it was padded.

  Both loops hold one product with U and what must follow it. All else, W's
  products and all parameters' gradients, is done at once for all steps.

  Args:
    x_TBD: inputs, in the dtype of the products.
    real_TB: float32, 1 at tokens and 0 at padding.
    kernel_DV: W, in x's dtype; V = 3U, in the order r, z, n.
    bias_V: b, float32.
    recurrent_UV: U, in x's dtype.
    candidate_bias_U: c, float32.
    reverse: whether to begin at the last step.

  Returns:
    h_TBU: float32.
  """
  given = x_TBD, real_TB, kernel_DV, bias_V, recurrent_UV, candidate_bias_U
  return _states(*given, reverse, keep_gates=False)[0]


def _states(
  x_TBD: jax.Array,
  real_TB: jax.Array,
  kernel_DV: jax.Array,
  bias_V: jax.Array,
  recurrent_UV: jax.Array,
  candidate_bias_U: jax.Array,
  reverse: bool,
  keep_gates: bool,
) -> tuple[jax.Array, ...]:
  """h_TBU, and where kept, per step r, z, n and q = U_n h + c."""
  # An array for each gate: with one that is cut in the loop, XLA's CPU code for
  # what follows the product is not vectorised and takes as long as the product.
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

  # Not jnp.zeros: as the later states it varies over the mesh's data axis.
  first_BU = jnp.zeros_like(inputs[0][0])
  _, states = lax.scan(step, first_BU, (*inputs, real_TB), reverse=reverse)
  return states


def _gru_forward(
  x_TBD: jax.Array,
  real_TB: jax.Array,
  kernel_DV: jax.Array,
  bias_V: jax.Array,
  recurrent_UV: jax.Array,
  candidate_bias_U: jax.Array,
  reverse: bool,
) -> tuple[jax.Array, tuple]:
  given = x_TBD, real_TB, kernel_DV, bias_V, recurrent_UV, candidate_bias_U
  h_TBU, *gates = _states(*given, reverse, keep_gates=True)
  return h_TBU, (x_TBD, real_TB, kernel_DV, recurrent_UV, h_TBU, gates)


def _gru_backward(reverse: bool, saved: tuple, dh_TBU: jax.Array) -> tuple:
  x_TBD, real_TB, kernel_DV, recurrent_UV, h_TBU, (r, z, n, q) = saved
  before_TBU = _before(h_TBU, reverse)
  # All derivatives at a step are factors times that of its state.
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
    _over_steps(x_TBD, dinputs_TBV),
    dinputs_TBV.sum(axis=(0, 1)),
    _over_steps(before_TBU.astype(x_TBD.dtype), dcarried_TBV),
    dcarried_TBV[..., 2 * units :].sum(axis=(0, 1)),
  )


gru.defvjp(_gru_forward, _gru_backward)


def _product(x: jax.Array, kernel: jax.Array) -> jax.Array:
  """The product over x's last and kernel's first axis, summed in float32."""
  flat = x.reshape(-1, x.shape[-1]).astype(kernel.dtype)
  out = jnp.matmul(
    flat,
    kernel,
    precision=full_precision(kernel.dtype),
    preferred_element_type=jnp.float32,
  )
  return out.reshape(*x.shape[:-1], -1)


def _over_steps(x_TBD: jax.Array, d_TBV: jax.Array) -> jax.Array:
  """A kernel's gradient in its dtype: the outer products' sum over T and B.

  Flattened by hand: an einsum over T and B would copy both sides.
  """
  flat_XD = x_TBD.reshape(-1, x_TBD.shape[-1])
  flat_XV = d_TBV.reshape(-1, d_TBV.shape[-1]).astype(x_TBD.dtype)
  return lax.dot_general(
    flat_XD,
    flat_XV,
    (((0,), (0,)), ((), ())),
    precision=full_precision(x_TBD.dtype),
    preferred_element_type=jnp.float32,
  ).astype(x_TBD.dtype)


def _before(h_TBU: jax.Array, reverse: bool) -> jax.Array:
  """The state each step began with."""
  zero = jnp.zeros_like(h_TBU[:1])
  if reverse:
    return jnp.concatenate([h_TBU[1:], zero])
  return jnp.concatenate([zero, h_TBU[:-1]])


class BiGRU(nnx.Module):
  """Stacked bidirectional GRUs; from the second on with a residual.

  Attributes:
    dim: size of the output, twice the units.
  """

  def __init__(self, dim: int, config: BiGRUConfig, *, rngs: nnx.Rngs):
    """Layers for inputs of size dim."""
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
    self, x_TBD: jax.Array, real_TB: jax.Array, rngs: nnx.Rngs | None
  ) -> jax.Array:
    """States of both directions, side by side.

    Args:
      x_TBD: inputs, time first.
      real_TB: bool, False at padding.
      rngs: stream `dropout`, or None: no dropout.

    Returns:
      h_TBD, 0 at padding.
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
