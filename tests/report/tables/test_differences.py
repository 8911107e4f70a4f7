"""A comparison as text and as files."""

import dataclasses
import json
import re

import pytest

from xjax.judge.comparison_request import ComparisonRequest
from xjax.report.run_comparison import compare_runs
from xjax.report.tables.differences import (
  comparison_json,
  comparison_text,
  difference_table,
  gain_table,
  save_comparison,
)

PLAN = ComparisonRequest(metrics=('RP@5', 'P@1'), iterations=20, replicates=20)


@pytest.fixture
def compared(workdir):
  paths = [workdir('base', 0, units=8), workdir('a', 1), workdir('b', 2)]
  return compare_runs(paths, PLAN)


def test_the_text_has_what_was_found(compared):
  text = comparison_text(compared)
  assert text.startswith('baseline base, dev: 12 documents, 8 labels\n')
  for row in compared.comparison.differences:
    cells = ('all', row.metric, 'a + b', f'{row.baseline:.4f}')
    cells += (f'{row.value:.4f}', f'{row.difference:+.4f}')
    assert re.search(' +'.join(map(re.escape, cells)), text), cells
  assert '\nprotocol: xjax\n' in text
  assert 'Relative improvement in macro-F1' in text
  assert 'Runs that differ in their seeds' in text
  assert 'tests use ' in text and '20 iterations; the seed is 0' in text
  assert 'Holm' not in text  # there is but one system beside the baseline


def test_a_search_that_is_not_exact_is_told(compared):
  said = 'base: beam search of width 4; labels with high scores may be missing'
  assert said not in comparison_text(compared)
  base = compared.tested['base']
  step = 'level 0 recall@4'
  recalls = {'all': {step: 0.25}, 'few': {step: 0.5}}
  how = {'selected_by': 'beam=4', 'recalls': recalls}
  beam = dataclasses.replace(base.predictions, **how)
  tested = {'base': dataclasses.replace(base, predictions=beam)}
  found = dataclasses.replace(compared, tested={**compared.tested, **tested})
  assert said in comparison_text(found)
  line = 'base: level 0 recall@4: all 0.250, few 0.500'
  assert line in comparison_text(found)
  system = comparison_json(found)['systems']['base']
  assert (system['selected_by'], system['recalls']) == ('beam=4', recalls)


def test_several_systems_have_corrected_p_values(workdir):
  paths = [workdir(n, 0, units=u) for n, u in (('x', 4), ('y', 8), ('z', 16))]
  found = compare_runs(paths, PLAN)
  assert "after Holm's correction over the systems" in comparison_text(found)
  for table in (
    difference_table(found.comparison.differences, 'x'),
    gain_table(found.comparison.gains, 'x'),
  ):
    assert 'Holm p' in table.columns
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_missing_values_are_explained(predictions_of, tmp_path):
  paths = [tmp_path / f'{name}.npz' for name in ('one', 'two')]
  for seed, path in enumerate(paths):
    whole = predictions_of(seed)
    lists = {'all': whole.lists['all'].first(2)}
    dataclasses.replace(whole, lists=lists).save(path)
  text = comparison_text(compare_runs(paths, PLAN))
  assert re.search(r'all +RP@5 +two +- +- +- +- +-$', text, re.M)
  why = r'all, RP@5: two: \d+ of 12 documents need a list deeper than the 2'
  assert re.search(f'^- {why}', text, re.M)


def test_files(compared, tmp_path):
  folder = tmp_path / 'new' / 'out'
  save_comparison(compared, folder)
  found = json.loads((folder / 'comparison.json').read_text())
  assert found['baseline'] == 'base' and found['n_docs'] == 12
  assert len(found['systems']['a + b']['runs']) == 2
  rows = map(dataclasses.asdict, compared.comparison.differences)
  assert found['differences'] == list(rows)
  assert found['gains'] and found['seeds'] and found['plan']['seed'] == 0
