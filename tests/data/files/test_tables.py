"""Tables: kind and delimiter are told by the contents.

In tables that are written, formulas are text, and numbers stay numbers.
"""

import csv
import io
import json

import pyarrow as pa
from pyarrow import parquet
import pytest

from xjax.core.errors import DataError
from xjax.data.files.faults import Faults
from xjax.data.files.tables import (
  TableFormat,
  read_table,
  table_format,
  write_csv,
)


def read(data: bytes, name: str = 'x.csv'):
  faults = Faults()
  table = read_table(io.BytesIO(data), name, faults)
  return table.columns, list(table.rows), faults.shown


@pytest.mark.parametrize(
  ('data', 'name', 'kind'),
  [
    (b'{"text": "a,b"}', 'x.csv', TableFormat.JSON_LINES),
    (b'\xef\xbb\xbf {"a": 1}', 'x', TableFormat.JSON_LINES),
    (b'a,b\n', 'x', TableFormat.TABLE),
    (b'"a"\tb\n', 'x.jsonl', TableFormat.TABLE),
    (b'text\n', 'x.csv', TableFormat.TABLE),
    (b'text\n', '-', TableFormat.JSON_LINES),
    (b'', 'x.csv', TableFormat.JSON_LINES),
    (b'PAR1...', 'x', TableFormat.PARQUET),
    (b'__label__a, b\n', 'x.csv', TableFormat.FASTTEXT),
    (b'no label, \xc3\xa9\n__label__a b\n', 'x.txt', TableFormat.FASTTEXT),
    (b'text,labels\nb,__label__a\n__label__b c,d', 'x', TableFormat.TABLE),
    (b'"text" "labels"\r\n', 'x', TableFormat.TABLE),
  ],
)
def test_kinds(data, name, kind):
  file = io.BytesIO(data)
  assert table_format(file, name) is kind and file.tell() == 0


def test_a_comma_in_cells_is_not_the_delimiter():
  data = b'a;b, c;d\n1, 2;3, 4;5, 6\n'
  assert read(data)[:2] == (
    ('a', 'b, c', 'd'),
    [(2, {'a': '1, 2', 'b, c': '3, 4', 'd': '5, 6'})],
  )


def test_a_single_column_may_have_commas():
  rows = read(b'text\none, two\n"three\nfour"\nfive\n')[1]
  texts = {2: 'one, two', 3: 'three\nfour', 5: 'five'}
  assert rows == [(line, {'text': text}) for line, text in texts.items()]


def test_numbered_rows_need_no_name_for_their_numbers():
  assert read(b',text\n0,x\n')[0] == ('column-1', 'text')


@pytest.mark.parametrize('end', [b'\n', b'\r\n', b'\r'])
def test_line_ends(end):
  data = end.join([b'a,b', b'"x', b'y",z', b'1,2,3', b''])
  _, rows, shown = read(data)
  assert [line for line, _ in rows] == [2]
  assert shown == ['x.csv:4: 3 cells, but 2 columns']


def test_a_damaged_parquet_file_is_one_error():
  with pytest.raises(DataError, match='^x.csv:1: not a Parquet file that can'):
    read(b'PAR1 is all there is')


def test_a_faulty_header_is_not_replaced_by_the_next_row():
  with pytest.raises(DataError, match='^x.csv:1: not a row of a table: '):
    read(b'"te"xt,labels\nt 0 x,a0;b\nt 1 x,b\n')
  closed = '^x.csv:1: .* quote that is never closed'
  with pytest.raises(DataError, match=closed):
    read(b'"text,labels\nx,a\n')


@pytest.mark.parametrize('text', ['=1+1', '+1', '-x', '@SUM(A1)', '\tx'])
def test_what_a_spreadsheet_would_compute_gets_an_apostrophe(tmp_path, text):
  write_csv(tmp_path / 'a.csv', ('name', 'value'), [(text, -0.5), ('a-b', 1)])
  with (tmp_path / 'a.csv').open(newline='') as file:
    rows = list(csv.reader(file))
  assert rows == [['name', 'value'], [f"'{text}", '-0.5'], ['a-b', '1']]


def test_a_missing_value_is_an_empty_cell(tmp_path):
  write_csv(tmp_path / 'a.csv', ('a', 'b'), [(None, 1.25)])
  assert (tmp_path / 'a.csv').read_text() == 'a,b\n,1.25\n'


@pytest.mark.parametrize(
  ('line', 'labels', 'text'),
  [
    ('__label__a-b __label__c_d x, y', ['a-b', 'c_d'], 'x, y'),
    ('__label__a, __label__élève x "y', ['a', 'élève'], 'x "y'),
    ('__label__日本\t語', ['日本'], '語'),
    ('no x__label__ x', [], 'no x__label__ x'),
    ('the end __label__z', ['z'], 'the end '),
  ],
)
def test_lines_of_fasttext(line, labels, text):
  columns, rows, shown = read(f'__label__a b\n\n{line}\n'.encode(), 'x.txt')
  assert columns == ('text', 'labels') and not shown
  assert rows[1:] == [(3, {'text': text, 'labels': labels})]


CLASSES = {'_type': 'ClassLabel', 'names': ['a', 'é']}


@pytest.mark.parametrize(
  ('feature', 'values', 'named'),
  [
    (CLASSES, [1, 0, -1, None, 2], ['é', 'a', None, None, 2]),
    ({'_type': 'Sequence', 'feature': CLASSES}, [[1, 0], []], [['é', 'a'], []]),
    ({'_type': 'List', 'feature': CLASSES}, [[1], None], [['é'], None]),
    ([CLASSES], [[0]], [['a']]),
    ({'_type': 'Value', 'dtype': 'int64'}, [1], [1]),
    (None, [1], [1]),
  ],
)
def test_parquet_of_hugging_face_has_names_of_classes(feature, values, named):
  metadata = {'huggingface': json.dumps({'info': {'features': {'l': feature}}})}
  table = pa.table({'l': values}).replace_schema_metadata(metadata)
  file = io.BytesIO()
  parquet.write_table(table, file)
  assert [row['l'] for _, row in read(file.getvalue())[1]] == named
