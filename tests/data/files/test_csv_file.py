"""CSV files: formulas are shown as text, numbers stay numbers."""

import csv

import pytest

from xjax.data.files.csv_file import write_csv


@pytest.mark.parametrize('text', ['=1+1', '+1', '-x', '@SUM(A1)', '\tx'])
def test_what_a_spreadsheet_would_compute_gets_an_apostrophe(tmp_path, text):
  write_csv(tmp_path / 'a.csv', ('name', 'value'), [(text, -0.5), ('a-b', 1)])
  with (tmp_path / 'a.csv').open(newline='') as file:
    rows = list(csv.reader(file))
  assert rows == [['name', 'value'], [f"'{text}", '-0.5'], ['a-b', '1']]


def test_a_missing_value_is_an_empty_cell(tmp_path):
  write_csv(tmp_path / 'a.csv', ('a', 'b'), [(None, 1.25)])
  assert (tmp_path / 'a.csv').read_text() == 'a,b\n,1.25\n'
