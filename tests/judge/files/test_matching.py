import dataclasses
import gzip

from absl import logging
import numpy as np
import pytest
from scipy import sparse

from tests.fixtures.error_text import error_text
from tests.fixtures.vector_files import json_lines
from tests.fixtures.xc_writers import (
  write_inv_prop,
  write_pairs,
  write_xc,
  write_xc_scores,
)
from tests.judge.files.given import given, read, refused
from tests.judge.systems import system
from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.data.formats import xc_files
from xjax.data.schema import Label, LabelSpace
from xjax.judge.files.document_labels import DocumentLabels
from xjax.judge.files.judge_files import read_judged, read_train_gold
from xjax.judge.files.matching import (
  column_numbers,
  name_columns,
  read_label_order,
)

NAMES = ('law', 'tax', 'sea')


@pytest.fixture
def said(monkeypatch):
  lines = []
  monkeypatch.setattr(
    logging, 'info', lambda text, *values: lines.append(text % values)
  )
  return lines


def saved(path, labels, **fields) -> None:
  """One document, with all labels from the first on."""
  n = len(labels)
  parts = {'doc_ids': ('d',), 'labels': tuple(labels), 'gold': None}
  ids = np.arange(n)[None]
  system(ids, -ids, [], np.zeros(n), **{'n_train': 0} | parts | fields).save(
    path
  )


def matrix(path, n: int = 3, n_docs: int = 1) -> None:
  """Documents with every label, the first one best."""
  scores = np.tile(np.arange(n, 0, -1.0), (n_docs, 1))
  write_xc_scores(path, sparse.csr_array(scores))


def with_header(path, rows: list[list[int]], n: int) -> None:
  write_xc(path, Ragged.of(rows), n)


def without(path, rows: list[list[int]]) -> None:
  lines = (','.join(map(str, row)) + ' 0:1\n' for row in rows)
  path.write_text(''.join(lines))


def by_id(path, *rows) -> None:
  rows = ({'id': f'd{i}', 'labels': row} for i, row in enumerate(rows))
  json_lines(path, rows)


def scored_lists(path, *rows: tuple[str, ...]) -> None:
  by_id(path, *([{'id': x, 'score': 0.5} for x in row] for row in rows))


def test_ids_that_are_numbers_are_the_columns(files):
  """Sorted as text, and some columns were never trained."""
  saved(files['scores'], ('0', '1', '10', '2'))
  with_header(files['gold'], [[2, 3, 10]], 12)
  without(files['train'], [[2], [10, 2], [11]])
  write_inv_prop(files['weights'], np.arange(1.0, 13))
  asked = given(files, 'gold', 'train', 'weights')
  found, weights = read_judged(asked)
  # The columns of the header that are not predicted from come after.
  assert found.labels == tuple('0 1 10 2 11 3 4 5 6 7 8 9'.split())
  assert found.n_scored == 4
  assert [found.labels[i] for i in found.gold[0]] == ['10', '2', '3']
  counts = dict(zip(found.labels, found.train_counts.tolist()))
  assert {k: v for k, v in counts.items() if v} == {'10': 1, '2': 2, '11': 1}
  assert weights.tolist() == [int(id_) + 1 for id_ in found.labels]
  assert weights.dtype == np.float64
  assert [row.tolist() for row in read_train_gold(asked)] == [[3], [2, 3], [4]]


def test_columns_that_are_not_predicted(files, monkeypatch):
  saved(files['scores'], ('0', '1', '10', '2'))
  # Without a header, a column that nobody predicts is one label more.
  without(files['gold'], [[1, 3]])
  found, _ = read(files, 'gold')
  assert found.labels == ('0', '1', '10', '2', '3')
  assert found.gold.values.tolist() == [1, 4]
  without(files['gold'], [[1, 3, 11]])
  fault = refused(files, 'gold')
  assert fault == 'gold:1: label 11 is not in 0..10, the columns of scores'
  # Descriptors of a thesaurus are numbers, too, but of no column.
  with_header(files['gold'], [[1, 3]], 4)
  end = UNKNOWN.format('gold', 3)
  assert refused(files, 'gold') == f"scores: label '10'{end}"
  without(files['gold'], [[1, 10]])
  write_pairs(files['filter'], np.array([[0, 0], [0, 3]]))
  # The width of a filter is that of the predictions, which was believed.
  monkeypatch.setattr(xc_files, '_COLUMNS', 5)
  found, _ = read(files, 'gold', 'filter')
  # A pair of a label that is never predicted takes nothing out.
  assert found.lists['all'].ids.tolist() == [[1, 2, 3]]


UNKNOWN = (
  ' is unknown; {} has column numbers, so label ids must be numbers from 0 to '
  '{}, or give a file with the label id of each column: --label_order=FILE'
)


def test_names_are_no_columns(files, said):
  saved(files['scores'], NAMES)
  with_header(files['gold'], [[2]], 3)
  end = UNKNOWN.format('gold', 2)
  assert refused(files, 'gold') == f"scores: label 'law'{end}"
  files['labels'].write_text('law\ntax\nsea\n')
  found, _ = read(files, 'gold', 'labels')
  assert found.gold.values.tolist() == [2] and found.labels == NAMES
  place = 'documents are matched by position'
  assert said == [f'{place}: {files["gold"]} has no document ids']
  with_header(files['gold'], [[2]], 4)
  fault = refused(files, 'gold', 'labels')
  assert fault == 'gold: has 4 labels, but labels has 3'
  without(files['gold'], [[2]])
  assert refused(files, 'gold') == (
    "gold: has no label of scores; gold has '2', and scores has 'law'; both "
    'files must use the same label ids, or give the label id of each column: '
    '--label_order=FILE'
  )
  write_pairs(files['filter'], np.array([[0, 1]]))
  assert refused(files, 'filter') == (
    'filter: has column numbers, but no label id is a number; give the label '
    'id of each column: --label_order=FILE'
  )


def test_labels_in_order_name_the_columns(files):
  matrix(files['scores'])
  by_id(files['gold'], ('sea', 'law'))
  by_id(files['train'], ('tax',), ('tax', 'sea'))
  end = UNKNOWN.format('scores', 2)
  assert refused(files, 'gold') == f"gold:1: label 'sea'{end}"
  files['labels'].write_text('law\ntax\nsea\n')
  write_pairs(files['filter'], np.array([[0, 1]]))
  asked = given(files, 'gold', 'train', 'filter', 'labels')
  found, _ = read_judged(asked)
  assert found.labels == NAMES
  assert found.lists['all'].ids.tolist() == [[0, 2] + [PAD] * 48]
  assert found.gold.values.tolist() == [0, 2]
  assert found.train_counts.tolist() == [0, 2, 1]
  assert read_train_gold(asked).values.tolist() == [1, 1, 2]
  # Documents are those of the gold.
  assert found.doc_ids == ('d0',)


def test_labels_in_order_name_the_columns_of_gold_as_well(files):
  scored_lists(files['scores'], ('sea', 'law'))
  without(files['gold'], [[1, 2]])
  files['labels'].write_text('law\ntax\nsea\n')
  write_inv_prop(files['weights'], np.array([1.0, 2, 3]))
  found, weights = read(files, 'gold', 'weights', 'labels')
  assert found.labels == ('law', 'sea', 'tax')
  assert found.lists['all'].ids.tolist() == [[1, 0]]
  assert found.gold.values.tolist() == [1, 2]
  assert weights.tolist() == [1, 3, 2]


def test_labels_that_the_order_does_not_have(files):
  files['labels'].write_text('law\ntax\nsea\n')
  end = (
    ' is not in labels (--label_order); correct the id, or add a line for the '
    'label (and a column to files with columns)'
  )
  scored_lists(files['scores'], ('law',), ('tax', 'taxx'))
  by_id(files['gold'], ('law',), ('sea',))
  for names in (), ('gold',):
    said = refused(files, 'labels', *names)
    assert said == f"scores:2: label 'taxx'{end}"
  matrix(files['scores'], n_docs=2)
  by_id(files['gold'], ('law',), ('sea', 'see'))
  assert refused(files, 'labels', 'gold') == f"gold:2: label 'see'{end}"
  saved(files['scores'], ('0', '1', '2'))
  assert refused(files, 'labels') == f"scores: label '0'{end}"


def test_unknown_labels_are_counted_where_no_order_is_given(files, caplog):
  scored_lists(files['scores'], ('law', 'C999'), ('tax', 'C999'))
  by_id(files['gold'], ('law',), ('sea',))
  by_id(files['train'], ('tax',))
  asked = given(files, 'gold', 'train')
  found, _ = read_judged(asked)
  assert 'C999' in found.labels
  assert (
    f'{files["scores"]}: 2 of 4 predictions are of labels that '
    f"{files['gold']} and {files['train']} do not have, such as 'C999'; "
  ) in caplog.text
  without(files['other'], [[7], [8]])
  scored_lists(files['scores'], ('8', '9'), ('9',))
  read_judged(given(files | {'gold': files['other']}, 'gold'))
  assert (
    f'2 of 3 predictions are of labels that {files["other"]}' in caplog.text
  )
  scored_lists(files['scores'], ('law', 'C999'), ('tax', 'C999'))
  caplog.clear()
  files['labels'].write_text('law\ntax\nsea\nC999\n')
  read_judged(dataclasses.replace(asked, labels=files['labels']))
  by_id(files['train'], ('tax', 'C999'))
  read_judged(asked)
  assert not [r for r in caplog.records if r.levelname == 'WARNING']


def test_training_counts_of_saved_predictions(files):
  matrix(files['scores'])
  counts = np.array([0, 7, 60, 0], np.int32)
  gold = Ragged.of([[0, 3]])
  fields = {'n_train': 60, 'train_counts': counts, 'gold': gold}
  saved(files['train'], ('x', '2', '0', 'y'), **fields)
  asked = given(files, 'train')
  found, _ = read_judged(asked)
  # Not its gold, which is that of documents that are judged.
  assert found.n_train == 60 and found.train_counts.tolist() == [60, 0, 7]
  with pytest.raises(DataError, match='training counts, but not the labels of'):
    read_train_gold(asked)
  saved(files['train'], ('0', '1'))
  message = refused(files, 'train')
  assert message.endswith('has no label, so labels cannot be counted')


SET = ', set --score_kind='
MARGINS = f'margin (some are not from 0 to 1; for logits{SET}logit)'
SHARES = f'probability (all are from 0 to 1; for margins{SET}margin)'
LOW = f'margin (but all are from 0 to 1; if they are probabilities{SET}'
LOW += 'probability)'
LISTS = 'its rows are read as lists of the best 2 labels; metrics that need '
LISTS += 'longer lists have no value'
KIND = 'its scores are read as '


@pytest.mark.parametrize(
  ('scores', 'kind', 'lines'),
  [
    ([4, 3, 2, 1], None, [KIND + MARGINS]),
    ([2, 1, 0, 0], None, [KIND + MARGINS, LISTS]),
    ([1, 0.5, 0, 0], None, [KIND + LOW, LISTS]),
    ('text', None, [KIND + SHARES]),
    ('text', ScoreKind.MARGIN, []),
  ],
)
def test_what_is_taken_for_granted_is_said(files, said, scores, kind, lines):
  if scores == 'text':
    by_id(files['scores'], [{'id': 'a', 'score': 1}])
  else:
    write_xc_scores(files['scores'], sparse.csr_array(np.float64([scores])))
  read(files, score_kind=kind)
  assert said == [f'{files["scores"]}: {line}' for line in lines]


def test_rows_that_are_cut_name_the_depth_that_keeps_them(files, said):
  matrix(files['scores'], 70)
  read(files)
  assert said[1:] == [
    f'{files["scores"]}: only the best 50 labels of each document are kept, of '
    'up to 70; slices and metrics may need more; to keep all labels, set '
    '--depth=70'
  ]
  found, _ = read(files, depth=70)
  assert len(said) == 3 and found.lists['all'].ids.shape == (1, 70)


def test_documents_in_another_order_are_matched_by_id(files):
  scored_lists(files['scores'], ('law',), ('tax',), ('sea',))
  by_id(files['gold'], ('law',), ('tax', 'sea'), ('sea',))
  asked = given(files, 'gold')
  straight, _ = read_judged(asked)
  for name in ('scores', 'gold'):
    lines = files[name].read_text().splitlines(keepends=True)
    files[name].write_text(''.join(lines[::-1]))
    found, _ = read_judged(asked)
    assert found.doc_ids[0] == 'd2' and found.labels == straight.labels
    place = found.doc_ids.index('d1')
    assert found.gold[place].tolist() == straight.gold[1].tolist()
    assert found.gold[0].tolist() == straight.gold[2].tolist()
  write_pairs(files['filter'], np.array([[0, 1]]))
  files['labels'].write_text('law\ntax\nsea\n')
  by_id(files['gold'], ('law',), ('tax', 'sea'), ('sea',))
  message = refused(files, 'gold', 'filter', 'labels')
  assert message == (
    'filter: has row numbers, but the documents of scores are in another order '
    'than those of gold; put both files in the order of the filter'
  )


def test_a_document_that_only_one_file_has_is_named(files):
  scored_lists(files['scores'], ('law',), ('tax',))
  by_id(files['gold'], ('law',))
  assert refused(files, 'gold') == (
    "scores:2: document 'd1' is not in gold (documents only in gold: 0, only "
    'in scores: 1); both files must have the same documents'
  )


def test_a_transposed_matrix_is_said(files):
  matrix(files['scores'], 4, n_docs=3)
  with_header(files['gold'], [[0], [1], [2], []], 3)
  assert refused(files, 'gold') == (
    'scores: has 3 rows and 4 columns, but gold has 4 documents and 3 labels; '
    'is the matrix transposed? A row belongs to a document'
  )


@pytest.mark.parametrize('save', [np.save, np.savez])
def test_a_dense_array_is_told_to_be_saved_as_sparse(files, save):
  with files['scores'].open('wb') as file:
    save(file, np.ones((3, 4)))
  with pytest.raises(DataError, match=r'with scipy.sparse.save_npz\(PATH'):
    read(files)


def test_numbers_of_columns():
  ids = ['0', '10', '01', 'x', '-1', '', '99999999', '100000000', '\u0661']
  numbers = column_numbers(ids).tolist()
  assert numbers == [0, 10, -1, -1, -1, -1, 99999999, -1, -1]


def test_every_form(tmp_path):
  path = tmp_path / 'l'
  path.write_bytes(b'law\nsea of \xc3\xa9\n0\n')
  order = read_label_order(path)
  assert order.labels == ('law', 'sea of é', '0') and not order.numbered
  path.write_bytes(gzip.compress(b'3\n5\n'))
  order = read_label_order(path)
  assert order.labels == ('3', '5') and order.numbered
  space = LabelSpace((Label('b'), Label('a')), np.array([2, 1]), 3, 2)
  path = tmp_path / 'labels.jsonl'
  space.save(path)
  assert read_label_order(path).labels == ('b', 'a')
  path = tmp_path / 'labels.csv'
  path.write_text('id,name\nlaw,Law\nsea,Sea\n')
  assert read_label_order(path).labels == ('law', 'sea')
  path.write_text('law\nsea\n')  # without a header that names a column
  assert read_label_order(path).labels == ('law', 'sea')


def test_columns_are_named():
  order = ('b', 'a', 'c'), 'l'
  rows = Ragged.of([[2], [0]])
  named = name_columns(DocumentLabels('f', rows), *order)
  assert named.labels == ('b', 'a', 'c') and named.n_labels == 3
  # Whoever has ids keeps them.
  ids = DocumentLabels('f', rows, ('x', 'y', 'z'))
  assert name_columns(ids, *order) is ids
  with pytest.raises(DataError, match='^f: has 4 labels, but l has 3$'):
    name_columns(DocumentLabels('f', rows, n_labels=4), *order)
  with pytest.raises(DataError, match='^f: row 1: label 3 is not in 0..2, the'):
    name_columns(DocumentLabels('f', Ragged.of([[2], [3]])), *order)


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    (b'', ': no label in it'),
    (b'a\n\nb\n', ':2: the id is empty'),
    (b'a\nb\na\n', ":3: duplicate label 'a'"),
    (b'a\tb\n', ":1: the label id 'a\\tb' has spaces around it or control"),
    (b'{"id": "a"}\n{"id": "a"}\n', ":2: duplicate label 'a'"),
    (b'2\n0\n1\n', ': the ids are column numbers, but not in ascending order'),
  ],
)
def test_faults(tmp_path, text, message):
  path = tmp_path / 'l'
  path.write_bytes(text)
  assert error_text(read_label_order, path).startswith(f'{path}{message}')
