"""Defines the loss of sequences: smoothed cross entropy with a focal factor."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32

from xjax.core.config_part import AMOUNT, RATE, field
from xjax.losses.loss import ChunkLoss, LossConfig

_LEAST = 1e-12  # a smaller 1 - p would have an infinite slope if gamma < 1


@dataclasses.dataclass
class SequenceLossConfig(LossConfig):
  """Chooses the loss of heads that write labels one after the other.

  Each symbol of a document's label sequence has a softmax cross entropy. The
  sequence has the gold labels and other symbols, such as the end. The focal
  factor and the smoothing are those of Bertalis et al. (2025, RADAr++).
  """

  sequential = True

  gamma: float = field(
    2.0,
    'Exponent of the focal factor (1 - p)^gamma, where p is exp(-cross '
    'entropy). With gamma 0, the factor is 1.',
    AMOUNT,
  )
  smoothing: float = field(
    0.1,
    'Share of the target that is divided evenly among all symbols (label '
    'smoothing).',
    RATE,
  )

  def build(self) -> 'SequenceLoss':
    return SequenceLoss(self.gamma, self.smoothing)


@dataclasses.dataclass(frozen=True)
class SequenceLoss(ChunkLoss):
  """Computes the loss of label sequences, symbol by symbol.

  With smoothing e, the cross entropy c of a symbol is

    c = -(1 - e) log p - e mean(log q)

  where p is the probability of the right symbol, and the mean is over the
  probabilities q of all symbols. The loss of the symbol is (1 - exp(-c))^gamma
  c. So the focal factor depends on the smoothed cross entropy, as in the public
  code of RADAr++.

  That code divides the sum over the symbols of a document by the padded length,
  which is the same for all documents of a batch. Here, it stays a sum, so that
  padding has no effect.
  """

  gamma: float = 2.0
  smoothing: float = 0.1

  def of_symbols(
    self, right: Float32[Array, '*symbols'], mean: Float32[Array, '*symbols']
  ) -> Float32[Array, '*symbols']:
    """Returns the loss of symbols, from log p and the mean log probability."""
    nats = -(1 - self.smoothing) * right - self.smoothing * mean
    # expm1 keeps 1 - exp(-c) accurate if c is nearly 0.
    wrong = jnp.maximum(-jnp.expm1(-nats), _LEAST)
    return wrong**self.gamma * nats

  def __call__(
    self,
    right: Float32[Array, 'B steps'],
    mean: Float32[Array, 'B steps'],
    real: Bool[Array, 'B steps'],
  ) -> Float32[Array, ' B']:
    """Returns each document's loss, the sum over the symbols with real True."""
    # Both must also be finite where `real` is False: the gradient there would
    # be 0 times an infinite slope, which is NaN.
    return jnp.where(real, self.of_symbols(right, mean), 0).sum(axis=1)
