"""Metrics of several systems side by side."""

import pathlib
from types import MappingProxyType

import pytest

from tests.report.conftest import texts
from xjax.core.errors import ConfigError
from xjax.report.runs import Estimate, JudgedRun, SystemRuns, group_metrics
from xjax.report.tables.metrics import (
  empty_slices,
  full_tables,
  level_table,
  main_columns,
  main_table,
  note_lines,
  path_table,
  plain_levels,
  slice_table,
)

COUNTS = {'n_docs': 9, 'n_skipped': 1, 'n_labels': 1200}
ONE = {
  'xjax': {
    'all': {**COUNTS, 'P@1': 0.5, 'P@5': 0.25, 'RP@5': 1 / 3, 'micro-F1': None},
    'few': {**COUNTS, 'n_labels': 3, 'P@1': 0.125},
  },
  'pyxclib': {'all': {**COUNTS, 'P@1': 0.45}},
  'notes': {
    'all': {'micro-F1': 'margins', 'macro-F1': 'margins', 'P@9': 'too short'}
  },
  'intervals': {'xjax': {'all': {'P@1': [0.4, 0.6]}}},
}
FIGURES = {'P@1': 0.75, 'P@5': 0.25, 'RP@5': 0.2, 'threshold-tuned': 2}
TWO = {'xjax': {'all': COUNTS | FIGURES}}
COLOURS = {'one': 'red', 'two': 'blue'}


def group(name, *tables):
  path = pathlib.Path('/r')
  runs = [
    JudgedRun(name, path, 'dev', {'seed': i}, t, None)
    for i, t in enumerate(tables)
  ]
  return SystemRuns(name, tuple(runs))


COLUMNS = ['P@1', 'P@5', 'RP@5', 'micro-F1']


def main(*groups, columns=COLUMNS, best=MappingProxyType({})):
  return main_table(groups, 'xjax', columns, COLOURS, best)


def test_main_table():
  table = main(group('one', ONE), group('two', TWO))
  assert table.columns == ('slice', 'system', *COLUMNS)
  assert texts(table) == [
    ['all', 'one', '0.500', '0.250', '0.333', '-'],
    ['', 'two', '0.750', '0.250', '0.200', '-'],
    ['few', 'one', '0.125', '-', '-', '-'],
  ]
  below = [row[0].below for row in table.rows]
  assert below == ['1,200 labels', '', '3 labels']
  assert table.starts == {2}
  assert [row[1].colour for row in table.rows] == ['red', 'blue', 'red']


def bold(table):
  return [[cell.text for cell in row if cell.best] for row in table.rows]


def test_only_what_a_test_says_is_bold():
  groups = group('one', ONE), group('two', TWO)
  assert not any(bold(main(*groups)))
  # RP@5 of `two` is the smaller mean, so it is not bold even if its best run
  # has won the test.
  best = {'all': {'P@1': 'two', 'RP@5': 'two'}}
  assert bold(main(*groups, best=best)) == [[], ['0.750'], []]


def test_a_system_judged_without_a_metric_has_a_dash():
  own = {**ONE, 'xjax': {'all': {**ONE['xjax']['all'], 'HR@5': 0.9}}}
  del own['xjax']['all']['RP@5']
  groups = group('one', own), group('two', TWO)
  columns = ['P@1', 'RP@5', 'HR@5']
  best = {'all': {'RP@5': 'one', 'HR@5': 'one'}}
  table = main(*groups, columns=columns, best=best)
  assert [row[2:] for row in texts(table)] == [
    ['0.500', '-', '0.900'],
    ['0.750', '0.200', '-'],
  ]
  assert bold(table) == [['0.900'], []]


def test_slices_without_values_are_left_out():
  none = {**COUNTS, 'P@1': None}
  tables = [{'xjax': {**ONE['xjax'], 'zero': none, 'few': none}}, ONE]
  groups = [group(n, t) for n, t in zip(('one', 'two'), tables)]
  assert empty_slices([group_metrics(g, 'xjax') for g in groups]) == ['zero']
  rows = main(*groups).rows
  assert [row[0].text for row in rows] == ['all', '', 'few', '']
  titles = [fold.title for fold in full_tables(groups)]
  assert 'few, protocol xjax' in titles and 'zero, protocol xjax' not in titles


def test_columns_are_the_usual_or_the_wanted_metrics():
  tables = [group_metrics(group('one', ONE), 'xjax')]
  assert main_columns(tables) == ['P@1', 'P@5', 'RP@5']
  wanted = ['micro-F1', 'P@5']
  assert main_columns(tables, wanted) == wanted
  with pytest.raises(ConfigError, match="no system has 'P@9'.*--ks.*micro-F1"):
    main_columns(tables, ['P@9'])


def test_half_of_an_interval_or_the_error():
  table = main(group('one', ONE))
  assert [c.below for c in table.rows[0][2:4]] == ['± 0.100', '']
  assert not any(cell.below for cell in table.rows[1][1:])
  # With several seeds the cell shows the error instead of the interval.
  table = main(group('one', ONE, TWO))
  assert table.rows[0][1].below == 'mean of 2 seeds'
  assert table.rows[0][2].below == '± 0.125'
  assert table.rows[0][2].spread == 0.125


def test_seeds_have_means_and_errors():
  seeds = group('one', TWO, {'xjax': {'all': {**COUNTS, 'P@1': 0.85}}})
  table = slice_table([seeds], 'xjax', 'all')
  assert table.columns == ('metric', 'one\nmean of 2 seeds')
  cells = {row[0].text: row[1] for row in table.rows}
  assert (cells['P@1'].text, cells['P@1'].below) == ('0.8000', '± 0.0500')
  assert (cells['labels'].text, cells['labels'].below) == ('1,200', '')
  assert cells['RP@5'].text == '-'  # one of the runs has none


def test_every_slice_and_protocol():
  folds = full_tables([group('one', ONE), group('two', TWO)])
  titles = [fold.title.replace('protocol ', '') for fold in folds]
  assert titles == ['all, xjax', 'few, xjax', 'all, pyxclib']
  (theirs,) = folds[2].blocks
  assert texts(theirs)[-1] == ['P@1', '0.4500', '-']


def test_why_values_are_missing():
  lines = note_lines([group('one', ONE), group('two', TWO)])
  assert lines == [
    'one, all, micro-F1, macro-F1: margins',
    'one, all, P@9: too short',
  ]
  many = {'xjax': {}, 'notes': {'all': {f'P@{k}': 'short' for k in range(9)}}}
  (line,) = note_lines([group('one', many)])
  assert line == 'one, all, P@0, P@1, P@2, P@3, P@4, P@5 and 3 more: short'


OF_LEVEL = 'micro-P', 'micro-R', 'micro-F1', 'n_labels', 'n_gold'
LEVELS = {'n_labels': 30, 'micro-F1': 0.5, 'hP': 0.75, 'hR': 0.5, 'hF1': 0.6}
LEVELS['consistency'] = None
for level, figures in {
  1: (1.0, 0.25, 0.4, 3, 1200),
  10: (None, 0.0, 0.0, 27, 4),
}.items():
  LEVELS |= zip([f'{name}[level={level}]' for name in OF_LEVEL], figures)


def estimates(values, error=None):
  n = 1 if error is None else 3
  return {name: Estimate(value, error, n) for name, value in values.items()}


def test_on_the_screen():
  text = plain_levels({'xjax': {'all': LEVELS}})
  lines = [line.split() for line in text.splitlines()]
  assert lines[2] == '1 model 3 1,200 1.000 0.250 0.400'.split()
  assert lines[6] == 'model 0.750 0.500 0.600 -'.split()
  assert plain_levels({'xjax': {'all': {'P@1': 1.0}}}) == ''


def test_systems_side_by_side():
  two = {name: LEVELS[name] for name in LEVELS if name != 'hR'}
  values_of = {'a': estimates(LEVELS), 'b': estimates(two, 0.01)}
  table = level_table(values_of, {'a': '#0072b2'})
  assert table.columns == (
    *('level', 'system', 'labels', 'gold'),
    *('micro-P', 'micro-R', 'micro-F1'),
  )
  assert texts(table) == [
    ['1', 'a', '3', '1,200', '1.000', '0.250', '0.400'],
    ['', 'b', '3', '1,200', '1.000', '0.250', '0.400'],
    ['10', 'a', '27', '4', '-', '0.000', '0.000'],
    ['', 'b', '27', '4', '-', '0.000', '0.000'],
  ]
  assert table.starts == {2}
  assert table.rows[1][5].below == '± 0.010' and not table.rows[0][5].below
  by_path = path_table(values_of, {})
  assert by_path.columns == ('system', 'hP', 'hR', 'hF1', 'consistency')
  assert texts(by_path) == [
    ['a', '0.750', '0.500', '0.600', '-'],
    ['b', '0.750', '-', '0.600', '-'],
  ]
