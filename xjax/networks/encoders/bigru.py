"""Defines the bidirectional GRU."""

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
