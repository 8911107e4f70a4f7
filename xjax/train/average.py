"""A mean of the parameters over steps, kept and judged beside them."""

from typing import Any

import jax
import jax.numpy as jnp


def with_newest(mean: Any, newest: Any, share: jax.Array) -> Any:
  """The mean once it has taken in a step's parameters.

  Args:
    mean, newest: pytrees of the same arrays.
    share: of the newest; at 1 they are the mean, bit by bit.
  """
  return jax.tree.map(
    lambda old, new: jnp.where(share == 1, new, old + share * (new - old)),
    mean,
    newest,
  )
