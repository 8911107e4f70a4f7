"""Checks reading predictions of other systems: formats, filter, selection."""

import dataclasses
import gzip
import json
import pathlib

import numpy as np
import pytest
from scipy import sparse

from tests.fixtures.xc_writers import write_xc, write_xc_scores
from tests.judge.files.given import given, read
from tests.judge.systems import lists_of, system
from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.judge.files.judge_files import JudgeFiles, read_judged
from xjax.judge.predictions import Predictions

INF = np.inf


def matrix(*rows: dict[int, float]) -> sparse.csr_array:
  """Scores of five labels, of label -> score for each document."""
  entries = [list(row.items()) for row in rows]
  labels, scores = np.array([e for row in entries for e in row]).T
  indptr = np.cumsum([0, *map(len, rows)])
  parts = scores, labels.astype(np.int32), indptr
  return sparse.csr_array(parts, shape=(len(rows), 5))


# Three documents and five labels have ties, a stored zero and a short row.
SHORT = {2: -1, 3: 0}, {0: 0.25, 2: 0.25, 4: 0.25}
SCORES = matrix({0: 0.5, 1: 0.75, 4: 0.5}, *SHORT).astype(np.float32)
BEST = [[1, 0, 4], [3, 2, PAD], [0, 2, 4]]
BEST_SCORES = [[0.75, 0.5, 0.5], [0, -1, -INF], [0.25, 0.25, 0.25]]
GOLD = [[1, 4], [], [2]]


def lines(*rows) -> bytes:
  return b''.join(json.dumps(row).encode() + b'\n' for row in rows)


def saved_by_scipy(kind: str, array: bool = True):
  def save(path: pathlib.Path, matrix: sparse.csr_array) -> None:
    matrix = matrix if array else sparse.csr_matrix(matrix)
    with path.open('wb') as file:
      sparse.save_npz(file, matrix.asformat(kind))

  return save


def gzipped_text(path: pathlib.Path, matrix: sparse.csr_array) -> None:
  write_xc_scores(path, matrix)
  path.write_bytes(gzip.compress(path.read_bytes()))


MATRICES = {
  **{kind: saved_by_scipy(kind) for kind in ('csr', 'csc', 'coo')},
  'a matrix of old': saved_by_scipy('csr', array=False),
  'text': write_xc_scores,
  'gzipped text': gzipped_text,
}


def features(n_labels: int | None):
  def write(path: pathlib.Path, rows: list[list[int]]) -> None:
    some = sparse.csr_array(np.ones((len(rows), 2), np.float32))
    write_xc(path, Ragged.of(rows), n_labels, some)

  return write


def json_lines(field: str, name: str, convert):
  def write(path: pathlib.Path, rows: list[list[int]]) -> None:
    labels = [list(map(convert, row)) for row in rows]
    path.write_bytes(
      lines(*({name: f'd{i}', field: row} for i, row in enumerate(labels)))
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
  write_xc(path, Ragged.of(rows), 5)


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


@pytest.mark.parametrize('kind', MATRICES)
def test_scores_of_every_format(files, kind):
  MATRICES[kind](files['scores'], SCORES)
  found, weights = read(files, depth=3)
  lists = found.lists['all']
  assert lists.ids.tolist() == BEST and lists.ids.dtype == np.int32
  assert lists.scores.tolist() == BEST_SCORES
  assert lists.scores.dtype == np.float32
  assert found.score_kind is ScoreKind.MARGIN and found.n_scored == 5
  assert found.n_train == 0 and found.train_counts.tolist() == [0] * 5
  assert found.doc_ids == ('0', '1', '2') and found.gold is None
  assert found.labels == ('0', '1', '2', '3', '4') and weights is None
  # Most rows have three labels, so that deeper labels are not known.
  deep, _ = read(files, depth=7)
  assert deep.lists['all'].ids.tolist() == BEST
  first, _ = read(files, depth=1)
  assert first.lists['all'].ids.tolist() == [[1], [3], [0]]


@pytest.mark.parametrize('kind', GOLDS)
def test_gold_and_training_labels_of_every_format(files, kind, tmp_path):
  write_xc_scores(files['scores'], SCORES)
  GOLDS[kind](files['gold'], GOLD)
  GOLDS[kind](files['train'], [[0, 1], [1], [4, 1], []])
  found, _ = read(files, 'gold', 'train', depth=2)
  assert [row.tolist() for row in found.gold] == GOLD
  assert found.n_train == 4
  assert found.train_counts.tolist() == [1, 3, 0, 0, 1]
  assert found.train_counts.dtype == np.int32
  found.save(tmp_path / 'saved.npz')
  again = Predictions.load(tmp_path / 'saved.npz')
  assert again.labels == found.labels


def listed(*rows) -> bytes:
  """JSON lines as predict writes them: (id, [(label, score), ...])."""
  labels = [
    [{'id': v, 'name': v, 'score': s} for v, s in row] for _, row in rows
  ]
  return lines(*({'id': r[0], 'labels': x} for r, x in zip(rows, labels)))


LISTED = listed(
  ('a', [('fish', 1.0), ('law', 1.0), ('sea', 0.25)]), ('b', [('law', 0.5)])
)


def test_lists_as_text(files):
  files['scores'].write_bytes(LISTED)
  files['gold'].write_bytes(
    lines({'id': 'a', 'labels': ['sea', 'new']}, {'id': 'b', 'labels': []})
  )
  files['train'].write_bytes(lines({'id': 'z', 'labels': ['fish', 'old']}))
  found, _ = read(files, 'gold', 'train', depth=9)
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
  found, _ = read(files, depth=1)
  assert found.score_kind is ScoreKind.MARGIN
  assert found.lists['all'].ids.tolist() == [[0]]


def saved(path: pathlib.Path, labels=('b', 'a', 'c')) -> None:
  whole = system(
    *([[1, 0], [0, PAD]], [[2, 1], [0, -INF]]),
    *([[2], [0, 1]], [60, 1, 0]),
    n_scored=2,
    n_train=60,
    doc_ids=('x', 'y'),
    labels=labels,
  )
  lists = {**whole.lists, 'few': lists_of([[1], [PAD]], [[2], [-INF]])}
  dataclasses.replace(whole, lists=lists).save(path)


def test_saved_predictions(files):
  saved(files['scores'])
  found, _ = read_judged(given(files, depth=1), 3)
  assert found.lists['all'].ids.tolist() == [[1], [0]]
  found, _ = read_judged(given(files), 1)
  assert found.lists['all'].ids.tolist() == [[1, 0], [0, PAD]]
  assert set(found.lists) == {'all', 'few'} and found.n_train == 60
  assert [row.tolist() for row in found.gold] == [[2], [0, 1]]
  files['gold'].write_bytes(
    lines({'id': 'x', 'labels': ['z', 'a']}, {'id': 'y', 'labels': ['d']})
  )
  found, _ = read(files, 'gold')
  assert found.labels == ('b', 'a', 'c', 'd', 'z') and found.n_scored == 2
  assert [row.tolist() for row in found.gold] == [[1, 4], [3]]
  assert found.train_counts.tolist() == [60, 1, 0, 0, 0]
  # Saved lists of slices are of no use with other training counts.
  files['train'].write_bytes(files['gold'].read_bytes())
  found, _ = read(files, 'train')
  assert set(found.lists) == {'all'} and found.n_train == 2
  assert found.train_counts.tolist() == [0, 1, 0, 1, 1]
  # Saved predictions give the gold labels for another system.
  files['other'].write_bytes(listed(('x', [('a', 1)]), ('y', [('b', 1)])))
  found, _ = read_judged(JudgeFiles(files['other'], files['scores']))
  assert found.labels == ('a', 'b', 'c')
  assert [row.tolist() for row in found.gold] == [[2], [0, 1]]


def test_the_kind_of_scores(files):
  write_xc_scores(files['scores'], abs(SCORES))
  kind = ScoreKind.PROBABILITY
  found, _ = read(files, score_kind=kind)
  assert found.score_kind is kind
  write_xc_scores(files['scores'], SCORES)
  with pytest.raises(DataError, match='scores:3: .* label 2 is not from 0'):
    read(files, score_kind=kind)
  saved(files['scores'])
  with pytest.raises(DataError, match='kind logit, but --score_kind is prob'):
    read(files, score_kind=kind)
