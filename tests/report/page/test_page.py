"""Cells, and a page as HTML, Markdown and LaTeX."""

import re

import pytest

from tests.report.conftest import Reader
from xjax.report.page.html import render_html
from xjax.report.page.latex import escape_latex, render_latex
from xjax.report.page.markdown import markdown_table, render_markdown
from xjax.report.page.page import (
  Cell,
  Fold,
  Listing,
  Page,
  Picture,
  Section,
  Table,
  Text,
  number_cell,
  text_cell,
)

TABLE = Table(
  ('metric\nat k', 'A & B', 'c_1'),
  [
    [Cell('P@1'), number_cell(1 / 3, best=True), number_cell(None)],
    [
      Cell('<b>', colour='#0072b2'),
      number_cell(1234),
      number_cell(0.5, spread=0.1),
    ],
  ],
  marked=frozenset({0}),
  starts=frozenset({1}),
  caption='of | all',
)
PAGE = Page(
  'A <page>',
  [
    Section('One & only', [Text('words < more'), TABLE, Listing(['a*b', 'c'])]),
    Section(
      'Two',
      [
        Text('run --x="1"', command=True),
        Picture(['<svg>&</svg>', '<svg/>'], 'a "picture"', 'how'),
        Fold('more', [Fold('inner', [Text('deep')], open=True)]),
      ],
    ),
  ],
)


def test_numbers_words_and_counts():
  numbers = {None: '-', 1234567: '1,234,567', 2 / 3: '0.6667', 0.0: '0.0000'}
  for value, text in numbers.items():
    assert number_cell(value) == Cell(text, value)
  assert text_cell(12345) == Cell('12,345', 12345)
  assert text_cell('a') == Cell('a')


@pytest.fixture(scope='module')
def page():
  return Reader(render_html(PAGE))


def test_html_is_whole_and_escaped(page):
  text = page.found[0]['text']
  for words in ('A <page>', 'One & only', 'words < more', '<b>', 'A & B'):
    assert words in text
  assert 'run --x="1"' in text


def test_html_asks_for_nothing_else(page):
  assert not {'script', 'iframe', 'object'} & {x['tag'] for x in page.found}
  assert page.needs_nothing_else()
  assert 'url(' not in render_html(PAGE) and '@import' not in render_html(PAGE)


def test_html_has_whole_numbers_pictures_and_rows_that_stand_out(page):
  cells = [a for a in page.of('td') if a.get('title')]
  assert [float(a['data-value']) for a in cells] == [1 / 3, 1234, 0.5]
  image, second = page.of('img')
  assert image['alt'] == 'a "picture"' and second['alt'] == ''
  assert image['src'] == 'data:image/svg+xml;base64,PHN2Zz4mPC9zdmc+'
  assert [a.get('class') for a in page.of('tr')] == [None, 'marked', 'start']
  outer, inner = page.of('details')
  assert 'open' not in outer and 'open' in inner


def test_links_lead_somewhere(page):
  ids = {a['id'] for a in page.of('section')}
  assert {a['href'][1:] for a in page.of('a')} == ids


def test_markdown_table():
  assert markdown_table(TABLE).splitlines() == [
    '| metric at k | A & B | c\\_1 |',
    '| :-- | --: | --: |',
    '| P@1 | **0.3333** | - |',
    '| \\<b\\> | 1,234 | 0.5000 ± 0.1000 |',
  ]


def test_markdown():
  text = render_markdown(PAGE)
  for line in (
    '# A \\<page\\>',
    '## One & only',
    'of \\| all',
    '- a\\*b',
    '    run --x="1"',
    '### more',
    '#### inner',
  ):
    assert f'\n{line}\n' in f'\n{text}', line
  assert 'a "picture"' in text and '<svg>' not in text


def test_latex():
  assert render_latex(TABLE) == (
    '\\begin{tabular}{lrr}\n'
    '\\toprule\n'
    'metric at k & A \\& B & c\\_1 \\\\\n'
    '\\midrule\n'
    'P@1 & \\textbf{0.3333} & - \\\\\n'
    '\\midrule\n'
    '\\textless{}b\\textgreater{} & 1,234 & 0.5000 ± 0.1000 \\\\\n'
    '\\bottomrule\n'
    '\\end{tabular}\n'
  )


def test_latex_of_fractions_times_100():
  rows = render_latex(TABLE, percent=True).splitlines()
  assert rows[4] == 'P@1 & \\textbf{33.3} & - \\\\'
  assert rows[6].endswith('& 1,234 & 50.0 $\\pm$ 10.0 \\\\')
  rows = render_latex(TABLE, percent=True, decimals=2).splitlines()
  assert rows[4] == 'P@1 & \\textbf{33.33} & - \\\\'
  assert rows[6].endswith('& 1,234 & 50.00 $\\pm$ 10.00 \\\\')


def test_narrow_blocks_stand_side_by_side():
  wide = Table(['', 'a' * 99], [])
  page = Page('', [Section('', [Listing(['a']), TABLE, wide, TABLE])])
  names = [a.get('class') for a in Reader(render_html(page)).of('div')]
  blocks = [name for name in names if name not in ('blocks', 'wide')]
  assert blocks == [None, 'half', None, 'half']


def test_every_colour_has_a_dark_twin():
  style = render_html(PAGE).partition('</style>')[0]
  light, dark = style.split('prefers-color-scheme: dark')[:2]
  names = set(re.findall(r'(--\w+):', light))
  assert names == set(re.findall(r'(--\w+):', dark)) and len(names) > 5
  assert set(re.findall(r'var\((--\w+)\)', style)) == names


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
