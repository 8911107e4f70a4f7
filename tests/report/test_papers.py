"""The figures of papers beside ours."""

import dataclasses

import numpy as np

from tests.report.conftest import COLOUR, changed
from xjax.core.types import Ragged
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge
from xjax.judge.metrics.protocols import PYXCLIB, XJAX
from xjax.report.runs import SystemRuns
from xjax.report.tables.published import published_folds


def test_ours_are_judged_as_the_paper_does(group, predictions_of):
  gold = Ragged.of(
    [[], *(group.first.predictions.gold[i] for i in range(1, 12))]
  )
  one = dataclasses.replace(predictions_of(0), gold=gold)
  folds = published_folds('Bibtex', [changed(group, predictions=one)], COLOUR)
  said, table = folds[0].blocks
  assert said.text.endswith('by the conventions of pyxclib, April 2025.')
  criteria = Criteria(ks=(1, 3, 5), protocols=(XJAX, PYXCLIB))
  by = judge(one, criteria)
  for name, cell in zip(table.columns[1:], table.rows[0][1:]):
    assert cell.value == by['pyxclib']['all'][name]
  assert by['pyxclib']['all']['P@1'] != by['xjax']['all']['P@1']
  folds = published_folds('AmazonCat-13K', [group], COLOUR)
  texts = {fold.title: fold.blocks[0].text for fold in folds}
  said = texts['Schultheis et al. 2022, Table 1 (test)']
  assert 'napkinXC 0.7.2. This tool does not print nDCG-full@1' in said
  assert said.endswith('metrics, the protocol of xjax is used.')
  said = texts['Bertalis et al. (preprint), Table 4 (test)']
  assert said.endswith('judged by the protocol of xjax.')


def test_published_beside_ours(group):
  folds = published_folds('EURLEX57K', [group], COLOUR)
  titles = [fold.title for fold in folds]
  assert titles[:3] == [
    'Chalkidis et al. 2019, Table 2 (test)',
    'Chalkidis et al. 2019, Table 3 (test)',
    'Chalkidis et al. 2019, Table 4 (dev)',
  ]
  assert [fold.open for fold in folds[:2]] == [True, False]
  said, table = folds[0].blocks
  assert 'EU Legislation' in said.text
  assert table.columns[:3] == ('system', 'all\nRP@5', 'all\nnDCG@5')
  assert table.marked == {0}
  ours, *printed = table.rows
  assert ours[0].text == 'one (dev)'
  assert ours[1].value == group.first.metrics['xjax']['all']['RP@5']
  assert len(printed) == 12
  assert [cell.text for cell in printed[5]][:2] == ['BIGRU-LWAN', '0.766']


def test_errors_are_printed(group):
  folds = published_folds('AmazonCat-13K', [group], COLOUR)
  blocks = {fold.title: fold.blocks for fold in folds}
  _, table = blocks['Schultheis et al. 2022, Table 1 (test)']
  assert table.columns[1] == 'P@1'  # of one slice, which is not repeated
  assert 'as printed' in table.rows[2][0].below
  _, table = blocks['Schultheis et al. 2022, Table 2 (test)']
  assert table.rows[1][1].below == '± 0.0000'
  assert table.rows[2][1].below == '± 0.0005'
  assert [t for t in blocks if 'benchmarks' in t] == [
    'Hauss et al. (published version of Bertalis et al.), benchmarks (test)',
    'Bhatia et al. 2016, benchmarks (test)',
  ]


def test_spreads_are_those_of_the_paper(group, predictions_of):
  runs = [
    dataclasses.replace(group.first, predictions=predictions_of(seed))
    for seed in range(2)
  ]
  folds = published_folds(
    'AmazonCat-13K', [SystemRuns('one', tuple(runs))], COLOUR
  )
  blocks = {fold.title: fold.blocks for fold in folds}
  values = [judge(run.predictions)['xjax']['all']['P@3'] for run in runs]
  published = 'Hauss et al. (published version of Bertalis et al.), benchmarks'
  said, table = blocks[f'{published} (test)']
  assert 'github.com/FloHauss/XMC_HTC' in said.text
  assert said.text.endswith(
    'Their denominator is not stated; for your systems, it is the number of '
    'runs.'
  )
  at = table.columns.index('P@3')
  assert table.rows[0][at].below == f'± {np.std(values):.4f}'
  assert table.rows[1][at].text == '0.8338'
  assert table.rows[1][at].below == '± 0.0028'
  _, table = blocks['Bertalis et al. (preprint), Table 4 (test)']
  error = np.std(values, ddof=1) / 2**0.5
  assert table.rows[0][table.columns.index('P@3')].below == f'± {error:.4f}'


def test_a_system_printed_twice_has_two_rows(group):
  folds = published_folds('Delicious-200K', [group], COLOUR)
  _, table = folds[0].blocks
  names = [row[0].text for row in table.rows]
  assert names.count('Parabel') == 2
