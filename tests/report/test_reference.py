"""Tests the rows, columns, gold and counts that files take from others."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse

from tests.fixtures.xc_writers import write_inv_prop, write_xc
from xjax.core.errors import DataError
from xjax.core.types import PAD
from xjax.data.formats.xc_files import XcFile
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.judge.files.judged import JudgeFiles
from xjax.judge.judge import judge
from xjax.judge.label_lists import LabelLists
from xjax.report.rejudging import shared_weights
from xjax.report.sources import read_runs


def matrix(found, path, columns=None):
  """Saves the lists as a sparse matrix of scores, which has no ids."""
  scores = np.zeros((len(found), len(found.labels)))
  lists = found.lists['all']
  for row, (ids, values) in enumerate(zip(lists.ids, lists.scores)):
    scores[row, ids[ids != PAD]] = values[ids != PAD]
  scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(scores[:, :columns]))
  return path


@pytest.fixture
def whole(predictions_of):
  return predictions_of(4)


def test_a_matrix_takes_all_from_a_workdir(workdir, whole, tmp_path):
  file = matrix(whole, tmp_path / 'sparse.npz')
  home, run = read_runs([workdir('one', 0), file])
  found = run.predictions
  assert tuple(found.doc_ids) == tuple(home.predictions.doc_ids)
  assert tuple(found.labels) == tuple(whole.labels)
  assert run.remark == (
    'sparse has no ids, so the rows and columns were matched by position.'
  )
  expected = judge(whole)['xjax']
  for name, values in judge(found)['xjax'].items():
    for metric in ('n_docs', 'P@1', 'RP@5', 'PSP@5', 'coverage@5'):
      if name == 'all':
        assert values[metric] == pytest.approx(expected[name][metric])


def test_a_file_takes_all_from_the_first_with_ids(whole, tmp_path):
  parents = [Label(f'l{i}', parents=('l7', 'top')[:i]) for i in range(7)]
  hierarchy = Hierarchy.of([*parents, Label('l7')])
  with_ids = dataclasses.replace(whole, hierarchy=hierarchy)
  with_ids.save(tmp_path / 'ids.npz')
  file = matrix(whole, tmp_path / 'sparse.npz')
  run, reference = read_runs([file, tmp_path / 'ids.npz'])
  assert tuple(run.predictions.doc_ids) == tuple(whole.doc_ids)
  assert run.predictions.gold.values.tolist() == whole.gold.values.tolist()
  found_tree = run.predictions.hierarchy
  assert list(found_tree.ids) == list(reference.predictions.hierarchy.ids)
  assert found_tree.parents.values.tolist() == hierarchy.parents.values.tolist()
  ours, theirs = (judge(p)['xjax']['all'] for p in (run.predictions, with_ids))
  assert ours['n_gold[level=2]'] == theirs['n_gold[level=2]']
  # The labels of a file may be in another order, and it may have more of them.
  columns = [3, 0, 7, 5]
  order = {int(old): new for new, old in enumerate(columns)}
  few = dataclasses.replace(
    whole,
    n_scored=4,
    labels=tuple(whole.labels[i] for i in columns),
    train_counts=whole.train_counts[columns],
    gold=None,
    lists={
      'all': LabelLists(
        np.array([[order[i] for i in columns]] * len(whole), np.int32),
        np.zeros((len(whole), 4), np.float32),
      )
    },
  )
  few.save(tmp_path / 'few.npz')
  _, run = read_runs([tmp_path / 'ids.npz', tmp_path / 'few.npz'])
  assert run.predictions.hierarchy.n_labels == len(whole.labels)
  assert run.predictions.labels == with_ids.labels


def test_gold_of_columns_beside_a_workdir_of_ids(workdir, whole, tmp_path):
  file = matrix(whole, tmp_path / 'sparse.npz')
  gold = XcFile(None, whole.gold, len(whole.labels))
  write_xc(tmp_path / 'gold.txt', gold)
  files = JudgeFiles('', gold=str(tmp_path / 'gold.txt'))
  _, run = read_runs([workdir('one', 0), file], files=files)
  assert tuple(run.predictions.doc_ids) == tuple(whole.doc_ids)
  assert run.predictions.gold.values.tolist() == whole.gold.values.tolist()
  assert run.predictions.n_train == 100


def test_lists_with_ids_come_into_the_order_of_the_reference(
  workdir, whole, tmp_path
):
  rows = list(range(len(whole)))[::-1]
  lists, path = whole.lists['all'], tmp_path / 'lists.jsonl'
  lines = []
  for row in rows:
    labels = ', '.join(
      f'{{"id": "{whole.labels[i]}", "score": {score}}}'
      for i, score in zip(lists.ids[row][:6], lists.scores[row])
    )
    lines.append(f'{{"id": "{whole.doc_ids[row]}", "labels": [{labels}]}}\n')
  path.write_text(''.join(lines))
  _, run = read_runs([workdir('one', 0), path])
  found = run.predictions
  assert tuple(found.labels) == tuple(whole.labels)
  assert found.doc_ids[0] == whole.doc_ids[-1]
  assert found.gold[0].tolist() == whole.gold[len(whole) - 1].tolist()
  assert found.lists['all'].ids[0, :6].tolist() == lists.ids[-1, :6].tolist()
  assert (found.n_train, found.train_counts.tolist()) == (
    whole.n_train,
    whole.train_counts.tolist(),
  )


def test_numbers_are_matched_as_such(whole, tmp_path):
  """Checks that a label of the matrix alone comes last."""
  order = ('7', '2', '4', '1', '0', '3', '5', '12')
  dataclasses.replace(whole, labels=order).save(tmp_path / 'ids.npz')
  file = matrix(whole, tmp_path / 'sparse.npz')
  _, run = read_runs([tmp_path / 'ids.npz', file])
  found = run.predictions
  assert tuple(found.labels) == (*order, '6')
  best = [found.labels[i] for i in found.lists['all'].ids[:, 0]]
  assert best == [str(i) for i in whole.lists['all'].ids[:, 0]]
  assert found.train_counts.tolist() == [*whole.train_counts.tolist(), 0]


@pytest.mark.parametrize(
  ('kept', 'columns', 'message'),
  [
    (
      slice(0, 11),
      None,
      '11 documents, but .*one has 12: sparse has no ids, .* row by row',
    ),
    (
      slice(None),
      5,
      '5 labels, but .*one has 8: sparse has no ids, .* column by column',
    ),
  ],
)
def test_rows_and_columns_must_agree(
  workdir, whole, tmp_path, kept, columns, message
):
  mask = np.zeros(len(whole), bool)
  mask[kept] = True
  file = matrix(whole.of_documents(mask), tmp_path / 'sparse.npz', columns)
  with pytest.raises(DataError, match=f'sparse.npz: {message}'):
    read_runs([workdir('one', 0), file])


def test_no_gold_for_a_document(workdir, whole, tmp_path):
  ids = ('new', *whole.doc_ids[1:])
  bare = dataclasses.replace(whole, gold=None, doc_ids=ids)
  bare.save(tmp_path / 'bare.npz')
  with pytest.raises(
    DataError,
    match="bare.npz: .*one has no gold labels for document 'new'.*--gold",
  ):
    read_runs([workdir('one', 0), tmp_path / 'bare.npz'])


def test_weights_of_columns_are_those_of_a_workdirs_labels(
  workdir, whole, tmp_path
):
  weights = np.arange(1.0, 9)
  write_inv_prop(tmp_path / 'inv.txt', weights)
  file = matrix(whole, tmp_path / 'sparse.npz')
  files = JudgeFiles('', inv_prop=str(tmp_path / 'inv.txt'))
  runs = read_runs([workdir('one', 0), file], files=files)
  for weights_L in shared_weights(runs):
    assert weights_L.tolist() == weights.tolist()
