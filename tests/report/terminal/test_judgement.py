"""Tests the results of judging, on the screen and in a folder."""

import csv
import dataclasses
import json
import re

import numpy as np

from tests.report import conftest
from tests.report.conftest import N_DOCS, N_LABELS, texts
from xjax.core.types import Ragged
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge
from xjax.judge.metrics.protocols import PECOS, PROTOCOLS, XJAX
from xjax.report.terminal.judgement import (
  judgement_text,
  plain_slice_table,
  protocol_table,
  why_they_differ,
  write_judgement,
)

FILES = [
  *('documents.jsonl', 'judged.json'),
  *('metrics.csv', 'metrics.json', 'predictions.npz'),
]


def predictions(**fields):
  """Predictions of which two documents have no gold label."""
  whole = conftest.predictions()
  rows = [whole.gold[row].tolist() for row in range(2, len(whole))]
  gold = Ragged.of([[], [], *rows])
  return dataclasses.replace(whole, **{'gold': gold, **fields})


def judged(*protocols, ks=(1, 2), **more):
  criteria = Criteria(ks, protocols=protocols or (XJAX,), **more)
  return criteria, judge(predictions(), criteria)


def printed(text):
  """Returns {metric: cells} of the last table that begins with `metric`."""
  table = re.split(r'(?m)^metric ', text)[-1]
  rows = table.split('\n\n')[0].splitlines()[1:]
  cells = (re.split(r' {2,}', row) for row in rows if row[0] not in '- ')
  return {name: rest for name, *rest in cells}


def shown(value):
  if value is None:
    return '-'
  return f'{value:,}' if isinstance(value, int) else f'{value:.4f}'


def test_in_full():
  _, metrics = judged(slices={'odd': np.arange(N_LABELS) % 2 == 1})
  found = printed(judgement_text(metrics, full=True))
  slices = metrics['xjax']
  assert set(found) == set(slices['all'])
  for metric, cells in found.items():
    values = [v[metric] for v in slices.values() if metric in v]
    assert cells == [shown(v) for v in values]


def test_intervals_are_shown_in_full_and_explained():
  _, metrics = judged(replicates=30)
  text = judgement_text(metrics)
  low, high = metrics['intervals']['xjax']['all']['P@1']
  value = metrics['xjax']['all']['P@1']
  assert f'{value:.4f} [{low:.4f}, {high:.4f}]' in text
  assert text.endswith('95% intervals by bootstrap over documents.')
  assert 'bootstrap' not in judgement_text(judged()[1])


def test_a_search_that_is_not_exact_is_told():
  criteria = Criteria((1, 2))
  said = 'search: beam search of width 4; labels of high score may be missing'
  for kind, found in (('', False), ('exact', False), ('beam=4', True)):
    metrics = judge(predictions(selected_by=kind), criteria)
    assert (said in judgement_text(metrics)) == found
    assert (said in judgement_text(metrics, full=True)) == found


def test_recalls_are_shown_in_each_form():
  step = 'shortlist recall@4'
  recalls = {'all': {step: 0.25}, 'few': {step: 0.5}}
  found = predictions(recalls=recalls, selected_by='shortlist=4')
  said = 'shortlist recall@4: all 0.250, few 0.500'
  for more in ({}, {'replicates': 20}, {'protocols': (XJAX, PECOS)}):
    text = judgement_text(judge(found, Criteria((1, 2), **more)))
    assert text.count(said) == 1
  assert 'recall@' not in judgement_text(judged()[1])


def test_by_protocol():
  _, metrics = judged(*PROTOCOLS.values())
  text = judgement_text(metrics)
  parts = text.split('slice ')[1:]
  assert [part.split('\n')[0] for part in parts] == list(metrics['xjax'])
  for part in parts:
    name = part.split('\n')[0]
    found = printed(part)
    by_protocol = [metrics[protocol][name] for protocol in PROTOCOLS]
    for metric, cells in found.items():
      values = [values[metric] for values in by_protocol if metric in values]
      assert cells == [shown(value) for value in values]
    if any(values.get('P@1') is not None for values in by_protocol):
      assert found.keys() == {m for values in by_protocol for m in values}
  n_docs = metrics['xjax']['all']['n_docs']
  why = f'the mean is over the {n_docs} documents with gold labels in xjax'
  assert why in ' '.join(text.split())
  assert max(map(len, text.splitlines())) <= 100


def test_the_files(tmp_path):
  criteria, metrics = judged(*PROTOCOLS.values(), replicates=20)
  folder = tmp_path / 'new' / 'folder'
  write_judgement(folder, predictions(), criteria, metrics)
  assert sorted(path.name for path in folder.iterdir()) == FILES
  assert json.loads((folder / 'metrics.json').read_text()) == metrics
  rows = list(csv.DictReader((folder / 'metrics.csv').read_text().splitlines()))
  assert len(rows) == sum(
    len(values) for name in PROTOCOLS for values in metrics[name].values()
  )
  for row in rows:
    value = metrics[row['protocol']][row['slice']][row['metric']]
    assert row['value'] == ('' if value is None else str(value))
    ends = metrics['intervals'][row['protocol']][row['slice']]
    ends = ends.get(row['metric'], ['', ''])
    assert [row['low'], row['high']] == [str(end) for end in ends]
  lines = (folder / 'documents.jsonl').read_text().splitlines()
  ids = [json.loads(line)['id'] for line in lines]
  assert ids == [f'd{i}' for i in range(N_DOCS)]


NAMES = 'n_docs', 'n_labels', 'P@1', 'P@5', 'RP@5', 'nDCG@5', 'micro-F1'


def values(*figures):
  return {'n_skipped': 0, **dict(zip(NAMES, figures, strict=True))}


MODEL = {
  'xjax': {
    'all': values(5999, 4271, 0.9, 0.7, 0.75, 0.8, 0.7),
    'zero': values(53, 163, 0.01, 0.01, 0.0104, 0.3, None),
  },
  'notes': {'zero': {'micro-F1': '3 of 60 documents are short'}},
}
PRIOR = {
  'xjax': {
    'all': values(5999, 4271, 0.4, 0.3, 0.3, 0.3, 0.0),
    'zero': values(53, 163, 0.02, 0.02, 0.0199, 0.1, 0.0),
  }
}


def test_rows_of_model_and_prior():
  lines = plain_slice_table(MODEL, PRIOR).splitlines()
  assert [' '.join(line.split()) for line in lines[:4]] == [
    'slice labels documents ranked by P@1 P@5 RP@5 nDCG@5 micro-F1',
    'all 4,271 5,999 model 0.900 0.700 0.750 0.800 0.700',
    'popularity prior 0.400 0.300 0.300 0.300 0.000',
    'zero 163 53 model 0.010 0.010 0.010 0.300 -',
  ]
  assert len({len(line) for line in lines[:5]}) == 1


def test_dashes_are_explained():
  lines = plain_slice_table(MODEL, PRIOR).splitlines()[5:]
  assert lines == ['- model: zero, micro-F1: 3 of 60 documents are short']


def test_what_is_said_of_several_slices_is_said_once():
  notes = dict.fromkeys(('all', 'zero'), {'micro-F1': 'why', 'lists': 'cut'})
  bare = {name: None for name in PRIOR['xjax']['zero'] if '@' in name}
  # A prior without a value has no row, and nothing is said of it.
  zero = {'zero': PRIOR['xjax']['zero'] | bare}
  prior = {
    'xjax': PRIOR['xjax'] | zero,
    'notes': {'zero': dict.fromkeys(bare, 'too short')},
  }
  lines = plain_slice_table(MODEL | {'notes': notes}, prior).splitlines()
  assert lines[4:] == [
    '- model: all, zero, micro-F1: why',
    '- model: all, zero, lists: cut',
  ]


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


def test_a_reason_is_told_once():
  assert why_they_differ(METRICS, 'all') == [
    '- P PSR @1: 3 documents have no gold label: skipped by xjax, counted as 0 '
    'by pecos, napkinxc.',
    '- napkinxc, PSR @1: divided by weights in xjax.',
  ]
  assert why_they_differ(METRICS, 'few') == []
  assert why_they_differ({'xjax': {'all': {}}}, 'all') == []
