"""Metrics side by side: what stays, what is made anew, and by what."""

import dataclasses
import json

import numpy as np

from tests.report.conftest import DEV, by_propensity, edited
from xjax.judge.criteria import Criteria
from xjax.judge.files.evaluation import save_evaluation
from xjax.judge.judge import judge
from xjax.judge.metrics.protocols import PROTOCOLS, PYXCLIB, XJAX
from xjax.judge.request import JudgeRequest
from xjax.report.rejudging import judge_runs
from xjax.report.sources import read_runs

OTHERS = (0.6, 2.6)


def by_others(path, predictions):
  """A run that was judged with A 0.6, B 2.6."""
  by_propensity(path, *OTHERS)
  metrics = judge(predictions, Criteria(ks=(1, 5), propensity=OTHERS))
  save_evaluation(path / 'eval' / 'dev', predictions, metrics)
  return path


def evaluated(path, predictions, criteria):
  save_evaluation(path, predictions, judge(predictions, criteria))
  return path


AS_JUDGED = JudgeRequest()


def judged(paths, asked=AS_JUDGED):
  return judge_runs(read_runs(paths), asked)


def test_what_was_judged_stays_and_what_was_not_is_judged(
  workdir, predictions_of, tmp_path
):
  predictions_of(1).save(tmp_path / 'file.npz')
  one, file = judged([workdir('one', 0), tmp_path / 'file.npz'])
  assert one.metrics == json.loads((one.path / DEV).read_text())
  # At the cut-offs of what it stands beside.
  assert file.metrics == judge(predictions_of(1), Criteria(ks=(1, 5)))
  assert one.remark == file.remark == ''


def test_intervals_are_of_the_runs_own_propensities(workdir, predictions_of):
  path = by_others(workdir('one', 0), predictions_of(0))
  (run,) = judged([path], JudgeRequest(replicates=50))
  saved = json.loads((path / DEV).read_text())
  intervals = run.metrics.pop('intervals')
  assert run.metrics == saved
  expected = judge(
    predictions_of(0), Criteria(ks=(1, 5), propensity=OTHERS, replicates=50)
  )['intervals']
  for name, values in saved['xjax'].items():
    for metric, value in values.items():
      assert metric not in intervals['xjax'].get(name, {}) or value is not None
      if metric in intervals['xjax'].get(name, {}):
        low, high = intervals['xjax'][name][metric]
        assert low <= value <= high
        assert [low, high] == expected['xjax'][name][metric]
  assert 'PSP@5' in intervals['xjax']['all']


def test_intervals_that_are_there_stay(workdir):
  path = workdir('one', 0)
  with edited(path / DEV) as metrics:
    metrics['intervals'] = {'xjax': {'all': {'P@1': [0, 1]}}}
  (run,) = judged([path], JudgeRequest(replicates=20))
  found = run.metrics['intervals']['xjax']['all']
  assert found['P@1'] == [0, 1]
  assert found['P@5'] not in ([0, 1], None)


def test_other_propensities_are_made_one(workdir, predictions_of):
  first = workdir('one', 0)
  second = by_others(workdir('two', 1, units=8), predictions_of(1))
  one, two = judged([first, second])
  assert one.remark == ''
  assert two.remark.startswith('two was judged with A 0.6, B 2.6; ')
  by_first = judge(predictions_of(1), Criteria(ks=(1, 5)))['xjax']
  by_own = judge(predictions_of(1), Criteria(ks=(1, 5), propensity=OTHERS))
  assert two.metrics['xjax']['all'] == by_first['all']
  assert by_own['xjax']['all']['PSP@5'] != by_first['all']['PSP@5']
  # The first decides, whichever that is.
  two, one = judged([second, first])
  assert two.metrics == by_own and one.remark
  assert one.criteria.propensity == two.criteria.propensity == OTHERS


def test_an_evaluation_tells_by_its_numbers(workdir, predictions_of, tmp_path):
  first, found = workdir('one', 0), predictions_of(1)
  protocols = (XJAX, PYXCLIB)
  for name, propensity in (('same', (0.55, 1.5)), ('other', OTHERS)):
    criteria = Criteria(
      ks=(1, 5), propensity=propensity, protocols=protocols, replicates=20
    )
    evaluated(tmp_path / name, found, criteria)
  _, same, other = judged([first, tmp_path / 'same', tmp_path / 'other'])
  assert same.remark == ''
  assert 'other propensities' in other.remark
  for protocol in ('xjax', 'pyxclib'):
    assert other.metrics[protocol] == same.metrics[protocol]
  # An interval of what was replaced would be another number's.
  sure = other.metrics['intervals']['pyxclib']['all']
  assert 'P@5' in sure and 'PSP@5' not in sure
  assert same.metrics['intervals']['pyxclib']['all']['PSP@5']


def test_one_alone_keeps_its_numbers(predictions_of, tmp_path):
  folder = evaluated(
    tmp_path / 'other', predictions_of(1), Criteria(propensity=OTHERS)
  )
  (run,) = judged([folder], JudgeRequest(replicates=20))
  intervals = run.metrics.pop('intervals')
  assert run.metrics == json.loads((folder / 'metrics.json').read_text())
  assert 'unknown propensities' in run.remark
  # Not of the same propensities.
  assert 'P@5' in intervals['xjax']['all']
  assert 'PSP@5' not in intervals['xjax']['all']


def test_slices_that_cannot_be_made_again_say_so(
  workdir, predictions_of, tmp_path
):
  found = predictions_of(1)
  slices = {
    'bin:1-9': (found.train_counts > 0) & (found.train_counts < 10),
    'mine': np.arange(8) < 4,
  }
  criteria = Criteria(ks=(1, 5), propensity=OTHERS, slices=slices)
  folder = evaluated(tmp_path / 'other', found, criteria)
  _, other = judged([workdir('one', 0), folder])
  values = other.metrics['xjax']
  by_first = judge(found, Criteria(ks=(1, 5), slices=slices))['xjax']
  assert values['bin:1-9'] == by_first['bin:1-9']
  assert values['mine']['PSP@5'] is None and values['mine']['P@5'] is not None
  assert 'propensities that differ' in other.metrics['notes']['mine']['PSP@5']


def test_what_is_asked_for_is_made_anew(workdir, predictions_of):
  asked = JudgeRequest(
    ks=(2,), protocols=('all',), slices=('bin:1-9',), propensity=OTHERS
  )
  (run,) = judged([workdir('one', 0)], asked)
  assert set(PROTOCOLS) <= set(run.metrics)
  assert 'P@2' in run.metrics['xjax']['bin:1-9']
  assert run.criteria.propensity == OTHERS
  criteria = dataclasses.replace(run.criteria, slices={}, protocols=(XJAX,))
  again = judge(predictions_of(0), criteria)['xjax']['all']
  values = run.metrics['xjax']['all']
  # Errors of probabilities depend on the calibration of the run.
  assert {k: v for k, v in values.items() if not k.startswith('ECE')} == {
    k: v for k, v in again.items() if not k.startswith('ECE')
  }
