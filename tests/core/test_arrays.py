"""Ragged rows, and arrays of .npz files: whole and damaged."""

import numpy as np
import pytest
from scipy import sparse

from xjax.core.arrays import Arrays, matrix_arrays, rows_arrays
from xjax.core.atomic import write_npz
from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged

ROWS = [[], [0, 3, 4], [], [4], []]
DENSE = np.array([[0, 0, 0], [1.5, 0, -2], [0, 0, 3]], np.float32)


@pytest.mark.parametrize(
  'rows', [[range(2), ()], [np.array([0, 1]), np.zeros(0)], ((0, 1), [])]
)
def test_rows_of_any_kind(rows):
  ragged = Ragged.of(rows)
  assert (ragged.indptr.tolist(), ragged.values.tolist()) == ([0, 2, 2], [0, 1])
  assert (ragged.indptr.dtype, ragged.values.dtype) == (np.int64, np.int32)
  assert (len(ragged), ragged.lengths.tolist()) == (2, [2, 0])


RAGGED = Ragged.of([[3, 1], [], [7, 8, 9]])


def test_padded():
  found = RAGGED.padded(np.array([2, PAD, 0, 1]), 4, fill=-5)
  assert found.dtype == np.int32
  assert found.tolist() == [[7, 8, 9, -5], [-5] * 4, [3, 1, -5, -5], [-5] * 4]
  assert RAGGED.padded(np.array([0, 1]), 2, fill=0).tolist() == [[3, 1], [0, 0]]
  with pytest.raises(ValueError, match='more than 2 entries'):
    RAGGED.padded(np.array([0, 2]), 2, fill=0)


def test_kept_and_taken():
  kept = RAGGED.keep(RAGGED.values > 7)
  assert [row.tolist() for row in kept] == [[], [], [8, 9]]
  taken = RAGGED.take(np.array([2, 1, 0, 2]))
  assert [row.tolist() for row in taken] == [[7, 8, 9], [], [3, 1], [7, 8, 9]]
  assert taken.values.dtype == np.int32 and taken.indptr.dtype == np.int64
  assert len(RAGGED.take(np.zeros(0, np.int64))) == 0


@pytest.mark.parametrize('dense', [DENSE, DENSE[:0], DENSE[:1], DENSE[:, :0]])
def test_a_matrix_is_read_as_it_was_written(dense, tmp_path):
  matrix = sparse.csr_array(dense)
  write_npz(tmp_path / 'x.npz', matrix_arrays('rows', matrix))
  arrays = Arrays.read(tmp_path / 'x.npz')
  again = arrays.matrix('rows', dense.shape[1])
  arrays.finish()
  np.testing.assert_array_equal(again.toarray(), dense)
  assert again.shape == dense.shape and again.dtype == np.float32


FAULTS = {
  'the starts are missing': ('gold/indptr', None, 'missing'),
  'there is no start': ('gold/indptr', [], 'should go from 0 to 4'),
  'the starts fall': ('gold/indptr', [0, 5, 4], r'falls \(at \[1\]\)'),
  'a number is too large': ('gold/indices', [0, 3, 5, 4], 'is not in 0..4'),
  'a number stands twice in a row': (
    'gold/indices',
    [0, 4, 4, 4],
    r'does not ascend \(at \[2\]\)',
  ),
  'values of another number': ('gold/values', [1, 2, 3], r'is float32 \[3\]'),
  'a value is not a number': (
    'gold/values',
    [1, np.nan, 3, 4],
    r'is not finite \(at \[1\]\)',
  ),
}


@pytest.mark.parametrize('fault', FAULTS)
def test_faults_are_one_error_with_the_file_and_the_array(fault):
  name, values, message = FAULTS[fault]
  rows = Ragged.of(ROWS)
  parts = np.ones(4, np.float32), rows.values, rows.indptr
  arrays = matrix_arrays('gold', sparse.csr_array(parts, shape=(5, 5)))
  dtype = arrays[name].dtype
  del arrays[name]
  if values is not None:
    arrays[name] = np.array(values, dtype)
  with pytest.raises(DataError, match=f'^here.npz: {name}: {message}'):
    Arrays('here.npz', arrays).matrix('gold', 5)


def test_an_array_that_nobody_takes_is_an_error():
  arrays = rows_arrays('gold', Ragged.of(ROWS)) | {'more': np.zeros(1)}
  left = Arrays('here.npz', arrays)
  left.rows('gold', 5)
  with pytest.raises(DataError, match='here.npz: more: unknown array'):
    left.finish()
