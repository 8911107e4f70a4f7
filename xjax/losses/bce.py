"""Binary cross entropy on logits."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def bce(
  logits_BC: Float[Array, 'B C'], targets_BC: Bool[Array, 'B C']
) -> tuple[Float[Array, 'B C'], Float[Array, 'B C']]:
  """The negative log likelihood of independent labels.

  softplus(z) - y z per label, which neither overflows nor loses digits at any
  logit. A logit of -inf that is no target costs nothing (padded labels).

  Args:
    logits_BC: float32.
    targets_BC: whether the label is gold.

  Returns:
    loss_BC: float32 nats.
    dlogits_BC: sigmoid(z) - y.
  """
  loss_BC = jax.nn.softplus(logits_BC) - jnp.where(targets_BC, logits_BC, 0.0)
  dlogits_BC = jax.nn.sigmoid(logits_BC) - targets_BC
  return loss_BC, dlogits_BC
