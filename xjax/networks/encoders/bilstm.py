"""Defines the bidirectional LSTM, with little work inside its loops."""

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
class BiLSTMConfig(RecurrentConfig):
  """Chooses a bidirectional LSTM whose first state is learnt (AttentionXML)."""

  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    return BiLSTM(inputs.dim, self, rngs=rngs)


@functools.partial(jax.custom_vjp, nondiff_argnums=(7,))
def lstm(
  x_TBD: Float[Array, 'T B D'],
  real_TB: Float32[Array, 'T B'],
  kernel_DV: Float[Array, 'D V'],
  bias_V: Float32[Array, ' V'],
  recurrent_UV: Float[Array, 'U V'],
  first_state_U: Float32[Array, ' U'],
  first_cell_U: Float32[Array, ' U'],
  reverse: bool,
) -> Float32[Array, 'T B U']:
  """Computes all states of an LSTM.

  The weights are those of the class LSTM; W and U are in x's dtype. real_TB is
  1 at tokens and 0 at padding. At padded steps, the state and the cell are set
  to the first ones, so that a reversed pass reaches a document's last token
  with them. But the result is 0 there. As in `gru`, each of the two loops has
  one product with U and the computations that need its result.
  """
  weights = kernel_DV, bias_V, recurrent_UV, first_state_U, first_cell_U
  h_TBU = _states(x_TBD, real_TB, *weights, reverse, keep_gates=False)[0]
  return h_TBU * real_TB[:, :, None]


def _states(
  x_TBD: Float[Array, 'T B D'],
  real_TB: Float32[Array, 'T B'],
  kernel_DV: Float[Array, 'D V'],
  bias_V: Float32[Array, ' V'],
  recurrent_UV: Float[Array, 'U V'],
  first_state_U: Float32[Array, ' U'],
  first_cell_U: Float32[Array, ' U'],
  reverse: bool,
  keep_gates: bool,
) -> tuple[Float32[Array, 'T B U'], ...]:
  """Computes h, and with keep_gates also c, i, f, g and o, of each step.

  At padding, h and c are the first state and cell.
  """
  # Each gate has an array of its own, as in bigru.py.
  inputs = [
    state_product(x_TBD, kernel) for kernel in jnp.split(kernel_DV, 4, 1)
  ]
  biases = jnp.split(bias_V, 4)

  def step(carry: tuple, inputs: tuple) -> tuple[tuple, tuple]:
    (h_BU, c_BU), (*inputs_BU, real_B) = carry, inputs
    summed = (
      x + bias + u
      for x, bias, u in zip(
        inputs_BU, biases, jnp.split(state_product(h_BU, recurrent_UV), 4, 1)
      )
    )
    i, f, g, o = (
      jnp.tanh(x) if gate == 2 else jax.nn.sigmoid(x)
      for gate, x in enumerate(summed)
    )
    real_B1 = real_B[:, None] > 0
    c_BU = jnp.where(real_B1, f * c_BU + i * g, first_cell_U)
    h_BU = jnp.where(real_B1, o * jnp.tanh(c_BU), first_state_U)
    kept = (h_BU, c_BU, i, f, g, o) if keep_gates else (h_BU,)
    return (h_BU, c_BU), kept

  # zeros_like is used, because the first state must vary over the mesh's data
  # axis like the later states.
  zero_BU = jnp.zeros_like(inputs[0][0])
  first = zero_BU + first_state_U, zero_BU + first_cell_U
  _, states = lax.scan(step, first, (*inputs, real_TB), reverse=reverse)
  return states


def _lstm_forward(
  x_TBD: Float[Array, 'T B D'],
  real_TB: Float32[Array, 'T B'],
  kernel_DV: Float[Array, 'D V'],
  bias_V: Float32[Array, ' V'],
  recurrent_UV: Float[Array, 'U V'],
  first_state_U: Float32[Array, ' U'],
  first_cell_U: Float32[Array, ' U'],
  reverse: bool,
) -> tuple[Float32[Array, 'T B U'], tuple]:
  """Returns the result of `lstm` and the arrays that its gradient needs."""
  weights = kernel_DV, bias_V, recurrent_UV, first_state_U, first_cell_U
  states = _states(x_TBD, real_TB, *weights, reverse, keep_gates=True)
  h_TBU = states[0] * real_TB[:, :, None]
  return h_TBU, (x_TBD, real_TB, *weights, states)


def _lstm_backward(
  reverse: bool, saved: tuple, dh_TBU: Float32[Array, 'T B U']
) -> tuple:
  """Returns the gradients of the arguments of `lstm`."""
  x_TBD, real_TB, kernel_DV, _, recurrent_UV, *first, states = saved
  h_TBU, c_TBU, i, f, g, o = states
  first_state_BU, first_cell_BU = (
    jnp.broadcast_to(first_U, h_TBU.shape[1:]) for first_U in first
  )
  real_TB1 = real_TB[:, :, None]
  before_TBU = states_before(h_TBU, first_state_BU, reverse)
  cell_before_TBU = states_before(c_TBU, first_cell_BU, reverse)
  tanh_TBU = jnp.tanh(c_TBU)
  # by_cell is the derivative of a step's state with respect to its cell.
  # by_gates are the derivatives of the cell (i, f, g) and of the state (o) with
  # respect to the inputs of the activations.
  by_cell_TBU = o * (1 - tanh_TBU**2) * real_TB1
  by_gates_TBV = jnp.concatenate(
    [
      g * i * (1 - i) * real_TB1,
      cell_before_TBU * f * (1 - f) * real_TB1,
      i * (1 - g**2) * real_TB1,
      tanh_TBU * o * (1 - o) * real_TB1,
    ],
    axis=2,
  )
  # Padding passes the gradients on to the first state.
  by_state_TB1 = 1 - real_TB1
  by_cell_before_TBU = f * real_TB1 + by_state_TB1
  recurrent_VU = recurrent_UV.T

  def step(later: tuple, inputs: tuple) -> tuple[tuple, jax.Array]:
    dh_BU, by_cell_BU, by_gates_BV, by_state_B1, by_cell_before_BU = inputs
    dh_BU += later[0]
    dc_BU = later[1] + dh_BU * by_cell_BU
    dgates_BV = jnp.concatenate([dc_BU, dc_BU, dc_BU, dh_BU], 1) * by_gates_BV
    dh_BU = dh_BU * by_state_B1 + state_product(dgates_BV, recurrent_VU)
    return (dh_BU, dc_BU * by_cell_before_BU), dgates_BV

  zero_BU = jnp.zeros_like(dh_TBU[0])
  dfirst, dgates_TBV = lax.scan(
    step,
    (zero_BU, zero_BU),
    (
      dh_TBU * real_TB1,
      by_cell_TBU,
      by_gates_TBV,
      by_state_TB1,
      by_cell_before_TBU,
    ),
    reverse=not reverse,
  )
  return (
    state_product(dgates_TBV, kernel_DV.T).astype(x_TBD.dtype),
    None,
    kernel_gradient(x_TBD, dgates_TBV),
    dgates_TBV.sum(axis=(0, 1)),
    kernel_gradient(before_TBU.astype(x_TBD.dtype), dgates_TBV),
    *(d_BU.sum(axis=0) for d_BU in dfirst),
  )


lstm.defvjp(_lstm_forward, _lstm_backward)


class LSTM(Direction):
  """Computes one direction of one layer (Gers et al. 2000), with a first state.

  For an input x, a state h and a cell c, the gates are i, f and o, each of the
  form sigmoid(W x + b + U h) with its own W, b and U. The candidate is
  g = tanh(W_g x + b_g + U_g h). The new cell is c' = f c + i g, and the new
  state is h' = o tanh(c').

  As in AttentionXML (You et al. 2019, Section 3.2, and its public code), the
  state and the cell before the first token are learnt.

  Attributes:
    kernel: W, float32 [D, V]. The V = 4U columns belong to i, f, g, then o.
    bias: b, float32 [V].
    recurrent: U, float32 [U, V].
    first_state, first_cell: h and c before the first token, float32 [U].
  """

  gates = 4
  vectors = 'first_state', 'first_cell'
  states = staticmethod(lstm)


class BiLSTM(Bidirectional):
  """Reads tokens with one or more layers of bidirectional LSTMs."""

  direction = LSTM
