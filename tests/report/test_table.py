"""Cells, and a table as text, Markdown and LaTeX."""

import pytest

from xjax.report.table import (
  Cell,
  Table,
  cell_of,
  escape_latex,
  latex_table,
  markdown_table,
  number_cell,
  plain_text,
)

TABLE = Table.of(
  ('metric\nat k', 'A & B', 'c_1'),
  [
    ['P@1', number_cell(1 / 3, best=True), None],
    [Cell('<b>', colour='#0072b2'), 1234, number_cell(0.5, spread=0.1)],
  ],
  marked=frozenset({0}),
  starts=frozenset({1}),
)


def test_numbers_words_and_counts():
  numbers = {None: '-', 1234567: '1,234,567', 2 / 3: '0.6667', 0.0: '0.0000'}
  for value, text in numbers.items():
    assert number_cell(value) == Cell(text, value)
  assert cell_of(12345) == Cell('12,345', 12345)
  assert cell_of('a') == Cell('a') and cell_of(Cell('b')) == Cell('b')


def test_text():
  assert plain_text(TABLE).splitlines() == [
    'metric at k   A & B              c_1',
    'P@1          0.3333                -',
    '<b>           1,234  0.5000 ± 0.1000',
  ]


def test_columns_that_do_not_fit_stand_below():
  rows = [['metric name', *['0.1234'] * 5]] * 2
  table = Table.of(('metric', *(f'c{i}' for i in range(5))), rows)
  # The text and two columns: 11 + 2 * (2 + 6).
  blocks = plain_text(table, 27).split('\n\n')
  assert [block.split()[:3] for block in blocks] == [
    ['metric', 'c0', 'c1'],
    ['metric', 'c2', 'c3'],
    ['metric', 'c4', 'metric'],
  ]
  assert len(plain_text(table, 26).split('\n\n')) == 5


def test_markdown():
  assert markdown_table(TABLE).splitlines() == [
    '| metric at k | A & B | c\\_1 |',
    '| :-- | --: | --: |',
    '| P@1 | **0.3333** | - |',
    '| \\<b\\> | 1,234 | 0.5000 ± 0.1000 |',
  ]


def test_latex():
  assert latex_table(TABLE) == (
    '\\begin{tabular}{lrr}\n'
    '\\toprule\n'
    'metric at k & A \\& B & c\\_1 \\\\\n'
    '\\midrule\n'
    'P@1 & \\textbf{33.3} & - \\\\\n'
    '\\midrule\n'
    '\\textless{}b\\textgreater{} & 1,234 & 50.0 $\\pm$ 10.0 \\\\\n'
    '\\bottomrule\n'
    '\\end{tabular}\n'
  )
  assert ' & 1,234 & 50.00 $\\pm$ 10.00 ' in latex_table(TABLE, 2)


@pytest.mark.parametrize(
  ('text', 'escaped'),
  [
    ('50%', '50\\%'),
    ('a\\b{c}', 'a\\textbackslash{}b\\{c\\}'),
    ('~^$#', '\\textasciitilde{}\\textasciicircum{}\\$\\#'),
    ('[1-9]', '{[}1-9]'),
  ],
)
def test_latex_commands_are_words(text, escaped):
  assert escape_latex(text) == escaped
