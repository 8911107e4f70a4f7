"""Defines binary cross entropy on logits."""

import dataclasses
import math

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32

from xjax.core.numerics import total
from xjax.losses.loss import ChunkLoss, LabelLoss, LabelLossConfig


@dataclasses.dataclass
class BCEConfig(LabelLossConfig):
  """Chooses binary cross entropy as the loss, so that scores are logits."""

  def build(self) -> ChunkLoss:
    return BCE(reduction=self.reduction)


_FOLDED = 16  # maximum number of documents per logarithm (see _folded)


@dataclasses.dataclass(frozen=True)
class BCE(LabelLoss):
  """Computes the negative log likelihood of independent labels.

  A label with logit z and target y, 0 or 1, has the loss softplus(z) - y z.
  This formula does not overflow and is accurate for every logit. The derivative
  is sigmoid(z) - y.
  """

  def __call__(
    self, logits_BC: Float[Array, 'B C'], targets_BC: Bool[Array, 'B C']
  ) -> tuple[Float[Array, 'B C'], Float[Array, 'B C']]:
    loss_BC = jax.nn.softplus(logits_BC) - jnp.where(targets_BC, logits_BC, 0.0)
    return loss_BC, jax.nn.sigmoid(logits_BC) - targets_BC

  def absent(
    self,
    logits_BC: Float32[Array, 'B C'],
    weight_C: Float32[Array, ' C'] | None = None,
  ) -> tuple[Float32[Array, ''], Float32[Array, 'B C']]:
    if weight_C is not None:
      return super().absent(logits_BC, weight_C)
    return _softplus_sum(logits_BC), jax.nn.sigmoid(logits_BC)

  def summed(
    self, logits_BC: Float32[Array, 'B C'], targets_BC: Bool[Array, 'B C']
  ) -> tuple[Float32[Array, ''], Float32[Array, 'B C']]:
    # The loss of a gold label is softplus(-z).
    loss = _softplus_sum(jnp.where(targets_BC, -logits_BC, logits_BC))
    return loss, jax.nn.sigmoid(logits_BC) - targets_BC


def _softplus_sum(logits_BC: Float32[Array, 'B C']) -> Float32[Array, '']:
  """Returns the sum of softplus(z), by the fastest method of each platform."""
  return lax.platform_dependent(
    logits_BC, cpu=_folded, default=lambda z_BC: jax.nn.softplus(z_BC).sum()
  )


def _folded(logits_BC: Float32[Array, 'B C']) -> Float32[Array, '']:
  """Returns the sum of softplus(z), with one logarithm for several documents.

  On CPUs, the logarithm takes most of the time of the loss. softplus(z) is
  max(z, 0) + log(1 + e), where e = exp(-|z|). A sum of terms log(1 + e) is the
  logarithm of the product of the factors 1 + e.

  The product of the previous factors is 1 + s, but only s is stored, because
  1 + s is rounded if s is very small. The next product is
  (1 + s)(1 + e) = 1 + (s + e + s e), so the next s is s + e + s e.
  """
  documents, labels = logits_BC.shape
  count = math.gcd(documents, _FOLDED)

  def fold(carry: tuple, logits_BC: jax.Array) -> tuple[tuple, None]:
    above_BC, folded_BC = carry
    e_BC = jnp.exp(-jnp.abs(logits_BC))
    folded_BC += e_BC + folded_BC * e_BC
    return (above_BC + jnp.maximum(logits_BC, 0.0), folded_BC), None

  zero_BC = jnp.zeros((documents // count, labels))
  (above_BC, folded_BC), _ = lax.scan(
    fold, (zero_BC, zero_BC), logits_BC.reshape(count, -1, labels)
  )
  return total(above_BC + jnp.log1p(folded_BC))


bce = BCE()
