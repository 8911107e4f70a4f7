"""Checks reading predictions of other systems: formats, filter, selection."""

import gzip
import json
import pathlib

import numpy as np
import pytest
from scipy import sparse

from tests.fixtures.xc_writers import (
  write_inv_prop,
  write_pairs,
  write_xc,
  write_xc_scores,
)
from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.data.formats.xc_files import (
  XcFile,
)
from xjax.judge.files.judged import JudgeFiles, read_judged
from xjax.judge.label_lists import LabelLists
from xjax.judge.predictions import Predictions

INF = np.inf

# Three documents and five labels have ties, a stored zero and a short row.
SCORES = sparse.csr_array(
  (
    np.array([0.5, 0.75, 0.5, -1, 0, 0.25, 0.25, 0.25], np.float32),
    np.array([0, 1, 4, 2, 3, 0, 2, 4], np.int32),
    np.array([0, 3, 5, 8]),
  ),
  shape=(3, 5),
)
BEST = [[1, 0, 4], [3, 2, PAD], [0, 2, 4]]
BEST_SCORES = [[0.75, 0.5, 0.5], [0, -1, -INF], [0.25, 0.25, 0.25]]
GOLD = [[1, 4], [], [2]]
# Here the first row has all labels, which shows that no row was cut.
WHOLE = sparse.csr_array(
  (
    np.array([0.5, 0.75, 0.25, 0.25, 0.5, -1, 0, 0.25, 0.25, 0.25]),
    np.array([0, 1, 2, 3, 4, 2, 3, 0, 2, 4], np.int32),
    np.array([0, 5, 7, 10]),
  ),
  shape=(3, 5),
)


def lines(*rows) -> bytes:
  return b''.join(json.dumps(row).encode() + b'\n' for row in rows)


def saved_by_scipy(kind: str, array: bool = True):
  def save(path: pathlib.Path, matrix: sparse.csr_array) -> None:
    matrix = matrix if array else sparse.csr_matrix(matrix)
    with path.open('wb') as file:
      sparse.save_npz(file, matrix.asformat(kind))

  return save


def score_text(path: pathlib.Path, matrix: sparse.csr_array) -> None:
  write_xc_scores(path, matrix)


def gzipped_text(path: pathlib.Path, matrix: sparse.csr_array) -> None:
  write_xc_scores(path, matrix)
  path.write_bytes(gzip.compress(path.read_bytes()))


MATRICES = {
  **{kind: saved_by_scipy(kind) for kind in ('csr', 'csc', 'coo')},
  'a matrix of old': saved_by_scipy('csr', array=False),
  'text': score_text,
  'gzipped text': gzipped_text,
}


def features(n_labels: int | None):
  def write(path: pathlib.Path, rows: list[list[int]]) -> None:
    some = sparse.csr_array(np.ones((len(rows), 2), np.float32))
    gold = Ragged.of(rows)
    write_xc(path, XcFile(some, gold, n_labels or 0, n_labels is not None))

  return write


def json_lines(field: str, name: str, convert):
  def write(path: pathlib.Path, rows: list[list[int]]) -> None:
    path.write_bytes(
      lines(
        *(
          {name: f'd{i}', field: list(map(convert, row))}
          for i, row in enumerate(rows)
        )
      )
    )

  return write


def gold_npz(path: pathlib.Path, rows: list[list[int]]) -> None:
  places = [(i, label) for i, row in enumerate(rows) for label in row]
  # An entry of 0 is no label.
  values = [1] * len(places) + [0]
  matrix = sparse.coo_array(
    (values, np.transpose([*places, (0, 3)])), (len(rows), 5)
  )
  with path.open('wb') as file:
    sparse.save_npz(file, matrix)


def label_file(path: pathlib.Path, rows: list[list[int]]) -> None:
  write_xc(path, XcFile(None, Ragged.of(rows), 5))


GOLDS = {
  'XC labels': label_file,
  'XC features': features(5),
  'LIBSVM': features(None),
  'scipy': gold_npz,
  'ours': json_lines('labels', 'id', str),
  'raw text': json_lines('target_ind', 'uid', int),
  'hierarchy': json_lines('doc_label', 'x', str),
  'hierarchy in short': json_lines('label', 'x', str),
  'EURLEX57K': json_lines('concepts', 'celex_id', str),
}


@pytest.fixture
def files(tmp_path):
  """Paths with names that tell nothing."""
  return {name: tmp_path / name for name in ('scores', 'gold', 'train', 'more')}


@pytest.mark.parametrize('kind', MATRICES)
def test_scores_of_every_format(files, kind):
  MATRICES[kind](files['scores'], SCORES)
  found, weights = read_judged(JudgeFiles(files['scores'], depth=3))
  lists = found.lists['all']
  assert lists.ids.tolist() == BEST and lists.ids.dtype == np.int32
  assert lists.scores.tolist() == BEST_SCORES
  assert lists.scores.dtype == np.float32
  assert found.score_kind is ScoreKind.MARGIN and found.n_scored == 5
  assert found.n_train == 0 and found.train_counts.tolist() == [0] * 5
  assert found.doc_ids == ('0', '1', '2') and found.gold is None
  assert found.labels == ('0', '1', '2', '3', '4') and weights is None
  # Most rows have three labels, so that deeper labels are not known.
  deep, _ = read_judged(JudgeFiles(files['scores'], depth=7))
  assert deep.lists['all'].ids.tolist() == BEST
  first, _ = read_judged(JudgeFiles(files['scores'], depth=1))
  assert first.lists['all'].ids.tolist() == [[1], [3], [0]]


@pytest.mark.parametrize('kind', GOLDS)
def test_gold_and_training_labels_of_every_format(files, kind, tmp_path):
  score_text(files['scores'], SCORES)
  GOLDS[kind](files['gold'], GOLD)
  GOLDS[kind](files['train'], [[0, 1], [1], [4, 1], []])
  found, _ = read_judged(
    JudgeFiles(files['scores'], files['gold'], files['train'], depth=2)
  )
  assert [row.tolist() for row in found.gold] == GOLD
  assert found.n_train == 4
  assert found.train_counts.tolist() == [1, 3, 0, 0, 1]
  assert found.train_counts.dtype == np.int32
  found.save(tmp_path / 'saved.npz')
  again = Predictions.load(tmp_path / 'saved.npz')
  assert again.labels == found.labels


def listed(*rows) -> bytes:
  """JSON lines as predict writes them: (id, [(label, score), ...])."""
  return lines(
    *(
      {
        'id': id_,
        'labels': [{'id': v, 'name': v, 'score': s} for v, s in row],
      }
      for id_, row in rows
    )
  )


LISTED = listed(
  ('a', [('fish', 1.0), ('law', 1.0), ('sea', 0.25)]),
  ('b', [('law', 0.5)]),
)


def test_lists_as_text(files):
  files['scores'].write_bytes(LISTED)
  files['gold'].write_bytes(
    lines({'id': 'a', 'labels': ['sea', 'new']}, {'id': 'b', 'labels': []})
  )
  files['train'].write_bytes(lines({'id': 'z', 'labels': ['fish', 'old']}))
  found, _ = read_judged(
    JudgeFiles(files['scores'], files['gold'], files['train'], depth=9)
  )
  assert found.labels == ('fish', 'law', 'new', 'old', 'sea')
  # Ties stay as they are listed, and a list is no deeper than it was written.
  assert found.lists['all'].ids.tolist() == [[0, 1, 4], [1, PAD, PAD]]
  assert found.doc_ids == ('a', 'b') and found.n_scored == 5
  assert found.score_kind is ScoreKind.PROBABILITY
  assert [row.tolist() for row in found.gold] == [[2, 4], []]
  assert found.train_counts.tolist() == [1, 0, 0, 1, 0]
  files['scores'].write_bytes(
    gzip.compress(listed(('a', [('law', 2.0), ('fish', 3.0)])))
  )
  found, _ = read_judged(JudgeFiles(files['scores'], depth=1))
  assert found.score_kind is ScoreKind.MARGIN
  assert found.lists['all'].ids.tolist() == [[0]]


def test_lists_as_text_whose_ids_are_columns(files):
  files['scores'].write_bytes(listed(('x', [('4', 0.5), ('0', 0.25)])))
  label_file(files['gold'], [[4]])
  found, _ = read_judged(JudgeFiles(files['scores'], files['gold']))
  assert found.labels == ('0', '1', '2', '3', '4')
  assert found.lists['all'].ids.tolist() == [[4, 0]]
  # No file says how many columns there are, so the used ones are the labels.
  features(None)(files['gold'], [[4, 7]])
  found, _ = read_judged(JudgeFiles(files['scores'], files['gold']))
  assert found.labels == ('0', '4', '7')
  assert found.gold.values.tolist() == [1, 2]
  files['scores'].write_bytes(listed(('x', [('fish', 0.5)])))
  label_file(files['gold'], [[4]])
  with pytest.raises(DataError) as caught:
    read_judged(JudgeFiles(files['scores'], files['gold']))
  assert str(caught.value) == (
    f"{files['scores']}:1: label 'fish' is unknown; {files['gold']} has column "
    'numbers, so label ids must be numbers from 0 to 4, or give a file '
    'with the label id of each column: --label_order=FILE'
  )


def saved(path: pathlib.Path, labels=('b', 'a', 'c'), **fields) -> None:
  Predictions(
    **{
      'score_kind': ScoreKind.LOGIT,
      'n_scored': 2,
      'n_train': 60,
      'doc_ids': ('x', 'y'),
      'labels': labels,
      'train_counts': np.array([60, 1, 0], np.int32),
      'lists': {
        'all': LabelLists(
          np.array([[1, 0], [0, PAD]], np.int32),
          np.array([[2, 1], [0, -INF]], np.float32),
        ),
        'few': LabelLists(
          np.array([[1], [PAD]], np.int32), np.array([[2], [-INF]], np.float32)
        ),
      },
      'gold': Ragged.of([[2], [0, 1]]),
      **fields,
    }
  ).save(path)


def test_saved_predictions(files):
  saved(files['scores'])
  found, _ = read_judged(JudgeFiles(files['scores'], depth=1), 3)
  assert found.lists['all'].ids.tolist() == [[1], [0]]
  found, _ = read_judged(JudgeFiles(files['scores']), 1)
  assert found.lists['all'].ids.tolist() == [[1, 0], [0, PAD]]
  assert set(found.lists) == {'all', 'few'} and found.n_train == 60
  assert [row.tolist() for row in found.gold] == [[2], [0, 1]]
  files['gold'].write_bytes(
    lines({'id': 'x', 'labels': ['z', 'a']}, {'id': 'y', 'labels': ['d']})
  )
  found, _ = read_judged(JudgeFiles(files['scores'], files['gold']))
  assert found.labels == ('b', 'a', 'c', 'd', 'z') and found.n_scored == 2
  assert [row.tolist() for row in found.gold] == [[1, 4], [3]]
  assert found.train_counts.tolist() == [60, 1, 0, 0, 0]
  # Saved lists of slices are of no use with other training counts.
  found, _ = read_judged(
    JudgeFiles(files['scores'], train_labels=files['gold'])
  )
  assert set(found.lists) == {'all'} and found.n_train == 2
  assert found.train_counts.tolist() == [0, 1, 0, 1, 1]
  # Saved predictions give the gold labels for another system.
  files['more'].write_bytes(listed(('x', [('a', 1)]), ('y', [('b', 1)])))
  found, _ = read_judged(JudgeFiles(files['more'], files['scores']))
  assert found.labels == ('a', 'b', 'c')
  assert [row.tolist() for row in found.gold] == [[2], [0, 1]]


def test_saved_predictions_and_columns(files):
  write_xc(files['gold'], XcFile(None, Ragged.of([[0], [2]]), 3))
  # Columns follow the order of the labels ...
  saved(files['scores'])
  found, _ = read_judged(JudgeFiles(files['scores'], files['gold']))
  assert found.gold.values.tolist() == [0, 2]
  # ... unless the labels' ids are the numbers of the columns.
  saved(files['scores'], labels=('2', '0', '1'))
  write_inv_prop(files['more'], np.array([1.0, 2, 3]))
  found, weights = read_judged(
    JudgeFiles(files['scores'], files['gold'], inv_prop=files['more'])
  )
  assert found.gold.values.tolist() == [1, 0]
  assert weights.tolist() == [3, 1, 2]


def test_a_filter_comes_before_selection(files):
  score_text(files['scores'], WHOLE)
  write_pairs(files['more'], np.array([[0, 1], [1, 0], [2, 0], [2, 4]]))
  found, _ = read_judged(
    JudgeFiles(files['scores'], filter=files['more'], depth=2)
  )
  # The labels that move up are known; the score of 0 in the second row stays.
  assert found.lists['all'].ids.tolist() == [[0, 4], [3, 2], [2, PAD]]
  # In rows that were cut, nobody knows which labels would move up.
  score_text(files['scores'], SCORES)
  with pytest.raises(DataError, match='predict more labels'):
    write_pairs(files['more'], np.array([[0, 1], [0, 0], [0, 4]]))
    read_judged(JudgeFiles(files['scores'], filter=files['more']))
  write_pairs(files['more'], np.array([[0, 1], [1, 3], [2, 4]]))
  found, _ = read_judged(JudgeFiles(files['scores'], filter=files['more']))
  assert found.lists['all'].ids.tolist() == [[0, 4], [2, PAD], [0, 2]]


def test_inverse_propensities(files):
  score_text(files['scores'], SCORES)
  write_inv_prop(files['more'], np.array([1.5, 2, 3, 4, 5]))
  _, weights = read_judged(JudgeFiles(files['scores'], inv_prop=files['more']))
  assert weights.tolist() == [1.5, 2, 3, 4, 5]
  assert weights.dtype == np.float64


def test_the_kind_of_scores(files):
  score_text(files['scores'], abs(SCORES))
  kind = ScoreKind.PROBABILITY
  found, _ = read_judged(JudgeFiles(files['scores'], score_kind=kind))
  assert found.score_kind is kind
  score_text(files['scores'], SCORES)
  with pytest.raises(DataError, match='scores:3: .* label 2 is not from 0'):
    read_judged(JudgeFiles(files['scores'], score_kind=kind))
  saved(files['scores'])
  with pytest.raises(DataError, match='kind logit, but --score_kind is prob'):
    read_judged(JudgeFiles(files['scores'], score_kind=kind))


@pytest.mark.real_data
def test_bibtex(data_dir, files):
  path = data_dir / 'bibtex'
  matrix = sparse.random_array((2515, 159), density=0.1, rng=0, format='csr')
  write_xc_scores(files['scores'], matrix)
  found, _ = read_judged(
    JudgeFiles(files['scores'], path / 'test.txt', path / 'train.txt', depth=5)
  )
  assert len(found) == len(found.gold) == 2515 and found.n_train == 4880
  assert found.train_counts.sum() == 11616
  assert found.lists['all'].ids.shape == (2515, 5)
