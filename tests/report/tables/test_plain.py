"""The table by slice."""

from xjax.report.tables.align import align
from xjax.report.tables.plain import plain_slice_table


def values(n_docs, n_labels, **metrics):
  names = {'P1': 'P@1', 'P5': 'P@5', 'RP5': 'RP@5', 'nDCG5': 'nDCG@5'}
  row = {'n_docs': n_docs, 'n_skipped': 0, 'n_labels': n_labels}
  return row | {
    names.get(k, k.replace('_', '-')): v for k, v in metrics.items()
  }


MODEL = {
  'xjax': {
    'all': values(
      5999, 4271, P1=0.9, P5=0.7, RP5=0.75, nDCG5=0.8, micro_F1=0.7
    ),
    'zero': values(
      53, 163, P1=0.01, P5=0.01, RP5=0.0104, nDCG5=0.3, micro_F1=None
    ),
  },
  'notes': {'zero': {'micro-F1': '3 of 60 documents are short'}},
}
PRIOR = {
  'xjax': {
    'all': values(5999, 4271, P1=0.4, P5=0.3, RP5=0.3, nDCG5=0.3, micro_F1=0.0),
    'zero': values(
      53, 163, P1=0.02, P5=0.02, RP5=0.0199, nDCG5=0.1, micro_F1=0.0
    ),
  }
}


def test_rows_of_model_and_prior():
  lines = plain_slice_table(MODEL, PRIOR).splitlines()
  assert lines[0].split() == (
    'slice labels documents ranked by P@1 P@5 RP@5 nDCG@5 micro-F1'.split()
  )
  assert lines[1].split() == (
    'all 4,271 5,999 model 0.900 0.700 0.750 0.800 0.700'.split()
  )
  assert lines[2].split() == (
    'popularity prior 0.400 0.300 0.300 0.300 0.000'.split()
  )
  assert lines[3].split() == (
    'zero 163 53 model 0.010 0.010 0.010 0.300 -'.split()
  )
  assert len({len(line) for line in lines[:5]}) == 1


def test_below_the_prior_is_called_out():
  lines = plain_slice_table(MODEL, PRIOR).splitlines()[5:]
  assert lines == [
    '! zero: the model is BELOW the popularity prior: RP@5 0.0104 < 0.0199',
    '- zero, model, micro-F1: 3 of 60 documents are short',
  ]


def test_documents_without_gold_are_told():
  few = values(5988, 7, P1=0.5) | {'n_skipped': 1012}
  lines = plain_slice_table(
    {'xjax': {'all': values(7000, 9, P1=0.5), 'few': few}}
  )
  first, second = lines.splitlines()[1:3]
  assert first.split() == ['all', '9', '7,000', 'model', '0.500']
  assert '  5,988 (1,012 without gold)  model' in second


def test_lists_that_are_cut_are_told():
  notes = {'zero': {'lists': 'cut, 3 of 60 short', 'micro-F1': 'why'}}
  lines = plain_slice_table(MODEL | {'notes': notes}, PRIOR).splitlines()
  assert lines[-2:] == [
    '- zero, model, lists: cut, 3 of 60 short',
    '- zero, model, micro-F1: why',
  ]


def test_what_is_said_of_several_slices_is_said_once():
  notes = dict.fromkeys(('all', 'zero'), {'micro-F1': 'why'})
  lines = plain_slice_table(MODEL | {'notes': notes}, PRIOR).splitlines()
  assert lines[-1] == '- all, zero, model, micro-F1: why'


def test_a_prior_that_says_nothing_has_no_row():
  bare = {name: None for name in PRIOR['xjax']['zero'] if '@' in name}
  zero = PRIOR['xjax']['zero'] | bare
  prior = {
    'xjax': PRIOR['xjax'] | {'zero': zero},
    'notes': {'zero': dict.fromkeys(bare, 'too short')},
  }
  table = plain_slice_table(MODEL, prior)
  assert table.count('popularity prior') == 1
  assert 'too short' not in table


def test_a_table_has_no_other_lines_if_nothing_is_to_be_said():
  assert len(plain_slice_table(PRIOR, PRIOR).splitlines()) == 5
  lines = plain_slice_table(MODEL).splitlines()  # without a prior
  assert len(lines) == 1 + 2 + 1


def test_other_cut_offs_and_metrics_without_cut_offs():
  for values in ({'P@2': 0.5, 'RP@2': 1.0}, {'R-Precision': 0.5}):
    row = {'n_docs': 1, 'n_skipped': 0, 'n_labels': 2, **values}
    header, line = plain_slice_table({'xjax': {'all': row}}).splitlines()
    assert header.split()[5:] == [*values]
    assert line.split()[4:] == [f'{value:.3f}' for value in values.values()]


def test_an_empty_slice_is_one_reason():
  empty = values(0, 5, P1=None, P5=None, RP5=None, nDCG5=None, micro_F1=None)
  reasons = dict.fromkeys(list(empty)[3:], 'nothing here')
  table = plain_slice_table(
    {'xjax': {'all': empty}, 'notes': {'all': reasons}}, PRIOR
  )
  assert table.splitlines()[-1] == '- all, model, all: nothing here'


def test_align():
  assert align([('a', 'b', 'c'), ('dd', '10', '7')], 1) == [
    'a    b  c',
    'dd  10  7',
  ]
