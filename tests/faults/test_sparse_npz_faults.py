"""Matrices of scores with faults: one clear error, with row and label."""

import io

import numpy as np
import pytest

from tests.faults.damage import matrix, npz
from xjax.core.errors import DataError
from xjax.judge.files.sparse_npz import read_sparse_npz


def without(data: bytes, name: str) -> bytes:
  with np.load(io.BytesIO(data)) as loaded:
    return npz(**{key: loaded[key] for key in loaded if key != name})


MATRICES: dict[str, tuple[bytes, str]] = {
  'NaN in a matrix': (
    matrix(data=np.array([1, np.nan, 2])),
    ' row 0: the score of label 2 is NaN',
  ),
  'infinity in a matrix': (
    matrix('coo', data=np.array([1, 2, np.inf])),
    ' row 2: the score of label 3 is infinite',
  ),
  'a label twice in a matrix': (
    matrix(indices=np.array([2, 2, 3])),
    ' row 0: label 2 occurs twice',
  ),
  'an entry twice in columns': (
    matrix('coo', row=np.array([1, 1, 2]), col=np.array([2, 2, 3])),
    ' row 1: label 2 occurs twice',
  ),
  'a label beyond a matrix': (
    matrix(indices=np.array([0, 4, 3])),
    ' row 0: label 4 is not in 0..3',
  ),
  'a label beyond columns': (
    matrix('coo', col=np.array([0, 2, -2])),
    ' row 2: label -2 is not in 0..3',
  ),
  'a row beyond columns': (
    matrix('csc', indices=np.array([0, 3, 2])),
    ' label 2 is in row 3, which is not in 0..2',
  ),
  'a row beyond a matrix': (
    matrix('coo', row=np.array([0, 0, -1])),
    ' label 3 is in row -1, which is not in 0..2',
  ),
  'rows that few entries cannot support': (
    matrix('coo', shape=np.array([2_000_000_000, 4])),
    ' has 2000000000 rows, but only 3 entries; at most 4194304 rows are '
    'believed then. Correct the header, or number the rows without gaps',
  ),
  'bounds that fall': (
    matrix(indptr=np.array([0, 2, 1, 3])),
    ' indptr: falls (at [1])',
  ),
  'too few bounds': (
    matrix('csc', indptr=np.array([0, 3])),
    ' indptr: has 2 bounds for 4 rows or columns',
  ),
  'fewer entries than indices': (
    matrix(data=np.ones(2)),
    ' indices: has 3 indices for 2 entries',
  ),
  'another kind of matrix': (
    matrix('bsr'),
    " format: is 'bsr'; save the matrix as csr",
  ),
  'complex scores': (
    matrix(data=np.ones(3) * 1j),
    ' data: is complex128 [3], but must be a vector of numbers',
  ),
  'a shape of three': (
    matrix(shape=np.array([3, 4, 1])),
    ' shape: is [3, 4, 1], but must be [documents, labels]',
  ),
  'no data': (without(matrix(), 'data'), ' data: missing'),
  'one array too many': (matrix(extra=np.zeros(1)), ' extra: unknown array'),
}


@pytest.mark.parametrize('kind', MATRICES)
def test_broken_matrices(tmp_path, kind):
  data, message = MATRICES[kind]
  path = tmp_path / 'f'
  path.write_bytes(data)
  with pytest.raises(DataError) as caught:
    read_sparse_npz(path)
  assert str(caught.value) == f'{path}:{message}'


def test_sound_matrices(tmp_path):
  """So that what the test above breaks is what breaks."""
  path = tmp_path / 'f'
  for kind in ('csr', 'csc', 'coo'):
    path.write_bytes(matrix(kind))
    found = read_sparse_npz(path)
    assert found.rows.values.tolist() == [0, 2, 3]
    assert found.scores.tolist() == [0.5, 0.25, 1]
