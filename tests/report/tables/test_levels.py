"""Tables by level of the hierarchy: of several systems, and on the screen."""

from tests.report.conftest import texts
from xjax.report.runs import Estimate
from xjax.report.tables.levels import (
  level_table,
  levels_of,
  path_table,
  plain_levels,
)

ONE = {
  'n_labels': 30,
  'micro-F1': 0.5,
  'hP': 0.75,
  'hR': 0.5,
  'hF1': 0.6,
  'consistency': None,
  'micro-P[level=1]': 1.0,
  'micro-P[level=10]': None,
  'micro-R[level=1]': 0.25,
  'micro-R[level=10]': 0.0,
  'micro-F1[level=1]': 0.4,
  'micro-F1[level=10]': 0.0,
  'n_labels[level=1]': 3,
  'n_gold[level=1]': 1200,
  'n_labels[level=10]': 27,
  'n_gold[level=10]': 4,
}


def estimates(values, error=None):
  n = 1 if error is None else 3
  return {name: Estimate(value, error, n) for name, value in values.items()}


def test_levels_ascend():
  assert levels_of(ONE) == [1, 10]
  assert levels_of(['P@1', 'micro-F1']) == []


def test_on_the_screen():
  text = plain_levels({'xjax': {'all': ONE}})
  lines = text.splitlines()
  assert lines[1].split() == [
    *('level', 'labels', 'gold', 'micro-P', 'micro-R', 'micro-F1')
  ]
  assert lines[2].split() == ['1', '3', '1,200', '1.000', '0.250', '0.400']
  assert lines[3].split() == ['10', '27', '4', '-', '0.000', '0.000']
  assert lines[4] == (
    'with ancestors: hP 0.750, hR 0.500, hF1 0.600, consistency -'
  )
  assert plain_levels({'xjax': {'all': {'P@1': 1.0}}}) == ''
  tuned = {**ONE, 'micro-F1[level=1]-tuned': 0.5}
  tuned['micro-F1[level=10]-tuned'] = 0.125
  lines = plain_levels({'xjax': {'all': tuned}}).splitlines()
  assert lines[1].endswith('  micro-F1-tuned') and lines[3].endswith('0.125')


def test_systems_side_by_side():
  two = {name: ONE[name] for name in ONE if name != 'hR'}
  values_of = {'a': estimates(ONE), 'b': estimates(two, 0.01)}
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
