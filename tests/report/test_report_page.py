"""The whole page: numbers from metrics.json, pictures or why there is none."""

import dataclasses
import re

import numpy as np
import pytest

from tests.report.conftest import Reader, changed, make_workdir, predictions
from xjax.core.errors import ConfigError, DataError
from xjax.core.types import Ragged, ScoreKind
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge
from xjax.judge.label_lists import LabelLists
from xjax.judge.request import JudgeRequest
from xjax.report.figures.figures import (
  binned_f1,
  frequency_picture,
  learning_curves,
  rank_curves,
  reliability_blocks,
)
from xjax.report.page.page import (
  Collapsible,
  Paragraph,
  Picture,
  render_html,
  render_markdown,
)
from xjax.report.report_page import (
  build_page,
  dataset_of,
  published_blocks,
  report,
)
from xjax.report.run_comparison import best_by_tests, judge_runs
from xjax.report.runs import SystemRuns
from xjax.report.sources import read_runs
from xjax.report.table import Table

pytestmark = pytest.mark.usefixtures('undrawn')


@pytest.fixture(scope='module')
def page(tmp_path_factory, undrawn):
  """Two seeds of one system, and a file of another."""
  folder = tmp_path_factory.mktemp('page')
  predictions(5, ScoreKind.MARGIN).save(folder / 'other.npz')
  runs = [make_workdir(folder / f's{seed}', seed) for seed in range(2)]
  paths = [str(path) for path in (*runs, folder / 'other.npz')]
  names = 'lwan', 'lwan', 'other'
  return report(paths, 'python -m x', names=names, dataset='EURLEX57K')


def sections(page):
  return {section.title: section.blocks for section in page.sections}


def test_numbers_on_the_page_are_those_of_the_judge(page):
  found = predictions(5, ScoreKind.MARGIN)
  metrics = judge(found, Criteria(ks=(1, 5)))['xjax']
  reader = Reader(render_html(page))
  assert reader.needs_nothing_else() and len(reader.of('img')) > 8
  cells = reader.of('td')
  rows = [
    (name['text'], float(cell.get('data-value', 'nan')))
    for name, _, cell in zip(cells, cells[1:], cells[2:])
  ]
  for values in metrics.values():
    for metric, value in values.items():
      if not metric.startswith('n_') and value is not None:
        assert (metric, value) in rows


def test_the_page(page):
  assert page.title == 'lwan, other: judged on dev'
  found = sections(page)
  said, systems, by, command = found['Judged data']
  assert said.text.startswith('2 systems, 3 runs, judged on 12 documents and 8')
  assert [row[0].text for row in systems.rows] == ['lwan', 'other']
  assert systems.rows[0][2].text == 'dev, seeds 0, 1'
  assert systems.rows[1][3].text == 'margin, lists of 8, search not recorded'
  assert by == Paragraph('Propensities: A 0.55, B 1.5.')
  assert command == Paragraph('python -m x', command=True)
  why, *folds = found['Labels missed more than expected']
  assert 'same bin of frequency' in why.text
  assert [fold.title for fold in folds] == ['lwan (seed 0)', 'other']
  # The file has no names; those of the runs serve.
  for fold in folds:
    assert fold.blocks[0].rows[0][1].text.startswith('label <')
  picture, why = found['Probabilities']
  assert picture.alt.count('expected calibration error') == 2
  assert why.text.startswith(
    'other: no reliability diagram, because its scores are uncalibrated mar'
  )
  assert isinstance(found['Training'][0], Picture)
  assert 'whiskers' in found['Frequent and rare labels'][1].caption.lower()


def test_markdown_has_every_table(page):
  def tables(blocks):
    for block in blocks:
      if isinstance(block, Collapsible):
        yield from tables(block.blocks)
      elif isinstance(block, Table):
        yield block

  count = sum(len(list(tables(s.blocks))) for s in page.sections)
  assert count > 10
  assert len(re.findall(r'^\| :--', render_markdown(page), re.M)) == count


def test_labels_with_parents_have_a_section(predictions_of, tmp_path):
  tree = Hierarchy.of(
    [Label(f'l{i}', parents=(f'l{i // 3}',) if i > 1 else ()) for i in range(8)]
  )
  flat, one = predictions_of(0), predictions_of(1)
  one = dataclasses.replace(one, hierarchy=tree)
  for name, found in (('flat', flat), ('one', one)):
    found.save(tmp_path / f'{name}.npz')
  # The file without parents takes them from the other file.
  arguments = [str(tmp_path / f'{name}.npz') for name in ('one', 'flat')]
  blocks = sections(report(arguments, 'command'))['Hierarchy of the labels']
  _, by_path, by_level = blocks
  expected = judge(one, Criteria((1, 5)))['xjax']['all']
  assert by_path.rows[0][3].value == expected['hF1']
  assert by_path.rows[1][3].value is not None
  assert [row[1].text for row in by_level.rows[:2]] == ['one', 'flat']
  assert by_level.rows[0][6].value == expected['micro-F1[level=1]']


@pytest.mark.thorough
def test_bold_needs_a_significant_difference(predictions_of, tmp_path):
  predictions = predictions_of()
  everywhere = Ragged.of([[0]] * len(predictions))
  worse = dataclasses.replace(predictions, gold=everywhere)
  best = LabelLists(worse.lists['all'].ids.copy(), worse.lists['all'].scores)
  best.ids[:] = np.arange(8)
  (worse.lists['all'].ids)[:] = np.arange(8)[::-1]
  paths = [tmp_path / f'{name}.npz' for name in ('best', 'worse', 'same')]
  dataclasses.replace(worse, lists={'all': best}).save(paths[0])
  worse.save(paths[1])
  worse.save(paths[2])

  runs = judge_runs(read_runs(paths), JudgeRequest())
  groups = [SystemRuns(run.name, (run,)) for run in runs]
  metrics = ['P@1', 'R@5', 'no-such-metric']
  best = {'P@1': 'best', 'R@5': 'best'}
  assert best_by_tests(groups, metrics, 'xjax')['all'] == best
  assert not any(best_by_tests(groups[1:], metrics, 'xjax').values())
  assert best_by_tests(groups[:1], metrics, 'xjax') == {}
  assert best_by_tests(groups, metrics, 'pyxclib') == {}
  page = build_page(groups[:2], 'c', '', metrics[:2])
  rows = page.results.rows
  assert page.results.columns[2:] == ('P@1', 'R@5')
  assert {r[1].text for r in rows if any(c.best for c in r)} == {'best'}
  said = 'No value is significantly better than the values of all other systems'
  assert said in results_text(groups[1:])
  judged = judge_runs(runs, JudgeRequest(protocols=('pyxclib',)))
  said = (
    'No value is tested for significance: only values under the protocol xjax '
    'can be tested.'
  )
  assert said in results_text([SystemRuns(run.name, (run,)) for run in judged])


def results_text(groups):
  return sections(build_page(groups, 'c', ''))['Results'][0].text


def test_the_recalls_of_a_search_are_on_the_page(predictions_of, tmp_path):
  step = 'level 0 recall@4'
  recalls = {'all': {step: 0.25}, 'few': {step: 0.5}}
  found = dataclasses.replace(
    predictions_of(5), selected_by='clusters=4', recalls=recalls
  )
  found.save(tmp_path / 'p.npz')
  page = report([str(tmp_path / 'p.npz')], 'c')
  for text in (render_html(page), render_markdown(page)):
    assert 'the labels of 4 clusters (level 0 recall@4 0.250)' in text
    assert 'keeps, level 0 recall@4: all 0.250, few 0.500.' in text


def test_wrong_systems_are_refused(workdir, predictions_of, tmp_path):
  path, fewer = str(workdir('s0', 0)), tmp_path / 'fewer.npz'
  with pytest.raises(ConfigError, match="called 's0'.*--names"):
    report([path, path], 'c')
  says = '--dataset=Mine: no published .*Wiki10'
  with pytest.raises(ConfigError, match=says):
    report([path], 'c', dataset='Mine')
  predictions_of().of_documents(np.arange(12) == 0).save(fewer)
  message = 's0 .* and fewer .*: only one .* has .* documents: 11'
  with pytest.raises(DataError, match=message):
    report([path, str(fewer)], 'c')


@pytest.mark.parametrize(
  ('data', 'name'),
  [
    ({'kind': 'Eurlex57kData'}, 'EURLEX57K'),
    ({'kind': 'JsonlData', 'dir': '/d/EURLEX57K.zip'}, 'EURLEX57K'),
    ({'kind': 'JsonlData', 'dir': '/d/mine'}, ''),
  ],
)
def test_the_dataset_is_told_by_the_config(group, data, name):
  run = dataclasses.replace(group.first, config={'data': data})
  assert dataset_of([run]) == name


def test_a_dataset_with_another_number_of_labels_is_warned_of(group, caplog):
  (said,) = published_blocks('', [group], {'one': 'red'})
  assert 'is not known' in said.text
  said, *_ = published_blocks('Wiki10-31K', [group], {'one': 'red'})
  warning = (
    'The judged data have 8 labels, but Wiki10-31K has about 31,000, so the '
    'values are not comparable.'
  )
  assert said.text.endswith(warning) and warning in caplog.text


def test_alternative_texts_have_the_numbers(group):
  metrics = group.first.metrics['xjax']['all']
  bars = binned_f1([group], 5, 'xjax').alt
  assert f'1-9: {metrics["macro-F1@5[1-9]"]:.4f}' in bars
  assert 'one ends at 0.05, step 20' in learning_curves([group]).alt
  assert '3 labels with 1-9 documents' in frequency_picture(group.first).alt
  assert f'one: RP@5 {metrics["RP@5"]:.4f}' in rank_curves([group]).alt


def test_a_calibrated_margin_is_a_probability(group, predictions_of):
  margins = predictions_of(0, ScoreKind.MARGIN)
  (picture,) = reliability_blocks([changed(group, predictions=margins)])
  assert 'one, calibrated' in picture.alt and 'one, scores' not in picture.alt


def test_a_calibration_fitted_here_is_told(group):
  said = 'from a calibration that was fitted to other documents'
  (picture,) = reliability_blocks([group])
  assert said in picture.caption
  (picture,) = reliability_blocks([changed(group, split='test')])
  assert said not in picture.caption
  (picture,) = reliability_blocks([changed(group, calibration=None)])
  assert said not in picture.caption
