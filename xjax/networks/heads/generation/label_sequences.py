"""Turns the gold labels of documents into label sequences, level by level."""

import enum

from flax import struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Int32
import numpy as np


class Order(enum.Enum):
  """Says in which order the levels of a label sequence come."""

  ROOTS_FIRST = 'roots_first'  # as in RADAr++ (Bertalis et al. 2025)
  LEAVES_FIRST = 'leaves_first'  # better, says RADAr (Yousef et al. 2025)


def label_ranks(
  levels_L: Int[np.ndarray, ' L'],
  counts_L: Int[np.ndarray, ' L'] | None,
  order: Order,
) -> Int32[np.ndarray, ' L']:
  """Returns the place of each label in the order of label sequences.

  Labels are sorted by level, from 1 at the roots. Inside a level, frequent
  labels come first, and labels of equal frequency, or without counts, are
  sorted by index. This is the order of the public code of RADAr++, which
  numbers labels by falling frequency.
  """
  if counts_L is None:
    counts_L = np.zeros(len(levels_L), np.int64)
  sign = 1 if order is Order.ROOTS_FIRST else -1
  by_rank = np.lexsort((-np.asarray(counts_L, np.int64), sign * levels_L))
  ranks = np.empty(len(levels_L), np.int32)
  ranks[by_rank] = np.arange(len(levels_L))
  return ranks


@struct.dataclass
class Sequences:
  """Holds the label sequences of a batch.

  With L labels, the symbols 0 to L - 1 are the labels. The symbol L ends a
  level. The symbol L + 1 starts a sequence in `inputs`, and ends it in
  `targets`. All arrays are [B, steps].
  """

  inputs: jax.Array  # int32, the start and then the symbols before the end
  targets: jax.Array  # int32, the symbol that follows each input
  real: jax.Array  # bool, False after the end


def label_sequences(
  positives_BP: Int32[Array, 'B P'],
  ranks_L: Int32[Array, ' L_or_more'],
  levels_L: Int32[Array, ' L_or_more'],
  n_labels: int,
  n_levels: int,
) -> Sequences:
  """Makes the label sequences of documents.

  A sequence has the gold labels of a document in the order of their ranks. The
  labels of each level are followed by the symbol L. Levels without gold labels
  have no symbol. So a document without gold labels has only the end. Repeated
  labels count once, and labels from n_labels on are ignored. The sequences have
  P + min(P, n_levels) + 1 steps.
  """
  documents, most = positives_BP.shape
  steps = most + min(most, n_levels) + 1
  inside_BP = (positives_BP >= 0) & (positives_BP < n_labels)
  labels_BP = jnp.where(inside_BP, positives_BP, 0)
  keys_BP = jnp.where(inside_BP, ranks_L[labels_BP], n_labels)
  order_BP = jnp.argsort(keys_BP, axis=1)
  keys_BP = jnp.take_along_axis(keys_BP, order_BP, axis=1)
  labels_BP = jnp.take_along_axis(labels_BP, order_BP, axis=1)
  kept_BP = (keys_BP < n_labels) & _differs_from_last(keys_BP)
  opens_BP = kept_BP & _differs_from_last(levels_L[labels_BP])
  # Before a label come the labels of lower rank, and the ends of the levels
  # that came before its own.
  place_BP = jnp.cumsum(kept_BP, axis=1) + jnp.cumsum(opens_BP, axis=1) - 2
  place_BP = jnp.where(kept_BP, place_BP, steps)
  size_B1 = (kept_BP.sum(axis=1) + opens_BP.sum(axis=1))[:, None]
  at = jnp.arange(steps)
  targets = jnp.where(at < size_B1, n_labels, n_labels + 1).astype(jnp.int32)
  rows_B1 = jnp.arange(documents)[:, None]
  targets = targets.at[rows_B1, place_BP].set(labels_BP, mode='drop')
  start_B1 = jnp.full((documents, 1), n_labels + 1, jnp.int32)
  inputs = jnp.concatenate([start_B1, targets[:, :-1]], axis=1)
  return Sequences(inputs, targets, at <= size_B1)


def _differs_from_last(x_BP: Int32[Array, 'B P']) -> Bool[Array, 'B P']:
  """Returns where an entry differs from its predecessor; True at first."""
  differs = x_BP[:, 1:] != x_BP[:, :-1]
  return jnp.pad(differs, ((0, 0), (1, 0)), constant_values=True)
