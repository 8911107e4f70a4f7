"""Top-k lists of documents are merged and cut."""

import numpy as np

from tests.judge.systems import lists_of
from xjax.core.types import PAD
from xjax.judge.label_lists import LabelLists

NONE = -np.inf


def test_merged_lists_have_no_label_twice():
  one = lists_of([[3, 1]], [[2, 1]])
  # Another score, and 3 stands between the two entries of 1.
  other = lists_of([[1, 0]], [[3, 0.5]])
  merged = LabelLists.merge([one, other])
  assert merged.ids.tolist() == [[1, 3, 0, PAD]]
  assert merged.scores.tolist() == [[3, 2, 0.5, NONE]]


def test_cut_lists():
  lists = lists_of([[0, 1, 2], [4, 3, PAD]], [[0, -1, -2], [0, -1, NONE]])
  cut = lists.cut(np.array([1, 0, 1, 0, 1], bool))
  assert cut.ids.tolist() == [[0, 2, PAD], [4, PAD, PAD]]
  assert cut.scores.tolist() == [[0, -2, NONE], [0, NONE, NONE]]
  assert cut.lengths.tolist() == [2, 1]
