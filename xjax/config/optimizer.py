"""The rules by which training changes parameters: optimizers, and means."""

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
  at_most,
  field,
)


@dataclasses.dataclass
class OptimizerConfig(ConfigPart, abstract=True):
  """The rule that makes a step's direction of its gradient.

  Attributes:
    weight_decay: share of a matrix that each step takes from it, times the
      learning rate (decoupled weight decay); None: there is none.
  """

  # No annotation: it would make this the first field of those that have it.
  weight_decay = None

  @abc.abstractmethod
  def build(self) -> optax.GradientTransformation:
    """The rule, without learning rate, clipping and weight decay."""


@dataclasses.dataclass
class Adam(OptimizerConfig):
  """Adam (Kingma & Ba 2015)."""

  earlier_kind = 'adam'

  b1: float = field(0.9, 'Decay of the mean of gradients.', RATE)
  b2: float = field(0.999, 'Decay of the mean of their squares.', RATE)
  eps: float = field(1e-8, 'Added to the root of the latter.', POSITIVE)

  def build(self) -> optax.GradientTransformation:
    return optax.scale_by_adam(self.b1, self.b2, self.eps)


@dataclasses.dataclass
class AdamW(Adam):
  """Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""

  earlier_kind = 'adamw'

  weight_decay: float = field(
    0.0, 'Share of a matrix that a step takes; vectors keep all.', AMOUNT
  )


@dataclasses.dataclass
class AverageConfig(ConfigPart, abstract=True):
  """Which mean of the parameters over steps is kept beside them.

  The mean is judged beside the parameters; it is what best_metric chooses by,
  and what is loaded, predicts and is evaluated in the end. Up to its start it
  is the parameters themselves.

  Attributes:
    averages: whether a mean is kept at all.
    start: the step whose parameters it begins with.
  """

  averages: ClassVar[bool] = True
  start = 0  # no annotation: as of weight_decay

  @abc.abstractmethod
  def newest_share(self, step: jax.Array) -> jax.Array:
    """Share of a step's parameters in the mean after it.

    Args:
      step: int32 scalar, steps taken, at least 1.

    Returns:
      float32 scalar; up to the start it is 1.
    """

  def differs(self, step: int) -> bool:
    """Whether the mean after a step is of more than that step's parameters."""
    return self.averages and step > self.start

  def check(self, config: Any, path: str) -> Iterator[str]:
    if self.averages and self.start >= config.train.steps:
      yield (
        f'{path}.start={self.start}: must be below '
        f'config.train.steps={config.train.steps}'
      )


@dataclasses.dataclass
class NoAverage(AverageConfig):
  """None: the parameters are used as they are."""

  averages = False

  def newest_share(self, step: jax.Array) -> jax.Array:
    return jnp.float32(1)


@dataclasses.dataclass
class EMAConfig(AverageConfig):
  """An exponential moving average."""

  decay: float = field(0.999, 'Share of the mean that stays at a step.', RATE)
  start: int = field(
    0, 'Step whose parameters it begins with.', AT_LEAST_0, tiny=at_most(1)
  )

  def newest_share(self, step: jax.Array) -> jax.Array:
    return jnp.where(step <= self.start, 1.0, 1 - self.decay)


@dataclasses.dataclass
class SWAConfig(AverageConfig):
  """Stochastic weight averaging (Izmailov et al. 2018): the plain mean."""

  start: int = field(
    0,
    'Step whose parameters are the first of the mean.',
    AT_LEAST_0,
    tiny=at_most(1),
  )
  every: int = field(
    1,
    'Steps from one to the next; the second must be within the training.',
    AT_LEAST_1,
    tiny=1,
  )

  def newest_share(self, step: jax.Array) -> jax.Array:
    taken, rest = jnp.divmod(step - self.start, self.every)
    share = jnp.where(rest == 0, 1 / (jnp.maximum(taken, 0) + 1), 0.0)
    return jnp.where(step <= self.start, 1.0, share)

  def check(self, config: Any, path: str) -> Iterator[str]:
    yield from (faults := list(super().check(config, path)))
    second, steps = self.start + self.every, config.train.steps
    if not faults and second > steps:
      yield (
        f'{path}.every={self.every}: with {path}.start={self.start} the mean '
        f'takes in a second point at step {second}, beyond '
        f'config.train.steps={steps}: all that is trained after the start '
        'would be lost'
      )
