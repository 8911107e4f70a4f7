"""Slices of the label space and of gold."""

import numpy as np

from xjax.core.types import Ragged
from xjax.data.schema import Label, LabelSpace
from xjax.judge.metrics.slices import cut_gold, judged_masks

COUNTS = np.array([100, 50, 49, 1, 0, 0], np.int32)


def test_masks_are_those_of_the_label_space():
  space = LabelSpace(
    labels=tuple(Label(f'l{i}') for i in range(6)),
    train_counts=COUNTS,
    n_train=200,
    n_trained=4,
    n_held_out=1,
  )
  masks = judged_masks(COUNTS, np.array([4]))
  np.testing.assert_array_equal(masks.pop('all'), np.ones(6, bool))
  assert list(masks) == list(space.masks())
  for name, mask in space.masks().items():
    np.testing.assert_array_equal(masks[name], mask)


def test_cut_keeps_rows_and_order():
  gold = Ragged.of([[0, 2, 5], [], [1], [2, 4]])
  mask = np.array([1, 0, 1, 0, 1, 0], bool)
  rows = cut_gold(gold, mask)
  assert [row.tolist() for row in rows] == [[0, 2], [], [], [2, 4]]
  assert rows.indptr.dtype == np.int64 and rows.values.dtype == np.int32
  nothing = cut_gold(gold, np.zeros(6, bool))
  assert nothing.lengths.tolist() == [0, 0, 0, 0]
