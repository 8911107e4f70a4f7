"""Systems side by side are judged by the same criteria."""

import json

from tests.report.conftest import DEV, by_propensity
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge
from xjax.judge.metrics.protocols import PROTOCOLS
from xjax.judge.request import JudgeRequest
from xjax.report.run_comparison import judge_runs
from xjax.report.sources import read_runs

OTHERS = (0.6, 2.6)


def judged(paths, **request):
  return judge_runs(read_runs(paths), JudgeRequest(**request))


def without_errors(metrics):
  """Errors of probabilities depend on the calibration of the run."""
  return {k: v for k, v in metrics.items() if not k.startswith('ECE')}


def test_values_are_those_of_the_runs(workdir, predictions_of, tmp_path):
  predictions_of(1).save(tmp_path / 'file.npz')
  one, file = judged([workdir('one', 0), tmp_path / 'file.npz'])
  saved = json.loads((one.path / DEV).read_text())['xjax']
  assert one.metrics['xjax'].keys() == saved.keys()
  for name, values in saved.items():
    ours = one.metrics['xjax'][name]
    assert without_errors(ours) == without_errors(values)
  # At the cut-offs of what it stands beside.
  assert file.metrics == judge(predictions_of(1), Criteria(ks=(1, 5)))


def test_the_first_propensities_are_those_of_all(workdir):
  first, second = workdir('one', 0), workdir('two', 1, units=8)
  by_propensity(second, *OTHERS)
  for paths, propensity in (
    ([first, second], (0.55, 1.5)),
    ([second, first], OTHERS),
  ):
    for run in judged(paths):
      criteria = Criteria(ks=(1, 5), propensity=propensity)
      values = judge(run.predictions, criteria)['xjax']['all']
      assert run.criteria.propensity == propensity
      assert run.metrics['xjax']['all']['PSP@5'] == values['PSP@5']


def test_a_request_comes_first(workdir):
  (run,) = judged(
    [workdir('one', 0)],
    ks=(2,),
    protocols=('all',),
    slices=('bin:1-9',),
    propensity=OTHERS,
    replicates=20,
  )
  assert set(PROTOCOLS) <= set(run.metrics)
  assert 'P@2' in run.metrics['xjax']['bin:1-9']
  assert run.criteria.propensity == OTHERS
  assert 'PSP@2' in run.metrics['intervals']['xjax']['all']
