"""Tests label sequences against sequences that are written label by label."""

import jax
import numpy as np
import pytest

from xjax.core.types import PAD
from xjax.networks.heads.generation.radar import (
  Order,
  label_ranks,
  label_sequences,
)

LABELS = 60


def written(row, levels, counts, order):
  """The targets of a document, one symbol after the other."""
  targets = []
  labels = {label for label in row if 0 <= label < LABELS}
  # Frequent ones come first; of equal frequency, those of a lower index.
  labels = sorted(labels, key=lambda label: (-counts[label], label))
  for level in sorted(set(levels), reverse=order is Order.LEAVES_FIRST):
    of_level = [label for label in labels if levels[label] == level]
    targets += [*of_level, LABELS] if of_level else []
  return [*targets, LABELS + 1]


@pytest.mark.parametrize(
  ('order', 'counted'), [(Order.ROOTS_FIRST, True), (Order.LEAVES_FIRST, False)]
)
def test_random_documents(order, counted):
  """Labels may be repeated, be of no head, or be none."""
  rng = np.random.default_rng(0)
  levels = rng.integers(1, 21, LABELS).astype(np.int32)
  counts = rng.integers(0, 4, LABELS) * counted
  positives = np.full((50, 30), PAD, np.int32)
  for row, n in enumerate(rng.integers(0, 30, 50)):
    positives[row, :n] = rng.integers(-1, LABELS + 4, n)
  ranks = label_ranks(levels, counts if counted else None, order)
  n_levels = len(np.unique(levels))
  run = jax.jit(label_sequences, static_argnums=(3, 4))
  result = run(positives, ranks, levels, LABELS, n_levels)
  assert result.targets.shape == (50, 30 + n_levels + 1)
  for row, inputs, targets, real in zip(
    positives, *map(np.asarray, (result.inputs, result.targets, result.real))
  ):
    expected = written(row.tolist(), levels, counts, order)
    assert targets[real].tolist() == expected
    assert inputs[real].tolist() == [LABELS + 1, *expected[:-1]]
