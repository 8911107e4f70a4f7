"""Precision, recall and F of each label, from its counts."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def precision(
  correct_L: Float[Array, '*R L'], predicted_L: Float[Array, '*R L']
) -> Float[Array, '*R L']:
  """TP / (TP + FP), 0 for a label never predicted."""
  return correct_L / jnp.maximum(predicted_L, 1)


def recall(
  correct_L: Float[Array, '*R L'], gold_L: Float[Array, '*R L']
) -> Float[Array, '*R L']:
  """TP / (TP + FN), 0 for a label that is never gold."""
  return correct_L / jnp.maximum(gold_L, 1)


def f_beta(
  correct_L: Float[Array, '*R L'],
  predicted_L: Float[Array, '*R L'],
  gold_L: Float[Array, '*R L'],
  beta: float = 1.0,
) -> Float[Array, '*R L']:
  """(1 + b^2) TP / (b^2 gold + predicted), 0 where that is 0 / 0.

  With beta = 1 it is F1 (paper on binned macro-F1, eq. 1; a label never
  predicted has 0), else the F of Schultheis et al. 2022, section 3.2.
  """
  square = beta * beta
  both_L = square * gold_L + predicted_L
  return (1 + square) * correct_L / jnp.where(both_L > 0, both_L, 1)


def covered(correct_L: Float[Array, '*R L']) -> Float[Array, '*R L']:
  """1 for a label with a correct prediction (eq. 13)."""
  return (correct_L > 0).astype(correct_L.dtype)


def covered_share(
  correct_L: Float[Array, '*R L'], gold_L: Float[Array, '*R L'], alpha: float
) -> Float[Array, '*R L']:
  """1 for a label whose recall is at least alpha, in [0, 1] (eq. 28).

  With alpha = 0 it must be above 0, as for coverage.

  A label that is never gold has recall 0.
  """
  # As a quotient: 51 / 75 is the float nearest to 0.68, and so is 0.68 itself,
  # while 0.68 * 75 is more than 51.
  enough_L = correct_L / jnp.maximum(gold_L, 1) >= alpha
  return (enough_L & (correct_L > 0)).astype(correct_L.dtype)


def covered_sample(
  correct_L: Float[Array, '*R L'],
  n_docs: Float[Array, ''] | float,
  n_drawn: int,
) -> Float[Array, '*R L']:
  """The chance that some of n_drawn documents has a correct prediction.

  1 - (1 - c_l / n)^n' for documents drawn with replacement (eq. 24-25).
  """
  share_L = jnp.minimum(correct_L / jnp.maximum(n_docs, 1), 1)
  # log1p keeps what 1 - share loses where share is small.
  return -jnp.expm1(n_drawn * jnp.log1p(-share_L))


def entropy_part(correct_L: Float[Array, '*R L']) -> Float[Array, '*R L']:
  """A label's c log2 c; log2 C - (their sum) / C is the entropy (eq. 15).

  C is the sum of c over labels: rho_l = c_l / C.
  """
  return correct_L * jnp.log2(jnp.maximum(correct_L, 1))
