"""Sparse rows of text: what is read, and the line of what is wrong."""

import gzip

import numpy as np
import pytest

from tests.fixtures.error_text import error_text
from xjax.core.types import Ragged
from xjax.data.formats.xc_files import (
  is_row,
  parse_header,
  read_sparse,
  repeated_entries,
)


@pytest.fixture
def write(tmp_path):
  def write(data: bytes):
    path = tmp_path / 'f'
    path.write_bytes(data)
    return path

  return write


def rows(ragged: Ragged) -> list[list[int]]:
  return [row.tolist() for row in ragged]


ORDER = '2: features must ascend, and none may occur twice'
NEITHER = 'is neither labels, as in `3,14`, nor `feature:value`'
FIRST = '2: labels must come first, without a space before or between them'
CUT = gzip.compress(b'1 3 4\n1 0:1\n', mtime=0)[:-9]


def test_labels_and_features(write):
  found = read_sparse(write(b'3 4 5\n4,1 0:0.5 3:-2e-1\n 2:1\n0\n'))
  assert found.header == (3, 4, 5)
  assert rows(found.labels) == [[1, 4], [], [0]]
  assert rows(found.entries) == [[0, 3], [2], []]
  np.testing.assert_array_equal(
    found.values, np.array([0.5, -0.2, 1], np.float32)
  )
  assert found.labels.values.dtype == found.entries.values.dtype == np.int32
  assert found.lines.tolist() == [2, 3, 4]


def test_rows_of_nothing(write):
  text = b'4 1 1\n\n0 0:1\n \n\n'
  found = read_sparse(write(text))
  assert rows(found.labels) == [[], [0], [], []]
  assert rows(found.entries) == [[], [0], [], []]
  # More blank lines at the end are no documents; without a header all are.
  assert len(read_sparse(write(text + b'\n\n')).labels) == 4
  assert len(read_sparse(write(b'0 0:1\n\n\n')).labels) == 3
  assert len(read_sparse(write(b'2 3\n\n\n')).labels) == 2
  assert len(read_sparse(write(b'\n\n')).labels) == 2
  assert len(read_sparse(write(b'0 3\n')).labels) == 0


def test_no_header(write):
  found = read_sparse(write(b'2 5:1\r\n1:3\r\n7,0\r\n'))
  assert found.header == () and found.lines.tolist() == [1, 2, 3]
  assert rows(found.labels) == [[2], [], [0, 7]]
  assert rows(found.entries) == [[5], [1], []]


def test_scores_in_the_order_given(write):
  found = read_sparse(write(b'2 4\n3:.25 0:1.\n1:-0.1\n'))
  assert rows(found.entries) == [[3, 0], [1]]
  assert found.values.tolist() == [0.25, 1, -0.1]
  assert found.values.dtype == np.float64
  assert rows(found.labels) == [[], []]


def test_without_features(write):
  path = write(b'4 2 5\n4,1 0:1 1:1\n 1:1\n0:1\n2\n')
  found = read_sparse(path, features=False)
  assert rows(found.labels) == rows(read_sparse(path).labels)
  assert rows(found.labels) == [[1, 4], [], [], [2]]
  assert not len(found.values)
  scores = write(b'1 2\n1:1 0:1\n')
  assert rows(read_sparse(scores, features=False).entries) == [[1, 0]]


def test_gzipped_whatever_its_name(write):
  text = b'\xef\xbb\xbf1 2\n1:1\n'
  assert rows(read_sparse(write(text)).entries) == [[1]]
  assert rows(read_sparse(write(gzip.compress(text))).entries) == [[1]]


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    (b'', ' the file is empty'),
    (b'2 3 4\n1 0:1\n', ' 1 rows, but the header says 2'),
    (b'1 3 4\n1 0:1\n\n2 0:1\n', '4: more rows than the header says (1)'),
    (b'1 3 4\n1 0:1 3:1\n', '2: feature 3 is not in 0..2'),
    (b'1 3 4\n4 0:1\n', '2: label 4 is not in 0..3'),
    (b'2 3 4\n\n2,1,2 0:1\n', '3: label 2 occurs twice'),
    (b'1 3\n0:1 2:1 0:1\n', '2: label 0 occurs twice'),
    (b'2 3\n\n3:1\n', '3: label 3 is not in 0..2'),
    (b'1 3\n1 0:1\n', "2: '1' is not `label:value`"),
    (b'1 3 4\n1 1:1 0:1\n', ORDER),
    (b'1 3 4\n1 1:1 1:1\n', ORDER),
    (b'1 3 4\n1 1:x\n', f"2: '1:x' {NEITHER}"),
    (b'1 3 4\n1.5 1:1\n', f"2: '1.5' {NEITHER}"),
    (b'1 3 4\n1_0 1:1\n', f"2: '1_0' {NEITHER}"),
    (b'1 3 4\n1 2 0:1\n', FIRST),
    (b'1 3 4\n 2 0:1\n', FIRST),
    (b'0 0:1\n1 2147483647:1\n', '2: an index is above 2147483646'),
    (b'99999999999 3 4\n', '1: a count is above 2147483647'),
    (b'\xff\xfe1\x00\n', '1: UTF-16 text: save the file as UTF-8'),
    (CUT, ' the compressed file is cut short: get it again'),
  ],
)
def test_faults(write, text, message):
  path = write(text)
  assert error_text(read_sparse, path) == f'{path}:{message}'


def test_a_file_that_cannot_be_read(tmp_path):
  none = tmp_path / 'no'
  for path, why in ((tmp_path, 'Is a directory'), (none, 'No such file or')):
    assert f'{path.name}: cannot be read: {why}' in error_text(
      read_sparse, path
    )


def test_headers_and_rows():
  assert parse_header(b'3 4 5') == (3, 4, 5)
  assert parse_header(b'3\t4 ') == (3, 4)
  for line in (b'3', b'3 4:1', b'3 4 5 6', b'-3 4', b''):
    assert parse_header(line) == ()
  for line in (b'3', b'1,2 3:4', b' 3:4', b'3:4', b'', b'1 0:inf 1:NaN'):
    assert is_row(line)
  for line in (b'{"a": 1}', b'3 4', b'1, 2', b'a', b'1:', b':1', b'1:2 3'):
    assert not is_row(line)


def test_repeated():
  ragged = Ragged.of([[1, 0, 1], [], [0, 2], [2, 2, 2]])
  assert np.flatnonzero(repeated_entries(ragged)).tolist() == [2, 6, 7]
  assert len(repeated_entries(ragged)) == 8
  assert not repeated_entries(Ragged.of([[0, 1], [1, 2]])).any()
  assert not repeated_entries(Ragged.of([[], []])).any()
