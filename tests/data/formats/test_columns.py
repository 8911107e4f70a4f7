"""Columns and separators are guessed only where they are plain."""

import pytest

from xjax.data.files.cells import guess_separator
from xjax.data.files.json_lines import Fields
from xjax.data.formats.columns import (
  Columns,
  choose_columns,

  read_row,
)


@pytest.mark.parametrize(
  ('cells', 'separator'),
  [
    (['a;b', 'a;c', 'b'], ';'),
    (['x|y', 'y|x|z', 'z'], '|'),
    # One label with a separator in it may be frequent.
    (['R&D; ops'] * 3 + ['sales'], 'none'),
    (['x|y'] * 3, 'none'),
    (['grain,oil', 'oil,wheat', 'grain', 'wheat,oil'], ','),
    # The parts of these labels are in no other cell.
    (['Health, Fitness', 'Arts, Music', 'Law', 'Law', 'Arts, Music'], 'none'),
    (['["a", "b"]', '[]'], 'list'),
    (["['a', 'b']"], 'list'),
    (['[a]', 'b'], 'none'),
    (['one', 'two', ''], 'none'),
    ([['a'], None, 3], 'none'),
    ([], 'none'),
  ],
)
def test_the_separator_is_guessed(cells, separator):
  assert guess_separator(cells) == separator


def test_usual_names_are_guessed_in_any_case():
  names = ['ID', 'Title', 'author', 'Body', 'Labels', 'tags']
  assert choose_columns(Columns(()), names, [], 'x') == Columns(
    text=('Title', 'Body'), labels='Labels', id='ID'
  )


def test_labels_are_not_needed_for_documents_to_be_tagged():
  wanted = Columns(('title',), 'tags', ';', 'key')
  columns = choose_columns(wanted, ['title', 'x'], [], 'x', need_labels=False)
  assert columns == Columns(('title',), '', ';')


def read(columns: Columns, row, need_labels=True):
  fields = Fields(row)
  document = read_row(columns, fields, 'line-1', need_labels)
  return document, fields.faults


def test_an_empty_cell_has_no_labels_or_unknown_ones():
  columns = Columns(('t',), 'tags', ';')
  assert read(columns, {'t': 'x', 'tags': ''})[0].labels == ()
  assert read(columns, {'t': 'x', 'tags': ''}, False)[0].labels is None


def test_labels_are_stripped_and_counted_once():
  row = {'t': 'x', 'tags': 'a; b ;;a'}
  assert read(Columns(('t',), 'tags', ';'), row)[0].labels == ('a', 'b')


def test_numbers_and_missing_cells_are_read():
  columns = Columns(('t', 'year'), 'tags', id='key')
  row = {'t': 'x', 'year': 1999, 'tags': 7, 'key': 3}
  document, faults = read(columns, row)
  assert (document.id, document.labels, faults) == ('3', ('7',), [])
  assert document.zones == {'t': 'x', 'year': '1999'}
  row = {'t': None, 'year': float('nan'), 'tags': None, 'key': 'k'}
  assert read(columns, row)[1] == ['the document has no text']


def test_a_cell_that_is_no_list_is_a_fault():
  columns = Columns(('t',), 'tags', 'list')
  assert read(columns, {'t': 'x', 'tags': '[1'})[1] == [
    "tags is '[1', not a list in brackets"
  ]
  document, _ = read(columns, {'t': 'x', 'tags': "['a', 'b\\'c']"})
  assert document.labels == ('a', "b'c")


def test_nothing_in_a_cell_is_run():
  cell = "[__import__('os').getcwd()]"
  assert guess_separator([cell]) == 'none'
