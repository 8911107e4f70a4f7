"""Systems that leave labels out, beside systems that never had them."""

import dataclasses

import numpy as np
import pytest

from tests.fixtures.vector_files import json_lines
from tests.judge.test_left_out import (
  KEPT,
  META,
  L,
  predicted,
  small_space,
  space_of,
)
from xjax.core.errors import DataError
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.judge.comparison_request import ComparisonRequest
from xjax.judge.files.evaluation import save_evaluation
from xjax.judge.files.judge_files import JudgeFiles
from xjax.judge.judge import judge
from xjax.judge.request import JudgeRequest
from xjax.report.run_comparison import compare_runs
from xjax.report.sources import read_runs
from xjax.run.evaluate_split import evaluate_files

PLAN = ComparisonRequest(
  ('P@1', 'P@5', 'macro-F1@5'), iterations=50, replicates=9
)


def evaluated(folder, **systems):
  for name, predictions in systems.items():
    save_evaluation(folder / name, predictions, judge(predictions))
  return {name: str(folder / name) for name in systems}


@pytest.fixture
def folders(tmp_path):
  """Evaluations: with labels left out, without these labels, and whole."""
  return evaluated(
    tmp_path,
    tree=predicted(np.arange(L), space_of(META)),
    flat=predicted(KEPT, small_space()),
    whole=predicted(np.arange(L), space_of()),
  )


def test_hierarchies_are_compared_as_they_are_judged(tmp_path):
  # One system has the left-out labels as labels, and one does not have them.
  whole = predicted(np.arange(L), space_of(META), depth=20)
  flat = predicted(KEPT, small_space(), depth=20)
  folders = [*evaluated(tmp_path, tree=whole, flat=flat).values()]
  metrics = 'hF1', 'hR', 'consistency', 'micro-F1[level=3]'
  # The descriptors may come from a file, too.
  path, space = tmp_path / 'labels.jsonl', space_of()
  rows = (
    {'id': label.id, 'name': label.id, 'parents': label.parents}
    for label in (*space.labels, *space.concepts)
  )
  json_lines(path, rows)
  judged = judge(whole)['xjax']['all']
  for labels in ('', str(path)):
    plan = ComparisonRequest(metrics, iterations=9, replicates=9, labels=labels)
    for order in (folders, folders[::-1]):
      rows = compare_runs(order, plan).comparison.differences
      if labels or order == folders:
        values = {r.metric: r.value for r in rows if r.slice == 'all'}
        assert values == {m: judged[m] for m in metrics}
      shared = [r.difference for r in rows if r.metric in ('hF1', 'hR')]
      assert set(shared) == {0}


def test_a_system_that_judges_all_labels_cannot_be_compared(folders):
  with pytest.raises(DataError, match='different gold labels'):
    compare_runs([folders['flat'], folders['whole']], PLAN)


def test_a_report_counts_only_judged_labels(folders, tmp_path):
  whole, path = predicted(KEPT, small_space()), tmp_path / 'bare.npz'
  counts, lists = 0 * whole.train_counts, {'all': whole.lists['all']}
  bare = dataclasses.replace(whole, train_counts=counts, lists=lists, n_train=0)
  bare.save(path)
  tree, flat, bare = read_runs([folders['tree'], folders['flat'], path])
  assert tree.predictions.labels == flat.predictions.labels
  assert tree.predictions.labels == bare.predictions.labels
  assert (
    tree.predictions.gold.values.tolist()
    == flat.predictions.gold.values.tolist()
  )
  assert tree.metrics['xjax']['all']['n_labels'] == len(KEPT)


def test_files_can_leave_labels_out_when_they_are_compared(folders, tmp_path):
  path = tmp_path / 'meta.txt'
  path.write_text(''.join(f'l{i}\n' for i in META))
  files = JudgeFiles('', leave_out=str(path))
  plan = dataclasses.replace(PLAN, metrics=('P@1',))
  runs = [folders[name] for name in ('tree', 'whole', 'flat')]
  rows = compare_runs(runs, plan, files=files).comparison.differences
  # The lists of `whole` are cut, but the first label is the same.
  assert [row.difference for row in rows if row.slice == 'all'] == [0, 0]
  with pytest.raises(DataError, match='no system has any of these labels'):
    compare_runs([folders['flat']] * 2, plan, ('a', 'b'), files=files)
  with pytest.raises(DataError, match='has none of these labels'):
    flat = JudgeFiles(f'{folders["flat"]}/predictions.npz', leave_out=str(path))
    evaluate_files(flat, JudgeRequest())


@pytest.mark.parametrize('metric', ['micro-F1[level=1]', 'P@1'])
def test_systems_with_other_parents_are_named(tmp_path, caplog, metric):
  ours = predicted(np.arange(L), space_of(), depth=20)
  labels = [Label(id_, parents=('top',)) for id_ in ours.labels]
  theirs = dataclasses.replace(ours, hierarchy=Hierarchy.of(labels))
  systems = evaluated(tmp_path, ours=ours, same=ours, other=theirs)
  folders = [*systems.values()]
  plan = ComparisonRequest((metric,), iterations=9, replicates=9)
  compare_runs(folders[:2], plan)
  assert 'other parents' not in caplog.text
  compare_runs(folders, plan)
  named = 'the labels of other have other parents' in caplog.text
  assert named == (metric != 'P@1')
