"""Bidirectional GRU with everything hoisted out of its loops that can be."""

import functools

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp

from xjax.models.config import BiGRUConfig
from xjax.models.layers import dropout


class GRU(nnx.Module):
  """One direction of one layer (Cho et al. 2014, with cuDNN's reset gate).

  r = sigmoid(W_r x + b_r + U_r h); z likewise;
  n = tanh(W_n x + b_n + r (U_n h + c)); h' = (1 - z) n + z h.

  Attributes:
    kernel: W, float32 [D, 3H], the gates in the order r, z, n.
    bias: b, float32 [3H].
    recurrent: U, float32 [H, 3H].
    candidate_bias: c, float32 [H].
  """

  def __init__(self, dim: int, units: int, *, reverse: bool, rngs: nnx.Rngs):
    """Glorot input kernel, orthogonal recurrent kernels, zero biases.

    Args:
      dim: input size D.
      units: H.
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
    """States h_TBH, in x's dtype; 0 where real_TB is False."""
    gates_TBG = jnp.einsum(
      'TBD,DG->TBG',
      x_TBD,
      self.kernel[...].astype(x_TBD.dtype),
      preferred_element_type=jnp.float32,
    )
    gates_TBG += self.bias[...]
    h_TBH = recur(
      gates_TBG,
      real_TB.astype(jnp.float32),
      self.recurrent[...].astype(x_TBD.dtype),
      self.candidate_bias[...],
      self.reverse,
    )
    return h_TBH.astype(x_TBD.dtype)


def _three(initializer, rngs, shape):
  return jnp.concatenate(
    [initializer(rngs.params(), shape) for _ in range(3)], axis=1
  )


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def recur(
  gates_TBG: jax.Array,
  real_TB: jax.Array,
  recurrent_HG: jax.Array,
  candidate_bias_H: jax.Array,
  reverse: bool,
) -> jax.Array:
  """The recurrence of a GRU over inputs already multiplied by W.

  The state is zeroed at padded steps: a reversed pass reaches a document's last
  token with the zero state, however far it was padded.

  Its gradient multiplies by U alone in the loop; all that does not depend on
  the next step is made at once for all steps, U's gradient as one product.

  Args:
    gates_TBG: float32, W x + b, G = 3H in the order r, z, n.
    real_TB: float32, 1 at tokens and 0 at padding.
    recurrent_HG: U, in the dtype of its products.
    candidate_bias_H: c, float32.
    reverse: whether to begin at the last step.

  Returns:
    h_TBH: float32.
  """
  return _recur(gates_TBG, real_TB, recurrent_HG, candidate_bias_H, reverse)[0]


def _recur(gates_TBG, real_TB, recurrent_HG, candidate_bias_H, reverse):
  """States, and per step what the gradient needs: r, z, n and U_n h + c."""
  units = recurrent_HG.shape[0]

  def step(h_BH, inputs):
    gates_BG, real_B = inputs
    carried_BG = _product(h_BH, recurrent_HG)
    r_BH, z_BH = jnp.split(
      jax.nn.sigmoid(gates_BG[:, : 2 * units] + carried_BG[:, : 2 * units]),
      2,
      axis=1,
    )
    q_BH = carried_BG[:, 2 * units :] + candidate_bias_H
    n_BH = jnp.tanh(gates_BG[:, 2 * units :] + r_BH * q_BH)
    h_BH = ((1 - z_BH) * n_BH + z_BH * h_BH) * real_B[:, None]
    return h_BH, (h_BH, r_BH, z_BH, n_BH, q_BH)

  first_BH = jnp.zeros((gates_TBG.shape[1], units))
  _, (h_TBH, *saved) = lax.scan(
    step, first_BH, (gates_TBG, real_TB), reverse=reverse
  )
  return h_TBH, tuple(saved)


def _recur_forward(gates_TBG, real_TB, recurrent_HG, candidate_bias_H, reverse):
  h_TBH, saved = _recur(
    gates_TBG, real_TB, recurrent_HG, candidate_bias_H, reverse
  )
  return h_TBH, (h_TBH, saved, real_TB, recurrent_HG)


def _recur_backward(reverse, residuals, dh_TBH):
  h_TBH, (r_TBH, z_TBH, n_TBH, q_TBH), real_TB, recurrent_HG = residuals
  before_TBH = _before(h_TBH, reverse)
  # All gates' derivatives are a factor times that of the state.
  by_n = (1 - z_TBH) * (1 - n_TBH**2)
  by_q = by_n * r_TBH
  by_r = by_n * q_TBH * r_TBH * (1 - r_TBH)
  by_z = (before_TBH - n_TBH) * z_TBH * (1 - z_TBH)
  factors = jnp.stack([by_r, by_z, by_q], axis=2)

  def step(carry_BH, inputs):
    dh_BH, factors_B3H, z_BH, real_B = inputs
    total_BH = (dh_BH + carry_BH) * real_B[:, None]
    dcarried_B3H = total_BH[:, None] * factors_B3H
    dcarried_BG = dcarried_B3H.reshape(total_BH.shape[0], -1)
    carry_BH = total_BH * z_BH + _product(dcarried_BG, recurrent_HG.T)
    return carry_BH, (total_BH, dcarried_BG)

  _, (total_TBH, dcarried_TBG) = lax.scan(
    step,
    jnp.zeros_like(dh_TBH[0]),
    (dh_TBH, factors, z_TBH, real_TB),
    reverse=not reverse,
  )
  units = recurrent_HG.shape[0]
  dgates_TBG = jnp.concatenate(
    [dcarried_TBG[..., : 2 * units], total_TBH * by_n], axis=2
  )
  # Flattened by hand: an einsum over T and B would copy both sides.
  drecurrent_HG = _product(
    before_TBH.reshape(-1, units).T,
    dcarried_TBG.reshape(-1, 3 * units).astype(recurrent_HG.dtype),
  ).astype(recurrent_HG.dtype)
  dbias_H = dcarried_TBG[..., 2 * units :].sum(axis=(0, 1))
  return dgates_TBG, None, drecurrent_HG, dbias_H


recur.defvjp(_recur_forward, _recur_backward)


def _product(x, kernel):
  return jnp.matmul(
    x.astype(kernel.dtype), kernel, preferred_element_type=jnp.float32
  )


def _before(h_TBH, reverse):
  """The state each step began with."""
  zero = jnp.zeros_like(h_TBH[:1])
  if reverse:
    return jnp.concatenate([h_TBH[1:], zero])
  return jnp.concatenate([zero, h_TBH[:-1]])


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
