"""Top-k lists of documents are merged and cut."""

import numpy as np

from xjax.core.types import PAD
from xjax.judge.label_lists import LabelLists

NONE = -np.inf


def test_merged_lists_have_no_label_twice():
  one = LabelLists(np.array([[3, 1]], np.int32), np.array([[2, 1]], np.float32))
  # Another score, and 3 stands between the two entries of 1.
  other = LabelLists(
    np.array([[1, 0]], np.int32), np.array([[3, 0.5]], np.float32)
  )
  merged = LabelLists.merge([one, other])
  assert merged.ids.tolist() == [[1, 3, 0, PAD]]
  assert merged.scores.tolist() == [[3, 2, 0.5, NONE]]


def test_cut_lists():
  lists = LabelLists(
    np.array([[0, 1, 2], [4, 3, PAD]], np.int32),
    np.array([[0, -1, -2], [0, -1, NONE]], np.float32),
  )
  cut = lists.cut(np.array([1, 0, 1, 0, 1], bool))
  assert cut.ids.tolist() == [[0, 2, PAD], [4, PAD, PAD]]
  assert cut.scores.tolist() == [[0, -2, NONE], [0, NONE, NONE]]
  assert cut.lengths.tolist() == [2, 1]
