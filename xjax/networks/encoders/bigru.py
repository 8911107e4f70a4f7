"""Defines the bidirectional GRU, with little work inside its loops.

The gradient is written by hand, because with JAX's gradient a training step of
BiGRU-LWAN takes 1.08 times as long (in processor seconds, on two CPU cores).
"""

import dataclasses
import functools

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32

from xjax.networks.encoders.encoder import EncoderInputs
from xjax.networks.encoders.recurrent import (
  Bidirectional,
  Direction,
  RecurrentConfig,
  kernel_gradient,
  state_product,
  states_before,
)


@dataclasses.dataclass
class BiGRUConfig(RecurrentConfig):
  """Chooses a bidirectional GRU of one or more layers as the encoder."""

  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    return BiGRU(inputs.dim, self, rngs=rngs)


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

  The weights are those of the class GRU; W and U are in x's dtype, the dtype of
  the products. real_TB is 1 at tokens and 0 at padding. At padded steps, the
  state is set to zero. So a reversed pass reaches a document's last token with
  the zero state, however long the padding is.

  Each of the two loops (forward and backward pass) has one product with U and
  the computations that need its result. All other work (W's products and the
  gradients of all parameters) is done for all steps at once.
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
  """Computes the states h, with keep_gates also r, z, n and q = U_n h + c."""
  # Each gate has an array of its own. If the gates were cut from one array in
  # the loop, XLA's CPU code for the computations after the product would not be
  # vectorised. These computations would take as long as the product.
  inputs = [
    state_product(x_TBD, kernel) for kernel in jnp.split(kernel_DV, 3, 1)
  ]
  biases = jnp.split(bias_V, 3)

  def step(h_BU: jax.Array, inputs: tuple) -> tuple[jax.Array, tuple]:
    *inputs_BU, real_B = inputs
    xr, xz, xn = (x + bias for x, bias in zip(inputs_BU, biases))
    ur, uz, un = jnp.split(state_product(h_BU, recurrent_UV), 3, 1)
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
  before_TBU = states_before(h_TBU, jnp.zeros_like(h_TBU[0]), reverse)
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
    return dh_BU * by_h_BU + state_product(dcarried_BV, recurrent_VU), dh_BU

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
    state_product(dinputs_TBV, kernel_DV.T).astype(x_TBD.dtype),
    None,
    kernel_gradient(x_TBD, dinputs_TBV),
    dinputs_TBV.sum(axis=(0, 1)),
    kernel_gradient(before_TBU.astype(x_TBD.dtype), dcarried_TBV),
    dcarried_TBV[..., 2 * units :].sum(axis=(0, 1)),
  )


gru.defvjp(_gru_forward, _gru_backward)


class GRU(Direction):
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

  gates = 3
  vectors = ('candidate_bias',)
  states = staticmethod(gru)


class BiGRU(Bidirectional):
  """Reads tokens with one or more layers of bidirectional GRUs."""

  direction = GRU
