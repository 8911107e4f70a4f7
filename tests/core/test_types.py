"""Ragged rows."""

import numpy as np
import pytest

from xjax.core.types import PAD, Ragged

ROWS = Ragged.of([[3, 1], [], [7, 8, 9]])


def test_rows():
  assert len(ROWS) == 3
  assert [ROWS[i].tolist() for i in range(3)] == [[3, 1], [], [7, 8, 9]]
  assert ROWS.lengths.tolist() == [2, 0, 3]
  assert ROWS.indptr.dtype == np.int64
  assert ROWS.values.dtype == np.int32
  assert len(Ragged.of([])) == 0


@pytest.mark.parametrize(
  'rows', [[range(2), ()], [np.array([0, 1]), np.zeros(0)], ((0, 1), [])]
)
def test_rows_of_any_kind(rows):
  ragged = Ragged.of(rows)
  assert (ragged.indptr.tolist(), ragged.values.tolist()) == ([0, 2, 2], [0, 1])
  assert ragged.values.dtype == np.int32


def test_padded():
  found = ROWS.padded(np.array([2, PAD, 0, 1]), 4, fill=-5)
  assert found.dtype == np.int32
  assert found.tolist() == [[7, 8, 9, -5], [-5] * 4, [3, 1, -5, -5], [-5] * 4]


def test_nothing_is_truncated():
  with pytest.raises(ValueError, match='more than 2 entries'):
    ROWS.padded(np.array([0, 2]), 2, fill=0)
  assert ROWS.padded(np.array([0, 1]), 2, fill=0).tolist() == [[3, 1], [0, 0]]


def test_keep():
  kept = ROWS.keep(ROWS.values > 7)
  assert [kept[i].tolist() for i in range(3)] == [[], [], [8, 9]]


def test_take():
  rows = Ragged.of([[1, 2], [], [3], [4, 5, 6]])
  taken = rows.take(np.array([3, 1, 0, 3]))
  assert [row.tolist() for row in (taken[i] for i in range(4))] == [
    *([4, 5, 6], [], [1, 2]),
    [4, 5, 6],
  ]
  assert taken.values.dtype == np.int32 and taken.indptr.dtype == np.int64
  assert len(rows.take(np.zeros(0, np.int64))) == 0
