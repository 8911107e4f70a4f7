"""Rules by which label rows are changed in the pass that finds their gradient.

A rule sees a chunk of rows at a time. What it remembers has a row per label,
too, and lies where the rows lie.
"""

import abc
from collections.abc import Iterator, Mapping
import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32

from xjax.core.config_part import (
  AMOUNT,
  POSITIVE,
  RATE,
  ConfigPart,
  field,
  kinds_that,
)
from xjax.score.heads.contract import HeadConfig


@dataclasses.dataclass
class RowsConfig(ConfigPart, abstract=True):
  """How the label rows of a one-vs-all head are trained.

  Attributes:
    fused: whether they are changed in the pass that finds their gradient.
    momentum: share of the last direction in the next; a field where there is
      one.
  """

  fused: ClassVar[bool] = False
  momentum = 0.0

  def build(self) -> 'RowRule | None':
    """The rule that changes rows; None: the optimizer does."""
    return None


@dataclasses.dataclass
class FusedRowsConfig(RowsConfig, abstract=True):
  """By a rule of their own, in the pass that finds their gradient.

  No array as large as the rows is made, and with OneVsAllConfig's storage they
  take 1 or 2 bytes a weight. Clipping and rates are of all other parameters,
  and freeze must name none of the rows.
  """

  fused = True

  learning_rate: float = field(
    0.05, 'Peak; it follows train.schedule.', POSITIVE
  )
  weight_decay = 0.0

  @abc.abstractmethod
  def build(self) -> 'RowRule':
    """The rule that changes rows."""

  def check(self, config: Any, path: str) -> Iterator[str]:
    kind = f'{path}={type(self).__name__}(...)'
    if not config.model.head.fusable:
      head = kinds_that('fusable', HeadConfig)
      yield f'{kind}: needs config.model.head={head}'
    if config.train.accumulate > 1:
      yield (
        f'{kind}: rows are changed once per batch: '
        f'config.train.accumulate={config.train.accumulate} must be 1'
      )
    if config.train.average.averages:
      yield f'{kind}: config.train.average must be NoAverage()'


@dataclasses.dataclass
class ByOptimizer(RowsConfig):
  """As all else, by the optimizer, to which their gradient [L, D] is given."""


@dataclasses.dataclass
class FusedSGD(FusedRowsConfig):
  """Stochastic gradient descent."""

  momentum: float = field(
    0.0,
    'Share of the last direction in the next; above 0 it takes 4 bytes a '
    'weight.',
    RATE,
  )
  weight_decay: float = field(0.0, 'Decoupled; biases do not decay.', AMOUNT)

  def build(self) -> 'RowRule':
    return SGD(self.momentum)


@dataclasses.dataclass
class FusedAdagrad(FusedRowsConfig):
  """Adagrad with one sum of squares per label."""

  eps: float = field(1e-8, 'Added to the root of the sum.', POSITIVE)
  weight_decay: float = field(0.0, 'Decoupled; biases do not decay.', AMOUNT)

  def build(self) -> 'RowRule':
    return AdagradRow(self.eps)


class RowGradient(NamedTuple):
  """The gradient of a chunk of rows; what a rule makes of it is one, too.

  Attributes:
    kernel_CD, bias_C: float32.
  """

  kernel_CD: Float32[Array, 'C D']
  bias_C: Float32[Array, ' C']


Slots = Mapping[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class RowRule:
  """What rows are changed by: rows less the learning rate times `direction`.

  Attributes:
    names: of what it remembers.
  """

  @property
  def names(self) -> tuple[str, ...]:
    return tuple(jax.eval_shape(lambda: self.slots(1, 1)))

  def slots(self, labels: int, dim: int) -> dict[str, jax.Array]:
    """What it remembers at first, float32, by name, labels first."""
    raise NotImplementedError

  def update_slots(
    self, gradient: RowGradient, slots: Slots
  ) -> dict[str, jax.Array]:
    """What it remembers once it has seen a gradient."""
    raise NotImplementedError

  def direction(self, gradient: RowGradient, slots: Slots) -> RowGradient:
    """Where to go.

    Args:
      gradient: of this step.
      slots: what is remembered by now, this gradient included.
    """
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class SGD(RowRule):
  """Stochastic gradient descent, as of ELMO; with momentum as of Renee.

  Attributes:
    momentum: share of the last direction in the next; 0: none is remembered.
  """

  momentum: float = 0.0

  def slots(self, labels: int, dim: int) -> dict[str, jax.Array]:
    if not self.momentum:
      return {}
    return {
      'kernel_momentum': jnp.zeros((labels, dim), jnp.float32),
      'bias_momentum': jnp.zeros(labels, jnp.float32),
    }

  def update_slots(
    self, gradient: RowGradient, slots: Slots
  ) -> dict[str, jax.Array]:
    if not self.momentum:
      return {}
    share = self.momentum
    return {
      'kernel_momentum': share * slots['kernel_momentum'] + gradient.kernel_CD,
      'bias_momentum': share * slots['bias_momentum'] + gradient.bias_C,
    }

  def direction(self, gradient: RowGradient, slots: Slots) -> RowGradient:
    if not self.momentum:
      return gradient
    return RowGradient(slots['kernel_momentum'], slots['bias_momentum'])


@dataclasses.dataclass(frozen=True)
class AdagradRow(RowRule):
  """Adagrad (Duchi et al. 2011) with one sum of squares per row.

  A row's gradient is divided by the root of the sum over steps of its mean
  square, the bias being one of its entries. Rare labels, whose gradient is
  mostly small, keep a high rate, at the cost of 4 bytes a label.

  Attributes:
    eps: added to the root.
  """

  eps: float = 1e-8

  def slots(self, labels: int, dim: int) -> dict[str, jax.Array]:
    del dim
    return {'squares': jnp.zeros(labels, jnp.float32)}

  def update_slots(
    self, gradient: RowGradient, slots: Slots
  ) -> dict[str, jax.Array]:
    kernel_CD, bias_C = gradient
    square_C = (kernel_CD**2).sum(axis=1) + bias_C**2
    mean_C = square_C / (kernel_CD.shape[1] + 1)
    return {'squares': slots['squares'] + mean_C}

  def direction(self, gradient: RowGradient, slots: Slots) -> RowGradient:
    factor_C = 1 / (jnp.sqrt(slots['squares']) + self.eps)
    kernel_CD, bias_C = gradient
    return RowGradient(kernel_CD * factor_C[:, None], bias_C * factor_C)
