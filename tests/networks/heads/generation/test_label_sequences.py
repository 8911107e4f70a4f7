"""Tests label sequences against sequences that are written label by label."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.types import PAD
from xjax.networks.heads.generation.radar import (
  Order,
  label_ranks,
  label_sequences,
)


def sequences_of(positives, levels, counts=None, order=Order.ROOTS_FIRST):
  """The inputs and the targets of each document, without padding."""
  levels = np.asarray(levels, np.int32)
  counts = None if counts is None else np.asarray(counts)
  ranks = jnp.asarray(label_ranks(levels, counts, order))
  width = max(len(row) for row in positives)
  padded = [[*row, *[PAD] * (width - len(row))] for row in positives]
  arrays = jnp.asarray(padded, jnp.int32), ranks, jnp.asarray(levels)
  sizes = len(levels), len(np.unique(levels))
  run = jax.jit(label_sequences, static_argnums=(3, 4))
  result = run(*arrays, *sizes)
  steps = width + min(width, sizes[1]) + 1
  assert result.targets.shape == (len(positives), steps)
  parts = result.inputs, result.targets, result.real
  rows = zip(*map(np.asarray, parts))
  return [(x[real].tolist(), y[real].tolist()) for x, y, real in rows]


def written(row, levels, counts, order):
  """The targets of a document, one symbol after the other."""
  n, targets = len(levels), []
  labels = sorted({x for x in row if 0 <= x < n}, key=lambda x: (-counts[x], x))
  level_order = sorted(set(levels), reverse=order is Order.LEAVES_FIRST)
  for level in level_order:
    of_level = [x for x in labels if levels[x] == level]
    targets += [*of_level, n] if of_level else []
  return [*targets, n + 1]


LEVELS, COUNTS = [2, 1, 2, 1, 3], [3, 5, 9, 6, 1]


@pytest.mark.parametrize(
  ('row', 'levels', 'counts', 'order', 'expected'),
  [
    # 5 ends a level; 6 starts and ends the sequence. Frequent ones come first.
    (
      [4, 1, 0, 3, 2],
      *(LEVELS, COUNTS, Order.ROOTS_FIRST),
      [3, 1, 5, 2, 0, 5, 4, 5, 6],
    ),
    (
      [4, 1, 0, 3, 2],
      *(LEVELS, COUNTS, Order.LEAVES_FIRST),
      [4, 5, 2, 0, 5, 3, 1, 5, 6],
    ),
    # Labels of equal frequency stand by index. Repeated labels, padding and
    # labels of no head are left out.
    ([2, 7, 0, PAD, 1, 1], [1] * 3, None, Order.ROOTS_FIRST, [0, 1, 2, 3, 4]),
    # Without labels there is only the end.
    ([3], [1, 2, 2], None, Order.ROOTS_FIRST, [4]),
  ],
)
def test_sequences_by_hand(row, levels, counts, order, expected):
  ((inputs, targets),) = sequences_of([row], levels, counts, order)
  assert targets == expected
  assert inputs == [len(levels) + 1, *targets[:-1]]


@pytest.mark.parametrize('order', Order)
def test_random_documents(order):
  rng = np.random.default_rng(0)
  levels = rng.integers(1, 21, 60).tolist()
  counts = rng.integers(0, 4, 60)
  rows = [rng.integers(-1, 64, n).tolist() for n in rng.integers(0, 30, 50)]
  for row, (inputs, targets) in zip(
    rows, sequences_of(rows, levels, counts, order)
  ):
    assert targets == written(row, levels, counts, order)
    assert inputs == [61, *targets[:-1]]
