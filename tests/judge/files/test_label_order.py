"""Labels in order, from files."""

import gzip

import numpy as np
import pytest

from tests.fixtures.error_text import error_text
from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.schema import Label, LabelSpace
from xjax.judge.files.document_labels import DocumentLabels
from xjax.judge.files.matching import (
  column_numbers,
  name_columns,
  read_label_order,
)


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
