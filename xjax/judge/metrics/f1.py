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
