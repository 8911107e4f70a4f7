"""Defines rules that change label rows while their gradient is computed.

A rule changes one chunk of rows at a time. Its slots also have one row per
label, on the device of the label's row.
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
from xjax.networks.heads.head import HeadConfig


class RowGradient(NamedTuple):
  """Holds the gradient of a chunk of rows, or a direction derived from it."""

  kernel_CD: Float32[Array, 'C D']
  bias_C: Float32[Array, ' C']


Slots = Mapping[str, jax.Array]


@dataclasses.dataclass
class RowUpdateConfig(ConfigPart, abstract=True):
  """Chooses how label rows are trained."""

  fused: ClassVar[bool] = False  # in the pass that computes their gradient


@dataclasses.dataclass
class FusedRowsConfig(RowUpdateConfig, abstract=True):
  """Chooses a rule that changes label rows while their gradient is computed.

  The head is OneVsAllConfig. If training scores only the labels on shortlists,
  it can be any head whose label rows are trained.

  Such a rule needs no gradient [L, D]. A weight can be stored in 1 or 2 bytes
  (OneVsAllConfig.storage). The optimizer's clipping and learning rates, and
  train.freeze, do not apply to the rows.
  """

  fused = True

  learning_rate: float = field(
    0.05,
    'Peak learning rate of label rows. The rate follows train.schedule.',
    POSITIVE,
  )
  weight_decay = 0.0

  @property
  def names(self) -> tuple[str, ...]:
    """Returns the names of the slots."""
    return tuple(jax.eval_shape(lambda: self.slots(1, 1)))

  @abc.abstractmethod
  def slots(self, labels: int, dim: int) -> dict[str, jax.Array]:
    """Makes the initial slots, the rule's memory, float32 with labels first."""

  @abc.abstractmethod
  def update_slots(
    self, gradient: RowGradient, slots: Slots
  ) -> dict[str, jax.Array]:
    """Returns the slots of a chunk, updated with a gradient."""

  @abc.abstractmethod
  def direction(
    self, gradient: RowGradient, slots: Slots, step: jax.Array
  ) -> RowGradient:
    """Returns the direction in which the rows of a chunk are changed.

    A step adds -(learning rate) times the direction to the rows. Weight decay
    is not part of it. `slots` come from update_slots, and `step` is the number
    of steps before.
    """

  def faults(self, config: Any, path: str) -> Iterator[str]:
    kind = f'{path}={type(self).__name__}(...)'
    model = config.model
    needed = f'needs config.model.head={kinds_that("fusable", HeadConfig)}'
    if not model.head.trains_rows:
      head = type(model.head).__name__
      yield f'{kind}: {needed}, because {head}(...) has no rows of that kind'
    elif not (model.head.fusable or model.shortlist.lists_in_training):
      yield (
        f'{kind}: {needed}; with other heads, training must score only the '
        'labels on shortlists (config.model.shortlist)'
      )
    if model.head.reads_parents:
      yield (
        f'{kind}: the head must not read the parents of labels, because the '
        'rule does not train the parameters that compute vectors of labels'
      )
    if config.train.accumulate > 1:
      yield (
        f'{kind}: config.train.accumulate={config.train.accumulate} must be 1, '
        'because rows are changed once per batch'
      )
    if config.train.average.averages:
      yield f'{kind}: config.train.average must be NoAverage()'


@dataclasses.dataclass
class ByOptimizer(RowUpdateConfig):
  """Lets the optimizer train label rows, which takes a gradient [L, D]."""


@dataclasses.dataclass
class FusedSGD(FusedRowsConfig):
  """Changes label rows by stochastic gradient descent.

  ELMO (ICML 2025) uses no momentum. Renee (Jain et al. 2023) uses momentum.
  Without momentum, there are no slots.
  """

  momentum: float = field(
    0.0,
    'The last direction is multiplied by this number before the gradient is '
    'added. A number above 0 takes 4 bytes of memory per weight.',
    RATE,
  )
  weight_decay: float = field(
    0.0, 'Decoupled weight decay; biases do not decay.', AMOUNT
  )

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

  def direction(
    self, gradient: RowGradient, slots: Slots, step: jax.Array
  ) -> RowGradient:
    del step
    if not self.momentum:
      return gradient
    return RowGradient(slots['kernel_momentum'], slots['bias_momentum'])


@dataclasses.dataclass
class FusedAdagrad(FusedRowsConfig):
  """Changes label rows by Adagrad, with one sum of squares per label.

  See Duchi et al. 2011. In each step, the mean square of the row's gradient is
  added to the sum. The bias counts as an entry of the row. The gradient is then
  divided by the square root of the sum. So rare labels, whose gradients are
  mostly small, keep a high rate. The sum takes 4 bytes per label.
  """

  eps: float = field(
    1e-8,
    'Small number added to the square root of the sum of squares.',
    POSITIVE,
  )
  weight_decay: float = field(
    0.0, 'Decoupled weight decay; biases do not decay.', AMOUNT
  )

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

  def direction(
    self, gradient: RowGradient, slots: Slots, step: jax.Array
  ) -> RowGradient:
    del step
    factor_C = 1 / (jnp.sqrt(slots['squares']) + self.eps)
    kernel_CD, bias_C = gradient
    return RowGradient(kernel_CD * factor_C[:, None], bias_C * factor_C)


@dataclasses.dataclass
class FusedAdam(FusedRowsConfig):
  """Changes label rows by Adam. In training on shortlists, it is lazy.

  See Kingma & Ba 2015, Algorithm 1. In a pass over all rows, it is plain Adam.
  On shortlists, only rows of labels on a batch's shortlists change, and so do
  the means of their gradients, as in the DenseSparseAdam of AttentionXML (You
  et al. 2019). The bias correction counts all steps in both cases. The rule
  takes 8 bytes of memory per weight.
  """

  learning_rate: float = field(
    1e-3,
    'Peak learning rate of label rows. The rate follows train.schedule.',
    POSITIVE,
  )
  b1: float = field(0.9, 'Decay of the mean of gradients.', RATE)
  b2: float = field(0.999, 'Decay of the mean of squared gradients.', RATE)
  eps: float = field(
    1e-8,
    'Small number added to the square root of the mean of squares.',
    POSITIVE,
  )
  weight_decay: float = field(
    0.0, 'Decoupled weight decay; biases do not decay.', AMOUNT
  )

  def slots(self, labels: int, dim: int) -> dict[str, jax.Array]:
    return {
      f'{part}_{mean}': jnp.zeros(shape, jnp.float32)
      for part, shape in (('kernel', (labels, dim)), ('bias', (labels,)))
      for mean in ('mean', 'squares')
    }

  def update_slots(
    self, gradient: RowGradient, slots: Slots
  ) -> dict[str, jax.Array]:
    new = {}
    for part, d in zip(('kernel', 'bias'), gradient):
      mean, squares = slots[f'{part}_mean'], slots[f'{part}_squares']
      new[f'{part}_mean'] = self.b1 * mean + (1 - self.b1) * d
      new[f'{part}_squares'] = self.b2 * squares + (1 - self.b2) * d**2
    return new

  def direction(
    self, gradient: RowGradient, slots: Slots, step: jax.Array
  ) -> RowGradient:
    del gradient
    # The means begin at 0, so they are too small by these factors.
    first, second = (1 - decay ** (step + 1.0) for decay in (self.b1, self.b2))

    def towards(part: str) -> jax.Array:
      root = jnp.sqrt(slots[f'{part}_squares'] / second)
      return slots[f'{part}_mean'] / first / (root + self.eps)

    return RowGradient(towards('kernel'), towards('bias'))
