"""Binary cross entropy on logits."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def bce(
  logits_BC: Float[Array, 'B C'], targets_BC: Bool[Array, 'B C']
) -> tuple[Float[Array, ' B'], Float[Array, 'B C']]:
  """Sum over labels of the negative log likelihood of independent labels.

  softplus(z) - y z per label, which neither overflows nor loses digits at any
  logit. A logit of -inf that is no target costs nothing (padded labels).

  Args:
    logits_BC: float32.
    targets_BC: whether the label is gold.

  Returns:
    loss_B: float32 nats, summed over the chunk's labels.
    dlogits_BC: sigmoid(z) - y.
  """
  loss_BC = jax.nn.softplus(logits_BC) - jnp.where(targets_BC, logits_BC, 0.0)
  dlogits_BC = jax.nn.sigmoid(logits_BC) - targets_BC
  return loss_BC.sum(axis=1), dlogits_BC
