"""Defines the bidirectional GRU and the bidirectional LSTM."""

import dataclasses

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp

from xjax.networks.encoders.encoder import EncoderInputs
from xjax.networks.encoders.recurrent import (
  Bidirectional,
  Direction,
  Gates,
  RecurrentConfig,
  States,
  Vectors,
  state_product,
)


@dataclasses.dataclass
class BiGRUConfig(RecurrentConfig):
  """Chooses a bidirectional GRU of one or more layers as the encoder."""

  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    return BiGRU(inputs.dim, self, rngs=rngs)


class GRU(Direction):
  """Computes one direction of one layer (Cho et al. 2014).

  For an input x and a state h, the gates are r = sigmoid(W_r x + b_r + U_r h)
  and z = sigmoid(W_z x + b_z + U_z h). The candidate state is
  n = tanh(W_n x + b_n + r (U_n h + c)). The new state is
  h' = (1 - z) n + z h. As in cuDNN, r multiplies U_n h + c, and not only h.

  The columns of kernels belong to r, then z, then n. `candidate_bias` is c.
  """

  gates = 3
  vectors = ('candidate_bias',)

  @staticmethod
  def step(
    states: States,
    given: Gates,
    carried: Gates,
    vectors: Vectors,
    real_B1: jax.Array,
  ) -> tuple[States, Gates]:
    (h_BU,), (candidate_bias_U,) = states, vectors
    (xr, xz, xn), (ur, uz, un) = given, carried
    r, z = jax.nn.sigmoid(xr + ur), jax.nn.sigmoid(xz + uz)
    q = un + candidate_bias_U
    n = jnp.tanh(xn + r * q)
    return (((1 - z) * n + z * h_BU) * real_B1,), (r, z, n, q)

  @staticmethod
  def backward(
    dh_TBU: jax.Array,
    before: States,
    saved: tuple,
    real_TB1: jax.Array,
    recurrent_VU: jax.Array,
    reverse: bool,
  ) -> tuple[jax.Array, jax.Array, Vectors]:
    _, r, z, n, q = saved
    # by_n, by_r and by_z are the derivatives of a step's state with respect to
    # the inputs of the activations n, r and z.
    by_n = (1 - z) * (1 - n**2) * real_TB1
    by_r = by_n * q * r * (1 - r)
    by_z = (before[0] - n) * z * (1 - z) * real_TB1
    by_carried_TBV = jnp.concatenate([by_r, by_z, by_n * r], axis=2)

    # The loop carries only what depends on later steps: the state's gradient.
    def step(later_BU, inputs):
      dh_BU, by_carried_BV, by_h_BU = inputs
      dh_BU += later_BU
      dcarried_BV = jnp.tile(dh_BU, 3) * by_carried_BV
      return dh_BU * by_h_BU + state_product(dcarried_BV, recurrent_VU), dh_BU

    inputs = dh_TBU, by_carried_TBV, z * real_TB1
    zero_BU = jnp.zeros_like(dh_TBU[0])
    _, dh_TBU = lax.scan(step, zero_BU, inputs, reverse=not reverse)
    dcarried_TBV = jnp.tile(dh_TBU, 3) * by_carried_TBV
    units = 2 * recurrent_VU.shape[1]  # of r and z, which see W x and U h alike
    dgiven_TBV = jnp.concatenate(
      [dcarried_TBV[..., :units], dh_TBU * by_n], axis=2
    )
    dvectors = (dcarried_TBV[..., units:].sum(axis=(0, 1)),)
    return dgiven_TBV, dcarried_TBV, dvectors


class BiGRU(Bidirectional):
  """Reads tokens with one or more layers of bidirectional GRUs."""

  direction = GRU


@dataclasses.dataclass
class BiLSTMConfig(RecurrentConfig):
  """Chooses a bidirectional LSTM whose first state is learnt (AttentionXML)."""

  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    return BiLSTM(inputs.dim, self, rngs=rngs)


class LSTM(Direction):
  """Computes one direction of one layer (Gers et al. 2000), with a first state.

  For an input x, a state h and a cell c, the gates are i, f and o, each of the
  form sigmoid(W x + b + U h) with its own W, b and U. The candidate is
  g = tanh(W_g x + b_g + U_g h). The new cell is c' = f c + i g, and the new
  state is h' = o tanh(c').

  As in AttentionXML (You et al. 2019, Section 3.2, and its public code), the
  state and the cell before the first token are learnt.

  The columns of kernels belong to i, f, g, then o. first_state and first_cell
  are h and c before the first token.
  """

  gates = 4
  vectors = 'first_state', 'first_cell'
  learns_first = True

  @staticmethod
  def step(
    states: States,
    given: Gates,
    carried: Gates,
    vectors: Vectors,
    real_B1: jax.Array,
  ) -> tuple[States, Gates]:
    summed = (x + u for x, u in zip(given, carried))
    i, f, g, o = (
      jnp.tanh(x) if gate == 2 else jax.nn.sigmoid(x)
      for gate, x in enumerate(summed)
    )
    first_state_U, first_cell_U = vectors
    is_real_B1 = real_B1 > 0
    c_BU = jnp.where(is_real_B1, f * states[1] + i * g, first_cell_U)
    h_BU = jnp.where(is_real_B1, o * jnp.tanh(c_BU), first_state_U)
    return (h_BU, c_BU), (i, f, g, o)

  @staticmethod
  def backward(
    dh_TBU: jax.Array,
    before: States,
    saved: tuple,
    real_TB1: jax.Array,
    recurrent_VU: jax.Array,
    reverse: bool,
  ) -> tuple[jax.Array, jax.Array, Vectors]:
    _, c_TBU, i, f, g, o = saved
    tanh_TBU = jnp.tanh(c_TBU)
    # by_cell is the derivative of a step's state with respect to its cell.
    # by_gates are the derivatives of the cell (i, f, g) and of the state (o)
    # with respect to the inputs of the activations.
    by_cell_TBU = o * (1 - tanh_TBU**2) * real_TB1
    by_gates_TBV = jnp.concatenate(
      [
        g * i * (1 - i) * real_TB1,
        before[1] * f * (1 - f) * real_TB1,
        i * (1 - g**2) * real_TB1,
        tanh_TBU * o * (1 - o) * real_TB1,
      ],
      axis=2,
    )
    # Padding passes the gradients on to the first state.
    by_state_TB1 = 1 - real_TB1
    by_cell_before_TBU = f * real_TB1 + by_state_TB1

    def step(later, inputs):
      dh_BU, by_cell_BU, by_gates_BV, by_state_B1, by_cell_before_BU = inputs
      dh_BU += later[0]
      dc_BU = later[1] + dh_BU * by_cell_BU
      dgates_BV = jnp.concatenate([dc_BU, dc_BU, dc_BU, dh_BU], 1) * by_gates_BV
      dh_BU = dh_BU * by_state_B1 + state_product(dgates_BV, recurrent_VU)
      return (dh_BU, dc_BU * by_cell_before_BU), dgates_BV

    zero_BU = jnp.zeros_like(dh_TBU[0])
    derivatives = by_cell_TBU, by_gates_TBV, by_state_TB1, by_cell_before_TBU
    dfirst, dgates_TBV = lax.scan(
      step,
      (zero_BU, zero_BU),
      (dh_TBU * real_TB1, *derivatives),
      reverse=not reverse,
    )
    return dgates_TBV, dgates_TBV, tuple(d_BU.sum(axis=0) for d_BU in dfirst)


class BiLSTM(Bidirectional):
  """Reads tokens with one or more layers of bidirectional LSTMs."""

  direction = LSTM
