"""Columns and labels in cells are guessed only where they are plain."""

import dataclasses

import pytest

from tests.fixtures.error_text import error_text
from xjax.data.files.fields import Fields
from xjax.data.formats.columns import (
  Columns,
  are_whole,
  choose_columns,
  label_cells,
  read_row,
  with_separator,
)


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


YES_NO = [('no', 'Yes'), ('0.0', '1.0')]
TOXIC = ['id', 'comment_text', 'toxic', 'a, b', 'question']


@pytest.mark.parametrize('one', ['1', True, 1.0, 'TRUE', '1.0'])
def test_a_column_of_zeros_and_ones_is_a_label(one):
  """As in Kaggle's toxic comments; an empty cell is 0."""
  rows = [dict(zip(TOXIC, ['x', 'y', one, '0', one])), dict.fromkeys(TOXIC, '')]
  columns = choose_columns(Columns(()), TOXIC, rows, 'x')
  assert columns.text == ('comment_text',)
  assert columns.labels == 'toxic,"a, b",question'
  assert read(columns, rows[0])[0].labels == ('toxic', 'question')
  wanted = Columns((), columns.labels)
  again = choose_columns(wanted, TOXIC, [], 'x', need_labels=False)
  assert again.flags == columns.flags
  # New documents may have no labels, or no columns of labels.
  row = {'comment_text': 'y'}
  assert read(again, row, need_labels=False)[0].labels is None
  names = list(row)
  bare = choose_columns(wanted, names, [row], 'x', need_labels=False)
  assert (bare.labels, bare.flags) == ('', ())
  assert read(columns, {**rows[0], 'toxic': -1})[1] == [
    'toxic is -1, not 0 or 1; such columns are guessed, if not given as '
    '--config.data.labels'
  ]


@pytest.mark.parametrize('name', ['topic', 'Class', 'category', 'id', 'doc_id'])
@pytest.mark.parametrize(('no', 'yes'), [('0', '1'), (False, True), *YES_NO])
def test_a_label_may_be_named_as_a_usual_column(name, no, yes):
  names = ['text', 'war', name, 'tax']
  rows = [dict(zip(names, ['x', no, yes, x])) for x in (no, yes, no)]
  columns = choose_columns(Columns(()), names, rows, 'x')
  assert columns.flags == ('war', name, 'tax') and not columns.id
  assert read(columns, rows[1])[0].labels == (name, 'tax')


@pytest.mark.parametrize(
  ('names', 'cells'),
  [
    (['text', 'topic'], ['0', '1', '0']),  # two classes
    (['text', 'topic', 'is_reply'], ['0', '1', '0']),
    (['text', 'topic', 'is_reply', 'verified'], ['0', '1', 'law']),
    (['text', 'label', 'is_reply', 'verified', 'user'], ['0', '1', '0']),
  ],
)
def test_zeros_and_ones_may_be_two_classes(names, cells):
  rows = [dict.fromkeys(names, '1') | {'text': 'x', 'user': 'y'} for _ in cells]
  rows = [{**row, names[1]: cell} for row, cell in zip(rows, cells)]
  columns = choose_columns(Columns(()), names, rows, 'x')
  assert (columns.labels, columns.flags) == (names[1], ())


def test_a_column_label_of_zeros_and_ones_among_others_is_not_clear():
  names = ['text', 'label', 'is_reply', 'verified']
  rows = [dict(zip(names, 'x010'))]
  message = error_text(choose_columns, Columns(()), names, rows, 'x')
  assert 'Columns with only 0 and 1 are label,is_reply,verified' in message


def test_zeros_and_ones_beside_other_columns_may_be_no_labels():
  names = ['text', 'mood', 'is_reply', 'verified']
  rows = [dict(zip(names, ['x', 'sad', '0', '1']))]
  message = error_text(choose_columns, Columns(()), names, rows, 'x')
  assert 'Columns with only 0 and 1 are is_reply,verified' in message
  wanted = Columns((), 'verified,is_reply')
  columns = choose_columns(wanted, names, rows, 'x')
  assert read(columns, {**rows[0], 'text': 'x'})[0].labels == ('verified',)
  message = error_text(
    choose_columns, Columns((), 'verified,a'), names, rows, 'x'
  )
  assert "no column 'a' (data.labels)" in message


def labels_in(cells, separator=''):
  rows = [{'text': 'x', 'tags': cell} for cell in cells]
  wanted = Columns((), separator=separator)
  columns = choose_columns(wanted, ['text', 'tags'], rows, 'x')
  if columns.is_open:
    found = label_cells(columns, rows, enumerate(rows))
    columns = with_separator(columns, {'x': found})
  columns = dataclasses.replace(columns, whole=are_whole(columns, cells))
  return [read(columns, row)[0].labels for row in rows]


@pytest.mark.parametrize(
  ('cells', 'wanted'),
  [
    (['1.0', '', 'nan', '2.0'], [('1',), (), (), ('2',)]),
    (['1.0;-7.0', '<NA>', '1.0;-7.0'], [('1', '-7'), (), ('1', '-7')]),
    ([3.0, float('nan'), None], [('3',), (), ()]),
    ([[1.0, None], [2.0, float('nan')]], [('1',), ('2',)]),
    (['[1.0, nan]', '[]'], [('1',), ()]),
    (['2.0', '2.1', '3.0'], [('2.0',), ('2.1',), ('3.0',)]),  # versions
  ],
)
def test_integers_of_a_column_with_missing_cells(cells, wanted):
  assert labels_in(cells, separator=';' * (';' in str(cells[0]))) == wanted


def test_labels_that_numpy_left_out_are_a_fault():
  cell = "['a' 'b' ...\n 'z']"
  assert (
    'stands for labels that are lost'
    in read(Columns(('t',), 'tags', 'list'), {'t': 'x', 'tags': cell})[1][0]
  )


@pytest.mark.parametrize('separator', [', ', '、'])
def test_a_separator_that_is_not_clear_is_one_error(separator):
  names = [f'{chr(97 + i % 26)}x{chr(97 + i // 26)}' for i in range(600)]
  cells = [separator.join(names[i : i + 3]) for i in range(0, 600, 3)]
  message = error_text(labels_in, cells)
  assert 'column tags: 200 cells have 200 different' in message
  assert f'such as {cells[0]!a}' in message
  assert '--config.data.label_separator=' in message
  assert labels_in(cells, separator='none')[0] == (cells[0],)
  assert len(labels_in(cells, separator=separator)[0]) > 2


def test_cells_that_are_kept_whole_are_said(logged):
  labels_in(['R&D; ops', 'sales', 'R&D; ops'])
  assert "3 cells have 2 different texts, such as 'R&D; ops'" in logged.text
  cells = [f'own label {chr(97 + i)}' for i in range(26)]
  assert labels_in(cells) == [(cell,) for cell in cells]
  assert "26 different texts, such as 'own label a'" in logged.text
