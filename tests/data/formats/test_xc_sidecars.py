"""Filters of reciprocal pairs, and inverse propensities."""

import gzip

import numpy as np
import pytest

from tests.fixtures.error_text import error_text
from tests.fixtures.xc_writers import write_inv_prop, write_pairs
from xjax.core.types import Ragged
from xjax.data.formats.xc_files import in_pairs, read_inv_prop, read_pairs


@pytest.mark.parametrize('name', ['f.txt', 'f.txt.gz'])
def test_written_and_read(tmp_path, name):
  path = tmp_path / name
  pairs = np.array([[3, 1], [0, 2], [3, 1]])
  write_pairs(path, pairs)
  text = b'3 1\n0 2\n3 1\n'
  data = path.read_bytes()
  assert (gzip.decompress(data) if name.endswith('.gz') else data) == text
  np.testing.assert_array_equal(read_pairs(path, 4, 3), pairs)
  weights = np.array([1.1, 1e300, 1 / 3])
  write_inv_prop(path, weights)
  np.testing.assert_array_equal(read_inv_prop(path, 3), weights)
  np.testing.assert_array_equal(read_inv_prop(path), weights)


def test_among():
  rows = Ragged.of([[0, 5], [], [5], [1, 0]])
  pairs = np.array([[3, 0], [0, 5], [0, 5], [1, 2], [9, 9]])
  assert in_pairs(rows, pairs).tolist() == [False, True, False, False, True]
  # Row and label together must not run over.
  last = 2**31 - 2
  rows = Ragged(np.array([0, 1, 2]), np.array([last, 0], np.int32))
  assert in_pairs(rows, np.array([[0, last]])).tolist() == [True, False]


NO_PAIR = 'not a pair `document label`'
NO_NUMBER = 'is not a positive number'


@pytest.mark.parametrize(
  ('read', 'text', 'message'),
  [
    ('pairs', b'', ' no pair in it'),
    ('pairs', b'0 1\n\n0 3\n', '3: label 3 is not in 0..2'),
    ('pairs', b'2 1\n', '1: document 2 is not in 0..1'),
    ('pairs', b'0 1\n0 1 2\n', f'2: {NO_PAIR}'),
    ('pairs', b'0 -1\n', f'1: {NO_PAIR}'),
    ('pairs', b'0:1\n', f'1: {NO_PAIR}'),
    ('weights', b'1.5\n', ' 1 numbers, but there are 2 labels'),
    ('weights', b'1\n2\n3\n', ' 3 numbers, but there are 2 labels'),
    ('weights', b'1\n\nx\n', f"3: 'x' {NO_NUMBER}"),
    ('weights', b'1\nnan\n', f"2: 'nan' {NO_NUMBER}"),
    ('weights', b'inf\n1\n', f"1: 'inf' {NO_NUMBER}"),
    ('weights', b'1\n0\n', f"2: '0' {NO_NUMBER}"),
    ('weights', b'1\n1_0\n', f"2: '1_0' {NO_NUMBER}"),
    ('weights', b'\n', ' no number in it'),
  ],
)
def test_faults(tmp_path, read, text, message):
  path = tmp_path / 'f'
  path.write_bytes(text)
  call = (read_pairs, 2, 3) if read == 'pairs' else (read_inv_prop, 2)
  assert error_text(call[0], path, *call[1:]) == f'{path}:{message}'
