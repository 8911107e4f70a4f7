import dataclasses
import json

import numpy as np
import pytest

from tests.report.conftest import DEV, by_propensity, edited
from xjax.core.errors import ConfigError, DataError
from xjax.core.types import Ragged
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.judge.comparison_request import ComparisonRequest
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge
from xjax.judge.label_lists import LabelLists
from xjax.judge.metrics.protocols import PROTOCOLS
from xjax.judge.request import JudgeRequest
from xjax.report.run_comparison import (
  compare_runs,
  judge_runs,
  reorder_documents,
)
from xjax.report.sources import read_runs

PLAN = ComparisonRequest(metrics=('RP@5', 'P@1'), iterations=20, replicates=20)


def test_seeds_are_one_system_and_the_best_on_dev_is_tested(workdir):
  runs = [workdir('a', 0), workdir('b', 1), workdir('c', 2)]
  other = workdir('d', 3, units=8)
  for path, value in zip(runs, (0.2, 0.4, 0.3)):
    with edited(path / DEV) as metrics:
      metrics['xjax']['all']['RP@5'] = value
  found = compare_runs([other, *runs], PLAN)
  assert [group.name for group in found.groups] == ['d', 'a + b + c']
  assert found.tested['a + b + c'].path == runs[1]
  assert {row.system for row in found.comparison.differences} == {'a + b + c'}
  seeds = {(row.system, row.estimate.n) for row in found.seeds}
  assert seeds == {('a + b + c', 3)}
  alone = [compare_runs([other, path], PLAN) for path in runs]
  for row in found.seeds:
    values = [
      difference.value
      for one in alone
      for difference in one.comparison.differences
      if difference.metric == row.metric
    ]
    error = np.std(values, ddof=1) / np.sqrt(3)
    assert row.estimate.mean == pytest.approx(np.mean(values))
    assert row.estimate.error == pytest.approx(error)


def test_the_baseline_says_by_which_propensities(workdir):
  runs = [workdir('a', 0), workdir('b', 1, units=8)]
  assert tuple(compare_runs(runs, PLAN).plan.propensity) == (0.55, 1.5)
  by_propensity(runs[0], 0.6, 2.6)
  assert tuple(compare_runs(runs, PLAN).plan.propensity) == (0.6, 2.6)
  asked = dataclasses.replace(PLAN, propensity=(0.5, 0.4))
  assert compare_runs(runs, asked).plan.propensity == (0.5, 0.4)


def test_one_hierarchy_is_for_all_systems(predictions_of, tmp_path):
  parents = [Label(f'l{i}', parents=('l0',) if i else ()) for i in range(8)]
  tree = Hierarchy.of(parents)
  old = predictions_of(0)  # an older version saved no hierarchy
  new = dataclasses.replace(predictions_of(1), hierarchy=tree)
  old.save(tmp_path / 'old.npz')
  new.save(tmp_path / 'new.npz')
  paths = [tmp_path / 'old.npz', tmp_path / 'new.npz']
  plan = dataclasses.replace(PLAN, metrics=('hF1', 'micro-F1[level=2]'))
  rows = compare_runs(paths, plan).comparison.differences
  criteria = Criteria((1,), hierarchy=tree)
  for row in rows:
    values = [judge(p, criteria)['xjax']['all'] for p in (old, new)]
    assert [row.baseline, row.value] == [v[row.metric] for v in values]
    assert row.p is not None
  new = dataclasses.replace(new, hierarchy=None)
  new.save(tmp_path / 'new.npz')
  (row,) = compare_runs(
    paths, dataclasses.replace(PLAN, metrics=('hF1',))
  ).comparison.differences
  assert row.value is None and 'no label has a parent' in row.note
  says = r"'micro-F1\[level=2\]' does not exist"
  with pytest.raises(ConfigError, match=says):
    compare_runs(paths, plan)


def renamed(found):
  return dataclasses.replace(found, labels=tuple(f'm{i}' for i in range(8)))


def relabelled(found):
  """The same labels and gold in another order."""
  turned = np.arange(7, -1, -1, dtype=np.int32)
  lists = found.lists['all']
  return dataclasses.replace(
    found,
    labels=found.labels[::-1],
    train_counts=found.train_counts[::-1].copy(),
    lists={'all': LabelLists(turned[lists.ids], lists.scores)},
    gold=Ragged.of([sorted(turned[row].tolist()) for row in found.gold]),
  )


def turned_documents(found):
  """The same documents in another order."""
  turned = reorder_documents(found, found.doc_ids[::-1])
  assert turned.doc_ids == found.doc_ids[::-1]
  return turned


@pytest.mark.parametrize('turn', [turned_documents, relabelled])
def test_another_order_changes_nothing(turn, predictions_of, tmp_path):
  same = predictions_of(1)
  systems = {'base': predictions_of(0), 'same': same, 'turned': turn(same)}
  for name, found in systems.items():
    found.save(tmp_path / f'{name}.npz')
  paths = [tmp_path / f'{name}.npz' for name in systems]
  rows = compare_runs(paths, PLAN).comparison.differences
  for one, other in zip(rows[::2], rows[1::2]):
    assert dataclasses.replace(other, system='same') == one


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (
      lambda p: dataclasses.replace(p, doc_ids=('x', *p.doc_ids[1:])),
      r'have different documents: only one of the two systems has .*'
      r'\(number of such documents: 2\)',
    ),
    (renamed, "different gold labels for 'd0'"),
    (
      lambda p: dataclasses.replace(p, doc_ids=p.doc_ids[::-1]),
      "gold labels for 'd.*'; if their order differs, give gold labels with",
    ),
    (
      lambda p: dataclasses.replace(
        p, labels=(*p.labels, 'more'), train_counts=np.append(p.train_counts, 0)
      ),
      'do not rank the same labels in the same order: 8 and 9 labels',
    ),
    (
      lambda p: dataclasses.replace(p, n_train=101),
      'do not agree on the training documents .* 100 and 101',
    ),
    (
      lambda p: dataclasses.replace(p, held_out=np.array([7], np.int32)),
      'hold out different labels',
    ),
  ],
)
def test_what_cannot_be_compared(predictions_of, tmp_path, change, message):
  predictions_of(0).save(tmp_path / 'one.npz')
  change(predictions_of(1)).save(tmp_path / 'two.npz')
  with pytest.raises(DataError, match=message):
    compare_runs([tmp_path / 'one.npz', tmp_path / 'two.npz'], PLAN)


def test_two_systems_at_least(workdir):
  with pytest.raises(ConfigError, match='so there is nothing to compare; runs'):
    compare_runs([workdir('a', 0), workdir('b', 1)], PLAN)


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
