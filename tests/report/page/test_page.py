"""A page as HTML and Markdown."""

import re

import pytest

from tests.report.conftest import Reader
from tests.report.test_table import TABLE
from xjax.report.page.page import (
  Collapsible,
  Page,
  Paragraph,
  Picture,
  Section,
  render_html,
  render_markdown,
)

PAGE = Page(
  'A <page>',
  [
    Section('One & only', [Paragraph('words < more'), TABLE, Paragraph('a*b')]),
    Section(
      'Two',
      [
        Paragraph('run --x="1"', command=True),
        Picture(['<svg>&</svg>', '<svg/>'], 'a "picture"', 'how'),
        Collapsible(
          'more', [Collapsible('inner', [Paragraph('deep')], open=True)]
        ),
      ],
    ),
  ],
)


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


def test_markdown():
  text = render_markdown(PAGE)
  lines = '# A \\<page\\>', '## One & only', 'a\\*b', '    run --x="1"'
  for line in (*lines, '### more', '#### inner'):
    assert f'\n{line}\n' in f'\n{text}', line
  assert 'a "picture"' in text and '<svg>' not in text


def test_every_colour_has_a_dark_twin():
  style = render_html(PAGE).partition('</style>')[0]
  light, dark = style.split('prefers-color-scheme: dark')[:2]
  names = set(re.findall(r'(--\w+):', light))
  assert names == set(re.findall(r'(--\w+):', dark)) and len(names) > 5
  assert set(re.findall(r'var\((--\w+)\)', style)) == names
