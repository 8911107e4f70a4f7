"""Feature, label and score files: read, and written back without loss."""

import gzip

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
from scipy import sparse

from tests.fixtures.error_text import error_text
from tests.fixtures.xc_writers import (
  write_inv_prop,
  write_pairs,
  write_xc,
  write_xc_scores,
)
from xjax.core.types import Ragged
from xjax.data.formats.xc_files import (
  SparseRows,
  in_pairs,
  read_inv_prop,
  read_pairs,
  read_sparse,
  read_xc,
)


def write_again(path, rows: SparseRows):
  """Writes what was read."""
  if len(rows.header) == 2:
    write_xc(path, rows.labels, rows.n_labels)
  else:
    n_labels = rows.n_labels if rows.header else None
    write_xc(path, rows.labels, n_labels, rows.matrix())


def assert_same(one: Ragged, two: Ragged) -> None:
  np.testing.assert_array_equal(one.indptr, two.indptr)
  np.testing.assert_array_equal(one.values, two.values)


FINITE = {'allow_nan': False, 'allow_infinity': False}


@st.composite
def matrices(draw, values, dtype, n: int | None = None) -> sparse.csr_array:
  n = draw(st.integers(1, 4)) if n is None else n
  width = draw(st.integers(1, 6))
  entries = st.dictionaries(st.integers(0, width - 1), values, max_size=4)
  rows = [sorted(draw(entries).items()) for _ in range(n)]
  data = np.array([v for row in rows for _, v in row], dtype)
  indices = np.array([i for row in rows for i, _ in row], np.int32)
  indptr = np.cumsum([0, *map(len, rows)])
  return sparse.csr_array((data, indices, indptr), (n, width))


@hypothesis.settings(
  max_examples=100,
  derandomize=True,
  deadline=None,
  database=None,
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(st.data())
def test_written_and_read(tmp_path, data):
  # Squares of larger features overflow, so such features are refused.
  values = st.floats(-(2.0**62), 2.0**62, width=32)
  features = data.draw(matrices(values, np.float32))
  n = features.shape[0]
  labels = st.lists(st.integers(0, 7), unique=True, max_size=3).map(sorted)
  gold = Ragged.of([data.draw(labels) for _ in range(n)])
  path = tmp_path / 'f.txt'
  write_xc(path, gold, 8, features)
  rows = read_xc(path)
  assert_same(rows.labels, gold)
  matrix = rows.matrix()
  assert matrix.shape == features.shape and matrix.dtype == features.dtype
  for part in ('indptr', 'indices', 'data'):
    expected = getattr(features, part)
    np.testing.assert_array_equal(getattr(matrix, part), expected)
  assert not len(read_xc(path, features=False).values)
  write_xc(path, gold, 8)
  rows = read_xc(path)
  assert_same(rows.labels, gold)
  assert rows.n_labels == 8
  scores = data.draw(matrices(st.floats(**FINITE), np.float64))
  write_xc_scores(path, scores)
  rows = read_sparse(path)
  np.testing.assert_array_equal(rows.entries.indptr, scores.indptr)
  np.testing.assert_array_equal(rows.entries.values, scores.indices)
  np.testing.assert_array_equal(rows.values, scores.data)
  assert rows.values.dtype == np.float64


def test_without_a_header_sizes_are_what_is_there(tmp_path):
  path = tmp_path / 'f.txt'
  path.write_bytes(b'3,1 2:1\n\n')
  rows = read_xc(path)
  assert rows.matrix().shape == (2, 3) and rows.n_labels == 4
  path.write_bytes(b'\n')
  rows = read_xc(path)
  assert rows.matrix().shape == (1, 0) and rows.n_labels == 0


def test_a_label_of_weight_zero_is_none_a_score_of_zero_is_one(tmp_path):
  path = tmp_path / 'f.txt'
  path.write_bytes(b'1 4\n3:1 0:0 1:1.0\n')
  assert read_xc(path).labels[0].tolist() == [1, 3]
  assert read_sparse(path).entries[0].tolist() == [3, 0, 1]


NO_GOLD = 'must be 0 or 1; scores are not gold labels'


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    (b'1 2 2\n0 1:nan\n', '2: the value of feature 1 is not finite'),
    (b'1 2 2\n0 1:1e39\n', '2: the value of feature 1 is not finite'),
    (b'2 2\n0:1\n0:0 1:0.5\n', f'3: the value of gold label 1 {NO_GOLD}'),
    (b'1 2\n1:-1\n', f'2: the value of gold label 1 {NO_GOLD}'),
  ],
)
def test_faults(tmp_path, text, message):
  path = tmp_path / 'f.txt'
  path.write_bytes(text)
  assert error_text(read_xc, path) == f'{path}:{message}'


@pytest.mark.parametrize('name', ['f.txt', 'f.txt.gz'])
def test_pairs_and_weights_are_written_and_read(tmp_path, name):
  path = tmp_path / name
  pairs = np.array([[3, 1], [0, 2], [3, 1]])
  write_pairs(path, pairs)
  text = b'3 1\n0 2\n3 1\n'
  data = path.read_bytes()
  assert (gzip.decompress(data) if name.endswith('.gz') else data) == text
  found, lines = read_pairs(path)
  np.testing.assert_array_equal(found, pairs)
  assert lines.tolist() == [1, 2, 3]
  weights = np.array([1.1, 1e300, 1 / 3])
  write_inv_prop(path, weights)
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
    ('pairs', b'0 1\n0 1 2\n', f'2: {NO_PAIR}'),
    ('pairs', b'0 -1\n', f'1: {NO_PAIR}'),
    ('pairs', b'0:1\n', f'1: {NO_PAIR}'),
    ('weights', b'1\n\nx\n', f"3: 'x' {NO_NUMBER}"),
    ('weights', b'1\nnan\n', f"2: 'nan' {NO_NUMBER}"),
    ('weights', b'inf\n1\n', f"1: 'inf' {NO_NUMBER}"),
    ('weights', b'1\n0\n', f"2: '0' {NO_NUMBER}"),
    ('weights', b'1\n1_0\n', f"2: '1_0' {NO_NUMBER}"),
    ('weights', b'\n', ' no number in it'),
  ],
)
def test_faults_of_pairs_and_weights(tmp_path, read, text, message):
  path = tmp_path / 'f'
  path.write_bytes(text)
  call = read_pairs if read == 'pairs' else read_inv_prop
  assert error_text(call, path) == f'{path}:{message}'


@pytest.mark.real_data
@pytest.mark.parametrize(('name', 'n'), [('train', 4880), ('test', 2515)])
def test_bibtex(data_dir, tmp_path, name, n):
  path = data_dir / 'bibtex' / f'{name}.txt'
  rows = read_xc(path)
  assert rows.matrix().shape == (n, 1836) and rows.n_labels == 159
  assert len(rows.labels) == n and rows.labels.lengths.min() >= 1
  write_again(tmp_path / 'again.txt', rows)
  again = read_xc(tmp_path / 'again.txt')
  assert_same(again.labels, rows.labels)
  assert_same(again.entries, rows.entries)
  np.testing.assert_array_equal(again.values, rows.values)
