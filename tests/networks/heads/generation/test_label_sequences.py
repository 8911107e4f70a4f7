"""Tests label sequences against sequences that are written label by label."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.networks.heads.generation.label_sequences import (
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


def test_labels_stand_level_by_level_and_frequent_ones_first():
  # Labels 0 to 4; 5 ends a level; 6 starts and ends the sequence.
  levels, counts = [2, 1, 2, 1, 3], [3, 5, 9, 6, 1]
  ((inputs, targets),) = sequences_of([[4, 1, 0, 3, 2]], levels, counts)
  assert targets == [3, 1, 5, 2, 0, 5, 4, 5, 6]
  assert inputs == [6, 3, 1, 5, 2, 0, 5, 4, 5]
  leaves = sequences_of([[4, 1, 0, 3, 2]], levels, counts, Order.LEAVES_FIRST)
  assert leaves[0][1] == [4, 5, 2, 0, 5, 3, 1, 5, 6]


def test_labels_of_equal_frequency_stand_by_index():
  for counts in (None, [4, 4, 4]):
    ((_, targets),) = sequences_of([[2, 0, 1]], [1, 1, 1], counts)
    assert targets == [0, 1, 2, 3, 4]


def test_repeated_labels_padding_and_labels_of_no_head_are_left_out():
  result = sequences_of(
    [[1, 0, 1, 1], [7, 0], [PAD, 2, PAD, 2], [3]], [1, 2, 2]
  )
  assert [targets for _, targets in result] == [
    [0, 3, 1, 3, 4],
    [0, 3, 4],
    [2, 3, 4],
    [4],  # only the end
  ]


def test_a_document_without_labels_has_only_the_end():
  assert sequences_of([[], [0]], [1, 2])[0] == ([3], [3])


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


def test_levels_are_those_of_the_hierarchy():
  """Several roots and parents, an orphan, and a parent that is no label."""
  labels = [
    Label('leaf', parents=('mid', 'root b')),
    Label('mid', parents=('root a',)),
    Label('root a'),
    Label('orphan'),
    Label('child', parents=('concept',)),
  ]
  hierarchy = Hierarchy.of(labels, [Label('root b'), Label('concept')])
  levels = hierarchy.levels[: len(labels)]
  ((_, targets),) = sequences_of([[0, 1, 2, 3, 4]], levels)
  assert targets == [2, 3, 5, 0, 1, 4, 5, 6]
