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
  XcFile,
  in_pairs,
  read_inv_prop,
  read_pairs,
  read_xc,
  read_xc_scores,
)

CANONICAL = {
  'features': b'3 4 5\n1,4 0:0.500000 3:1.000000\n 2:-0.250000\n\n',
  'long values': b'1 2 1\n0 0:0.1234567 1:1e-30\n',
  'LIBSVM': b'0 1:1.000000\n 1:2.000000\n2\n',
  'labels': b'3 5\n0:1.0 4:1.0\n\n2:1.0\n',
}


@pytest.mark.parametrize('kind', CANONICAL)
def test_the_same_bytes_again(tmp_path, kind):
  path, again = tmp_path / 'a.txt', tmp_path / 'b.txt'
  path.write_bytes(CANONICAL[kind])
  write_xc(again, read_xc(path))
  assert again.read_bytes() == CANONICAL[kind]
  zipped = tmp_path / 'c.txt.gz'
  write_xc(zipped, read_xc(again))
  assert gzip.decompress(zipped.read_bytes()) == CANONICAL[kind]
  assert same(read_xc(zipped), read_xc(path))


def same(one: XcFile, two: XcFile) -> bool:
  assert one.header == two.header and one.n_labels == two.n_labels
  np.testing.assert_array_equal(one.gold.indptr, two.gold.indptr)
  np.testing.assert_array_equal(one.gold.values, two.gold.values)
  assert (one.features is None) == (two.features is None)
  return one.features is None or same_matrix(one.features, two.features)


def same_matrix(one: sparse.csr_array, two: sparse.csr_array) -> bool:
  assert one.shape == two.shape and one.dtype == two.dtype
  for part in ('indptr', 'indices', 'data'):
    np.testing.assert_array_equal(getattr(one, part), getattr(two, part))
  return True


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
  xc = XcFile(features, gold, n_labels=8)
  write_xc(path, xc)
  assert same(read_xc(path), xc)
  assert read_xc(path, features=False).features is None
  xc = XcFile(None, gold, n_labels=8)
  write_xc(path, xc)
  assert same(read_xc(path), xc)
  scores = data.draw(matrices(st.floats(**FINITE), np.float64))
  write_xc_scores(path, scores)
  assert same_matrix(read_xc_scores(path), scores)


def test_without_a_header_sizes_are_what_is_there(tmp_path):
  path = tmp_path / 'f.txt'
  path.write_bytes(b'3,1 2:1\n\n')
  found = read_xc(path)
  assert found.features.shape == (2, 3) and found.n_labels == 4
  assert not found.header
  path.write_bytes(b'\n')
  found = read_xc(path)
  assert found.features.shape == (1, 0) and found.n_labels == 0


def test_a_label_of_weight_zero_is_none_a_score_of_zero_is_one(tmp_path):
  path = tmp_path / 'f.txt'
  path.write_bytes(b'1 4\n3:1 0:0 1:1.0\n')
  assert read_xc(path).gold[0].tolist() == [1, 3]
  scores = read_xc_scores(path)
  assert scores.indices.tolist() == [3, 0, 1]
  assert scores.data.tolist() == [1, 0, 1]


NO_HEADER = (
  '1: the header `N L` (numbers of documents and labels) is missing; a score '
  'file must start with this header'
)
NO_GOLD = 'must be 0 or 1; scores are not gold labels'


@pytest.mark.parametrize(
  ('read', 'text', 'message'),
  [
    (read_xc, b'1 2 2\n0 1:nan\n', '2: the value of feature 1 is NaN'),
    (read_xc, b'1 2 2\n0 1:1e39\n', '2: the value of feature 1 is infinite'),
    (read_xc_scores, b'2 2\n\n1:-inf\n', '3: the score of label 1 is infinite'),
    (read_xc_scores, b'1 2\n1:NaN\n', '2: the score of label 1 is NaN'),
    (read_xc_scores, b'1 2 2\n0 1:1\n', NO_HEADER),
    (
      read_xc,
      b'2 2\n0:1\n0:0 1:0.5\n',
      f'3: the value of gold label 1 {NO_GOLD}',
    ),
    (read_xc, b'1 2\n1:-1\n', f'2: the value of gold label 1 {NO_GOLD}'),
  ],
)
def test_faults(tmp_path, read, text, message):
  path = tmp_path / 'f.txt'
  path.write_bytes(text)
  assert error_text(read, path) == f'{path}:{message}'


@pytest.mark.parametrize('name', ['f.txt', 'f.txt.gz'])
def test_pairs_and_weights_are_written_and_read(tmp_path, name):
  path = tmp_path / name
  pairs = np.array([[3, 1], [0, 2], [3, 1]])
  write_pairs(path, pairs)
  text = b'3 1\n0 2\n3 1\n'
  data = path.read_bytes()
  assert (gzip.decompress(data) if name.endswith('.gz') else data) == text
  np.testing.assert_array_equal(read_pairs(path, 4, 3), pairs)
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
    ('pairs', b'', ' no pair in it'),
    ('pairs', b'0 1\n\n0 3\n', '3: label 3 is not in 0..2'),
    ('pairs', b'2 1\n', '1: document 2 is not in 0..1'),
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
  call = (read_pairs, path, 2, 3) if read == 'pairs' else (read_inv_prop, path)
  assert error_text(*call) == f'{path}:{message}'


@pytest.mark.real_data
@pytest.mark.parametrize(('name', 'n'), [('train', 4880), ('test', 2515)])
def test_bibtex(data_dir, tmp_path, name, n):
  path = data_dir / 'bibtex' / f'{name}.txt'
  found = read_xc(path)
  assert found.features.shape == (n, 1836) and found.n_labels == 159
  assert len(found.gold) == n and found.gold.lengths.min() >= 1
  write_xc(tmp_path / 'again.txt', found)
  assert (tmp_path / 'again.txt').read_bytes() == path.read_bytes()
