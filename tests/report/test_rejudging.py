"""Metrics side by side: what stays, what is made anew, and by what."""

import dataclasses
import json

import numpy as np

from tests.report.conftest import DEV, by_propensity
from xjax.judge.criteria import Criteria
from xjax.judge.files.evaluation import save_evaluation
from xjax.judge.judge import judge
from xjax.judge.metrics.protocols import PROTOCOLS, PYXCLIB, XJAX
from xjax.judge.request import JudgeRequest
from xjax.report.rejudging import judge_runs
from xjax.report.sources import read_runs

OTHERS = (0.6, 2.6)


def by_others(path, predictions, **more):
  """A run that was judged with A 0.6, B 2.6."""
  by_propensity(path, *OTHERS)
  metrics = judge(predictions, Criteria(ks=(1, 5), propensity=OTHERS)) | more
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


def test_intervals_are_added_and_those_that_are_there_stay(
  workdir, predictions_of
):
  ends = {'xjax': {'all': {'P@1': [0, 1]}}}
  path = by_others(workdir('one', 0), predictions_of(0), intervals=ends)
  (run,) = judged([path], JudgeRequest(replicates=50))
  saved = json.loads((path / DEV).read_text())
  intervals = run.metrics.pop('intervals')['xjax']
  assert run.metrics['xjax'] == saved['xjax']
  assert intervals['all'].pop('P@1') == [0, 1]
  criteria = Criteria(ks=(1, 5), propensity=OTHERS, replicates=50)
  expected = judge(predictions_of(0), criteria)['intervals']['xjax']
  assert 'PSP@5' in intervals['all']
  for name, ends in intervals.items():
    for metric, pair in ends.items():
      assert pair == expected[name][metric]


def test_other_propensities_are_made_one(workdir, predictions_of):
  first = workdir('one', 0)
  second = by_others(workdir('two', 1, units=8), predictions_of(1))
  _, two = judged([first, second])
  by_first = judge(predictions_of(1), Criteria(ks=(1, 5)))['xjax']
  by_own = judge(predictions_of(1), Criteria(ks=(1, 5), propensity=OTHERS))
  assert two.metrics['xjax']['all'] == by_first['all']
  assert by_own['xjax']['all']['PSP@5'] != by_first['all']['PSP@5']
  # The first decides, whichever that is.
  two, one = judged([second, first])
  assert two.metrics == by_own
  assert one.criteria.propensity == two.criteria.propensity == OTHERS


def test_an_evaluation_tells_by_its_numbers(workdir, predictions_of, tmp_path):
  first, found = workdir('one', 0), predictions_of(1)
  slices = {
    'bin:1-9': (found.train_counts > 0) & (found.train_counts < 10),
    'mine': np.arange(8) < 4,
  }
  for name, propensity in (('same', (0.55, 1.5)), ('other', OTHERS)):
    criteria = Criteria(
      ks=(1, 5),
      propensity=propensity,
      protocols=(XJAX, PYXCLIB),
      replicates=20,
      slices=slices,
    )
    evaluated(tmp_path / name, found, criteria)
  _, same, other = judged([first, tmp_path / 'same', tmp_path / 'other'])
  for protocol in ('xjax', 'pyxclib'):
    for name in ('all', 'bin:1-9'):
      assert other.metrics[protocol][name] == same.metrics[protocol][name]
  # An interval of what was replaced would be another number's.
  sure = other.metrics['intervals']['pyxclib']['all']
  assert 'P@5' in sure and 'PSP@5' not in sure
  assert same.metrics['intervals']['pyxclib']['all']['PSP@5']
  # A slice that cannot be judged again says so.
  mine = other.metrics['xjax']['mine']
  assert mine['PSP@5'] is None and mine['P@5'] is not None
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
