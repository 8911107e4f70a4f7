"""A mean of the parameters over steps, kept and judged beside them."""

from typing import Any

import jax
import jax.numpy as jnp

from xjax.config.run import AverageConfig, EMAConfig, NoAverage, SWAConfig
from xjax.core.errors import ConfigError


def differs(config: AverageConfig, step: int) -> bool:
  """Whether the mean after a step is of more than that step's parameters."""
  match config:
    case NoAverage():
      return False
    case EMAConfig(start=start):
      return step > start
    case SWAConfig(start=start):
      return step > start
  raise _unknown(config)


def newest_share(config: AverageConfig, step: jax.Array) -> jax.Array:
  """Share of a step's parameters in the mean after it.

  Args:
    config: of the mean.
    step: int32 scalar, steps taken, at least 1.

  Returns:
    float32 scalar; up to the start it is 1.
  """
  match config:
    case EMAConfig(decay=decay, start=start):
      return jnp.where(step <= start, 1.0, 1 - decay)
    case SWAConfig(start=start, every=every):
      taken, rest = jnp.divmod(step - start, every)
      share = jnp.where(rest == 0, 1 / (jnp.maximum(taken, 0) + 1), 0.0)
      return jnp.where(step <= start, 1.0, share)
  raise _unknown(config)


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


def _unknown(config: AverageConfig) -> ConfigError:
  return ConfigError(f'no mean is made from {config!r}')
