"""Tests the rows, columns, gold and counts that files take from others."""

import dataclasses
import json

import numpy as np
import pytest
import scipy.sparse

from tests.fixtures.xc_writers import write_inv_prop
from xjax.core.errors import DataError
from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.judge.files.judge_files import JudgeFiles
from xjax.judge.judge import judge
from xjax.report.run_comparison import shared_weights
from xjax.report.sources import read_runs

ORDER = ('7', '2', '4', '1', '0', '3', '5', '6')


def matrix(found, path):
  """Saves the lists as a sparse matrix of scores, which has no ids."""
  scores = np.zeros((len(found), len(found.labels)))
  lists = found.lists['all']
  for row, (ids, values) in enumerate(zip(lists.ids, lists.scores)):
    scores[row, ids[ids != PAD]] = values[ids != PAD]
  scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(scores))
  return path


@pytest.fixture
def whole(predictions_of):
  """Predictions whose label ids are the numbers of columns."""
  numbers = tuple(map(str, range(8)))
  return dataclasses.replace(predictions_of(4), labels=numbers)


def test_a_matrix_takes_all_from_a_file_with_ids(whole, tmp_path):
  parents = [Label(f'{i}', parents=('7', 'top')[:i]) for i in range(7)]
  hierarchy = Hierarchy.of([*parents, Label('7')])
  with_ids = dataclasses.replace(
    whole, hierarchy=hierarchy, held_out=np.array([7], np.int32)
  )
  with_ids.save(tmp_path / 'ids.npz')
  file = matrix(whole, tmp_path / 'sparse.npz')
  run, reference = read_runs([file, tmp_path / 'ids.npz'])
  found = run.predictions
  assert tuple(found.doc_ids) == tuple(whole.doc_ids)
  assert tuple(found.labels) == tuple(whole.labels)
  assert found.gold.values.tolist() == whole.gold.values.tolist()
  assert found.held_out.tolist() == [7]
  assert list(found.hierarchy.ids) == list(reference.predictions.hierarchy.ids)
  ours, theirs = (judge(p)['xjax']['all'] for p in (found, with_ids))
  for metric in ('n_docs', 'P@1', 'RP@5', 'PSP@5', 'n_gold[level=2]'):
    assert ours[metric] == pytest.approx(theirs[metric])


def test_columns_come_into_the_order_of_the_reference(whole, tmp_path):
  dataclasses.replace(whole, labels=ORDER).save(tmp_path / 'ids.npz')
  file = matrix(whole, tmp_path / 'sparse.npz')
  write_inv_prop(tmp_path / 'inv.txt', np.arange(1.0, 9))
  files = JudgeFiles('', inv_prop=str(tmp_path / 'inv.txt'))
  runs = read_runs([tmp_path / 'ids.npz', file], files=files)
  found = runs[1].predictions
  assert tuple(found.labels) == ORDER
  best = [found.labels[i] for i in found.lists['all'].ids[:, 0]]
  assert best == [str(i) for i in whole.lists['all'].ids[:, 0]]
  assert found.train_counts.tolist() == whole.train_counts.tolist()
  for weights_L in shared_weights(runs):
    assert weights_L.tolist() == [int(id_) + 1.0 for id_ in ORDER]


def test_lists_with_ids_take_all_from_a_workdir(
  workdir, predictions_of, tmp_path
):
  whole, path = predictions_of(4), tmp_path / 'lists.jsonl'
  lists, lines = whole.lists['all'], []
  for row in reversed(range(len(whole))):
    labels = [
      {'id': whole.labels[i], 'score': float(score)}
      for i, score in zip(lists.ids[row][:6], lists.scores[row])
    ]
    lines.append(json.dumps({'id': whole.doc_ids[row], 'labels': labels}))
  path.write_text('\n'.join(lines))
  _, run = read_runs([workdir('one', 0), path])
  found = run.predictions
  assert tuple(found.labels) == tuple(whole.labels)
  assert found.doc_ids[0] == whole.doc_ids[-1]
  assert found.gold[0].tolist() == whole.gold[len(whole) - 1].tolist()
  assert found.lists['all'].ids[0, :6].tolist() == lists.ids[-1, :6].tolist()
  assert found.n_train == whole.n_train
  assert found.train_counts.tolist() == whole.train_counts.tolist()


def test_columns_beside_ids_need_an_order(workdir, predictions_of, tmp_path):
  whole = predictions_of(4)
  paths = [workdir('one', 0), matrix(whole, tmp_path / 'sparse.npz')]
  with pytest.raises(DataError, match='label ids must be .*--label_order'):
    read_runs(paths)
  (tmp_path / 'order.txt').write_text('\n'.join(whole.labels))
  files = JudgeFiles('', labels=str(tmp_path / 'order.txt'))
  _, run = read_runs(paths, files=files)
  assert tuple(run.predictions.doc_ids) == tuple(whole.doc_ids)
  assert run.predictions.gold.values.tolist() == whole.gold.values.tolist()
  assert run.predictions.n_train == 100


def test_gold_that_is_not_there_is_refused(workdir, predictions_of, tmp_path):
  whole, path = predictions_of(), tmp_path / 'bare.npz'
  dataclasses.replace(whole, gold=None).save(path)
  with pytest.raises(DataError, match=r'bare.npz: no gold .*--gold=FILE'):
    read_runs([path])
  ids = ('new', *whole.doc_ids[1:])
  dataclasses.replace(whole, gold=None, doc_ids=ids).save(path)
  with pytest.raises(DataError, match="document 'd0' is not in"):
    read_runs([workdir('one', 0), path])
