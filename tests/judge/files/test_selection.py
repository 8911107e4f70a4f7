"""Checks that the best labels of sparse scores are exact, after the filter."""

import gzip
import pathlib

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
from scipy import sparse

from tests.fixtures.xc_writers import write_pairs, write_xc_scores as text
from tests.judge.files.given import given, read, refused
from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged
from xjax.judge.files.document_labels import (
  DocumentLabels,
  cut_length,
  without_pairs,
)
from xjax.judge.files.judge_files import read_judged
from xjax.judge.judge import judge
from xjax.judge.label_lists import LabelLists

INF = np.inf


def npz(path: pathlib.Path, matrix: sparse.csr_array) -> None:
  with path.open('wb') as file:
    sparse.save_npz(file, matrix)


def test_a_filter_of_lists_that_were_cut():
  """Checks that all lists become shorter, as the next labels are not known."""
  ids = np.array([[0, 1, 2], [2, 1, 0], [1, PAD, PAD]], np.int32)
  scores = np.where(ids == PAD, -INF, [[3.0, 2, 1]]).astype(np.float32)
  lists = LabelLists(ids, scores)
  left = without_pairs(lists, np.array([[0, 1], [2, 1]]), 'f')
  assert left.ids.tolist() == [[0, 2], [2, 1], [PAD, PAD]]
  assert left.scores.tolist() == [[3, 1], [3, 2], [-INF, -INF]]
  # A list that ended before has all its labels, and shortens no other list.
  left = without_pairs(lists, np.array([[2, 1]]), 'f')
  assert left.ids.tolist() == [[0, 1, 2], [2, 1, 0], [PAD, PAD, PAD]]
  every = np.array([[1, 0], [1, 1], [1, 2]])
  with pytest.raises(DataError, match='^f: row 1: the filter removes all'):
    without_pairs(lists, every, 'f')


@pytest.mark.parametrize(
  'data', [b'', b'\n \r\n', b'\xef\xbb\xbf', gzip.compress(b'\n', mtime=0)]
)
def test_an_empty_filter_filters_nothing(files, data):
  """Checks it for columns, and for ids that are no column numbers."""
  npz(files['scores'], sparse.csr_array([[3.0, 1, 2], [1, 0, 0]]))
  files['filter'].write_bytes(data)
  files['gold'].write_text(
    '{"id": "b", "labels": ["0"]}\n{"id": "a", "labels": ["1"]}\n'
  )
  for _ in range(2):
    plain, filtered = (read(files, 'gold', *x)[0] for x in ((), ('filter',)))
    assert judge(filtered) == judge(plain)
    assert filtered.gold.values.tolist() == plain.gold.values.tolist()
    rows = [('a', '1'), ('b', 'x')]
    label = '{{"id": "{}", "labels": [{{"id": "{}", "score": 1}}]}}\n'
    files['scores'].write_text(''.join(label.format(*row) for row in rows))


def test_a_pair_outside_of_the_scores_is_an_error(files):
  npz(files['scores'], sparse.csr_array([[3.0, 1, 2], [1, 0, 0]]))
  for pairs, message in (
    ('0 1\n\n0 3\n', 'filter:3: label 3 is not in 0..2'),
    ('2 1\n', 'filter:1: document 2 is not in 0..1'),
  ):
    files['filter'].write_text(pairs)
    assert refused(files, 'filter') == message


def test_rows_that_were_cut():
  def length(lengths: list[int], n_labels: int | None, **more) -> int:
    rows = Ragged.of([range(n) for n in lengths])
    return cut_length(DocumentLabels('f', rows, n_labels=n_labels, **more))

  assert length([5, 5, 2, 5], 9) == 5
  # The longest rows are as many as all other rows that are not empty.
  assert length([5, 4, 5, 2, 0], 9) == 5
  assert length([5, 4, 5, 2, 1, 0], 9) == 0
  # A file that scores all labels cuts nothing.
  assert length([5, 5], 5) == 0
  assert length([0, 0], 5) == 0
  assert length([3, 2, 1], None, ranked=True) == 3
  assert length([0], None, ranked=True) == 1


def test_scores_are_compared_as_they_are_given(files):
  close = np.array([1.0, 1 + 1e-12, 1.0])
  matrix = sparse.csr_array((close, [0, 1, 2], [0, 3]), shape=(1, 3))
  for write in (npz, text):
    write(files['scores'], matrix)
    found, _ = read(files, depth=3)
    assert found.lists['all'].ids.tolist() == [[1, 0, 2]]
  for dtype in (np.int64, bool):
    npz(files['scores'], matrix.astype(dtype))
    found, _ = read(files, depth=3)
    assert found.lists['all'].ids.tolist() == [[0, 1, 2]]


@hypothesis.settings(
  max_examples=40,
  derandomize=True,
  deadline=None,
  database=None,
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(st.data())
def test_selection_is_that_of_a_plain_sort(files, data):
  row = st.dictionaries(st.integers(0, 6), st.integers(-2, 2), max_size=7)
  rows = data.draw(st.lists(row, min_size=1, max_size=6))
  pair = st.tuples(st.integers(0, len(rows) - 1), st.integers(0, 6))
  pairs = data.draw(st.lists(pair, min_size=1, max_size=5))
  depth = data.draw(st.integers(1, 8))
  order = [data.draw(st.permutations(sorted(row))) for row in rows]
  scores = np.array([r[v] for r, o in zip(rows, order) for v in o], np.float64)
  labels = np.array([v for o in order for v in o], np.int32)
  parts = scores, labels, np.cumsum([0, *map(len, rows)])
  matrix = sparse.csr_array(parts, shape=(len(rows), 7))
  save = data.draw(st.sampled_from([text, npz]))
  save(files['scores'], matrix)
  write_pairs(files['filter'], np.array(pairs))
  with pytest.MonkeyPatch.context() as patch:
    block = data.draw(st.integers(1, 9))
    patch.setattr('xjax.judge.files.document_labels._BLOCK', block)
    judge = given(files, 'filter', depth=depth)
    ranked = [sorted(row, key=lambda v: (-row[v], v)) for row in rows]
    best = [[v for v in r if (i, v) not in pairs] for i, r in enumerate(ranked)]
    longest = max(map(len, rows))
    most = [len(row) == longest for row in rows]
    if 0 < longest < 7 and 2 * sum(most) >= sum(map(bool, rows)):
      certain = [len(b) for b, cut in zip(best, most) if cut]
      depth = min(depth, *certain, longest)
    if not depth:
      with pytest.raises(DataError, match='predict more labels'):
        read_judged(judge)
      return
    found, _ = read_judged(judge)
  for ids, labels in zip(found.lists['all'].ids, best):
    kept = labels[:depth]
    assert ids.tolist() == kept + [PAD] * (len(ids) - len(kept))
    assert len(ids) == depth


def test_a_depth_beyond_the_labels_costs_no_memory(files):
  files['scores'].write_text('3 4\n0:0.5 1:0.25\n2:1\n0:1\n')
  predictions, _ = read(files, depth=10**9)
  ids = predictions.lists['all'].ids
  assert ids[:, :3].tolist() == [[0, 1, PAD], [2, PAD, PAD], [0, PAD, PAD]]
  assert ids.shape[1] <= 64
