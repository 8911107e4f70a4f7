"""Rules by which label rows are changed in the pass that finds their gradient.

A rule sees a chunk of rows at a time. What it remembers has a row per label,
too, and lies where the rows lie.
"""

from collections.abc import Mapping
import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32


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

  def direction(
    self, gradient: RowGradient, slots: Slots
  ) -> tuple[RowGradient, dict[str, jax.Array]]:
    """Where to go, and what it remembers then."""
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

  def direction(
    self, gradient: RowGradient, slots: Slots
  ) -> tuple[RowGradient, dict[str, jax.Array]]:
    if not self.momentum:
      return gradient, {}
    last = RowGradient(slots['kernel_momentum'], slots['bias_momentum'])
    found = jax.tree.map(lambda m, g: self.momentum * m + g, last, gradient)
    return found, {
      'kernel_momentum': found.kernel_CD,
      'bias_momentum': found.bias_C,
    }


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

  def direction(
    self, gradient: RowGradient, slots: Slots
  ) -> tuple[RowGradient, dict[str, jax.Array]]:
    kernel_CD, bias_C = gradient
    square_C = (kernel_CD**2).sum(axis=1) + bias_C**2
    squares_C = slots['squares'] + square_C / (kernel_CD.shape[1] + 1)
    factor_C = 1 / (jnp.sqrt(squares_C) + self.eps)
    found = RowGradient(kernel_CD * factor_C[:, None], bias_C * factor_C)
    return found, {'squares': squares_C}
