"""Defines configs for optimizers and for means of the parameters over steps."""

import abc
from collections.abc import Iterator
import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from xjax.core.config_part import (
  AMOUNT,
  AT_LEAST_0,
  AT_LEAST_1,
  POSITIVE,
  RATE,
  ConfigPart,
  field,
)


@dataclasses.dataclass
class OptimizerConfig(ConfigPart, abstract=True):
  """Defines the rule that computes a step's direction from the gradient."""

  # Each step subtracts learning rate * weight_decay * W from every matrix W
  # (decoupled weight decay). None means no weight decay. An annotation would
  # make weight_decay the first field of subclasses.
  weight_decay = None

  @abc.abstractmethod
  def build(self) -> optax.GradientTransformation:
    """Returns the rule, without learning rate, clipping and weight decay."""


@dataclasses.dataclass
class Adam(OptimizerConfig):
  """Configures the optimizer Adam (Kingma & Ba 2015)."""

  b1: float = field(0.9, 'Decay rate of the mean of gradients.', RATE)
  b2: float = field(0.999, 'Decay rate of the mean of squared gradients.', RATE)
  eps: float = field(
    1e-8,
    'The number that is added to the root of the mean of squared gradients.',
    POSITIVE,
  )

  def build(self) -> optax.GradientTransformation:
    return optax.scale_by_adam(self.b1, self.b2, self.eps)


@dataclasses.dataclass
class AdamW(Adam):
  """Configures Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""

  weight_decay: float = field(
    0.0,
    'Each step subtracts learning rate * weight_decay * W from every matrix W. '
    'Vectors do not decay.',
    AMOUNT,
  )


@dataclasses.dataclass
class AverageConfig(ConfigPart, abstract=True):
  """Defines how a mean of the parameters over training steps is computed.

  Training keeps the mean in addition to the parameters, and judges both.
  best_metric chooses the best checkpoint by the metrics of the mean. A finished
  run predicts, and is evaluated, with the mean. Up to the step `start`, whose
  parameters are the first in the mean, the mean is equal to the parameters.
  """

  averages: ClassVar[bool] = True
  start = 0  # without annotation, like OptimizerConfig.weight_decay

  @abc.abstractmethod
  def newest_share(self, step: jax.Array) -> jax.Array:
    """Returns the share of the newest parameters; it is 1 up to `start`."""

  def differs(self, step: int) -> bool:
    """Returns whether the mean after a step differs from the parameters."""
    return self.averages and step > self.start

  def faults(self, config: Any, path: str) -> Iterator[str]:
    if self.averages and self.start >= config.train.steps:
      yield (
        f'{path}.start={self.start}: must be below '
        f'config.train.steps={config.train.steps}'
      )


@dataclasses.dataclass
class NoAverage(AverageConfig):
  """Keeps no mean, so that runs use the parameters themselves."""

  averages = False

  def newest_share(self, step: jax.Array) -> jax.Array:
    return jnp.float32(1)


@dataclasses.dataclass
class EMAConfig(AverageConfig):
  """Keeps an exponential moving average of the parameters."""

  decay: float = field(
    0.999, 'Share of the old mean in the mean after a step.', RATE
  )
  start: int = field(
    0, 'Step whose parameters are the first in the mean.', AT_LEAST_0
  )

  def newest_share(self, step: jax.Array) -> jax.Array:
    return jnp.where(step <= self.start, 1.0, 1 - self.decay)


@dataclasses.dataclass
class SWAConfig(AverageConfig):
  """Keeps an unweighted mean of the parameters (SWA, Izmailov et al. 2018)."""

  start: int = field(
    0, 'Step whose parameters are the first in the mean.', AT_LEAST_0
  )
  every: int = field(
    1,
    'The mean is taken over the parameters of the step `start` and of every '
    'n-th step after that step, where n is this number. start + every must be '
    'at most train.steps.',
    AT_LEAST_1,
  )

  def newest_share(self, step: jax.Array) -> jax.Array:
    index, rest = jnp.divmod(step - self.start, self.every)
    share = jnp.where(rest == 0, 1 / (jnp.maximum(index, 0) + 1), 0.0)
    return jnp.where(step <= self.start, 1.0, share)

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from (faults := list(super().faults(config, path)))
    second, steps = self.start + self.every, config.train.steps
    if not faults and second > steps:
      yield (
        f'{path}.every={self.every}: the mean would have only the parameters '
        f'of step {path}.start={self.start}, because the second step in the '
        f'mean, {second}, is after config.train.steps={steps}'
      )
