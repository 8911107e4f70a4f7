"""Conventions side by side, as text."""

from tests.report.conftest import texts
from xjax.report.page.page import Cell, Table
from xjax.report.tables.protocols import (
  WIDTH,
  metrics_table,
  plain_table,
  protocol_table,
  why_missing,
  why_they_differ,
)

SKIPPED = '3 documents have no gold label: skipped by xjax, counted as 0 by {}'
METRICS = {
  'xjax': {
    'all': {'n_docs': 1007, 'P@1': 0.5, 'P@5': None, 'RP@1': 0.625, 'ECE': 0.1},
    'few': {'n_docs': 0, 'P@1': None},
  },
  'pecos': {
    'all': {'n_docs': 1010, 'P@1': 0.25, 'P@5': None},
    'few': {'n_docs': 3, 'P@1': None},
  },
  'napkinxc': {
    'all': {'n_docs': 1010, 'P@1': 0.25, 'P@5': None, 'PSR@1': 1.0},
    'few': {'n_docs': 3, 'P@1': None},
  },
  'notes': {
    'all': {'P@5': 'lists of 4', 'lists': 'cut from others'},
    'few': {'P@1': 'no gold'},
  },
  'intervals': {'xjax': {'all': {'P@1': [0.4, 0.6]}}},
  'reasons': {
    'pecos': {'all': {'P@1': SKIPPED.format('pecos')}},
    'napkinxc': {
      'all': {
        'PSR@1': SKIPPED.format('napkinxc') + '; divided by weights in xjax',
        'P@1': SKIPPED.format('napkinxc'),
      }
    },
  },
}


def test_a_column_per_protocol():
  table = protocol_table(METRICS, 'all')
  assert table.columns == ('metric', 'xjax', 'pecos', 'napkinxc')
  assert texts(table) == [
    ['n_docs', '1,007', '1,010', '1,010'],
    ['P@1', '0.5000', '0.2500', '0.2500'],
    ['P@5', '-', '-', '-'],
    ['RP@1', '0.6250', '', ''],
    ['ECE', '0.1000', '', ''],
    ['PSR@1', '', '', '1.0000'],
  ]
  assert table.rows[1][1].below == '[0.4000, 0.6000]'
  assert not table.rows[1][2].below
  # In full, for whoever wants more places.
  assert table.rows[3][1].value == 0.625


def test_of_a_slice_without_values_the_counts():
  assert texts(protocol_table(METRICS, 'few')) == [['n_docs', '0', '3', '3']]
  assert why_missing(METRICS, 'few') == ['- all metrics: no gold.']


def test_a_column_per_slice():
  table = metrics_table(METRICS, 'xjax')
  assert table.columns == ('metric', 'all', 'few')
  assert texts(table)[:3] == [
    ['n_docs', '1,007', '0'],
    ['P@1', '0.5000', '-'],
    ['P@5', '-', ''],
  ]


def test_lines_of_text():
  lines = plain_table(protocol_table(METRICS, 'all')).splitlines()
  assert lines[0].split() == ['metric', 'xjax', 'pecos', 'napkinxc']
  assert lines[2].split() == 'P@1 0.5000 [0.4000, 0.6000] 0.2500 0.2500'.split()
  # Numbers are to the right.
  ends = [line.index('0.2500') + 6 for line in lines if '0.2500' in line]
  assert set(ends) == {lines[1].index('1,010') + 5}


def test_columns_that_do_not_fit_stand_below():
  rows = [[Cell('metric name'), *(Cell('0.1234') for _ in range(5))]] * 2
  table = Table(('metric', *(f'c{i}' for i in range(5))), rows)
  assert plain_table(table).count('\n') == 2
  # The text and two columns: 11 + 2 * (2 + 6).
  blocks = plain_table(table, 27).split('\n\n')
  assert [block.split()[:3] for block in blocks] == [
    ['metric', 'c0', 'c1'],
    ['metric', 'c2', 'c3'],
    ['metric', 'c4', 'metric'],
  ]
  assert max(len(line) for line in plain_table(table, 27).splitlines()) == 27
  assert len(plain_table(table, 26).split('\n\n')) == 5
  # A column wider than all there is stands alone.
  assert len(plain_table(table, 3).split('\n\n')) == 5


def test_a_reason_is_told_once():
  assert why_they_differ(METRICS, 'all') == [
    '- P PSR @1: 3 documents have no gold label: skipped by xjax, counted as 0 '
    'by pecos, napkinxc.',
    '- napkinxc, PSR @1: divided by weights in xjax.',
  ]
  assert why_they_differ(METRICS, 'few') == []
  assert why_they_differ({'xjax': {'all': {}}}, 'all') == []


def test_metrics_of_one_kind_stand_together():
  names = 'P@1 R@1 R@5 P@5 R-Precision macro-F1 macro-F1@5 macro-F1@5[1-9]'
  names += ' coverage[a=0.5]@1'
  values = dict.fromkeys(names.split(), 1.0)
  notes = {'all': dict.fromkeys(values, 'short')}
  (line,) = why_missing({'xjax': {'all': values}, 'notes': notes}, 'all')
  assert line == (
    '- P R @1,5, R-Precision macro-F1, macro-F1 macro-F1[1-9] @5, '
    'coverage[a=0.5] @1: short.'
  )


def test_why_values_are_missing():
  assert why_missing(METRICS, 'all') == [
    '- P @5: lists of 4.',
    '- lists: cut from others.',
  ]
  assert why_missing({'xjax': {'all': {}}}, 'all') == []


def test_several_reasons_why_no_metric_has_a_value():
  values = {'n_docs': 3, 'P@1': None, 'ILD@2': None}
  notes = {'P@1': '1 of 3', 'ILD@2': '2 of 3', 'lists': 'cut'}
  metrics = {'xjax': {'all': values}, 'notes': {'all': notes}}
  assert why_missing(metrics, 'all') == [
    '- P @1: 1 of 3.',
    '- ILD @2: 2 of 3.',
    '- lists: cut.',
  ]


def test_points_are_no_wider_than_tables():
  long = METRICS | {'notes': {'all': {'P@5': 'far too short ' * 30}}}
  (point,) = why_missing(long, 'all')
  assert max(map(len, point.splitlines())) <= WIDTH
  assert point.count('\n  ') == point.count('\n') > 2
