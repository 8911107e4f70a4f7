"""Reading runs, evaluations and files; what is wrong with them."""

import json
import re
import shutil

import numpy as np
import pytest

from tests.report.conftest import DEV
from xjax.core.errors import ConfigError, DataError
from xjax.judge.files.judge_files import JudgeFiles
from xjax.report.figures.figures import reliability_blocks
from xjax.report.runs import group_by_seed
from xjax.report.sources import read_runs


def read_json(path):
  return json.loads(path.read_text())


def test_a_workdir(workdir):
  path = workdir('one', 3)
  (run,) = read_runs([str(path)])
  assert (run.name, run.split, run.path) == ('one', 'dev', path)
  assert run.config['seed'] == 3
  assert run.metrics == read_json(path / DEV)
  assert run.names['l1'] == 'label <1>'
  assert 'l0' not in run.names  # a name that only repeats the id
  assert [record['kind'] for record in run.history] == ['train'] * 2 + ['judge']


def test_the_calibration_of_a_run_counts_for_its_own_checkpoint(workdir):
  path = workdir('one', 3)
  (run,) = read_runs([path])
  assert run.calibration.step == 20
  for source in ('eval/dev', 'eval/dev/predictions.npz'):
    (alone,) = read_runs([path / source])
    shown = [x.shown_probabilities() for x in (alone, run)]
    np.testing.assert_array_equal(*shown)
    assert 'calibrated' in str(reliability_blocks(group_by_seed([alone])))
  mark = path / 'eval' / 'dev' / 'judged.json'
  mark.write_text('{"step": 10, "files": {}}')
  for source in (path, path / 'eval' / 'dev'):
    (run,) = read_runs([source])
    assert run.calibration is None


def test_an_evaluation_and_a_file(workdir, predictions_of, tmp_path):
  folder = workdir('one', 0) / 'eval' / 'dev'
  file = tmp_path / 'prior.npz'
  predictions_of(1).save(file)
  runs = read_runs([folder, folder / 'predictions.npz', file])
  assert [run.name for run in runs] == ['one', 'one', 'prior']
  assert [run.split for run in runs] == ['dev', 'dev', '']
  # As it was judged where it was.
  assert 'P@3' not in runs[0].metrics['xjax']['all']
  assert runs[1].metrics == read_json(folder / 'metrics.json')
  assert runs[2].metrics == {}


def test_files_beside_workdirs_alone_are_refused(workdir):
  path = workdir('one', 0)
  for name in ('gold', 'train_labels', 'filter', 'inv_prop', 'depth'):
    with pytest.raises(ConfigError, match='all systems are workdirs'):
      read_runs([path], files=JudgeFiles('', **{name: 'some'}))


def test_which_split(workdir):
  one, other = workdir('one', 0), workdir('two', 1, split='test')
  workdir('one', 0, split='test')
  assert [run.split for run in read_runs([one])] == ['dev']
  assert [run.split for run in read_runs([one, other])] == ['test', 'test']
  assert [run.split for run in read_runs([one], 'test')] == ['test']
  with pytest.raises(ConfigError, match=r"'dev' was not .* splits: test\)"):
    read_runs([other], 'dev')
  (one / 'eval' / 'test').rename(one / 'eval' / 'train')
  with pytest.raises(ConfigError, match='one: dev, train; .*two: test'):
    read_runs([one, other])


def test_neither_a_run_nor_predictions(tmp_path):
  (tmp_path / 'empty').mkdir()
  for path in (tmp_path / 'empty', tmp_path / 'gone'):
    where = re.escape(str(path))
    with pytest.raises(DataError, match=f'{where}: neither a workdir'):
      read_runs([path])
  (tmp_path / 'notes.txt').write_text('hello')
  with pytest.raises(DataError, match=r'notes\.txt'):
    read_runs([tmp_path / 'notes.txt'])


def test_an_evaluation_that_was_interrupted_is_not_read(workdir):
  path = workdir('one', 0)
  (path / 'eval' / 'dev' / 'judged.json').unlink()
  for argument in (path, path / 'eval' / 'dev'):
    with pytest.raises(DataError, match=r'dev: is not complete.*evaluate'):
      read_runs([argument])


def test_metrics_without_a_mark_are_judged_again(workdir, tmp_path):
  folder = workdir('one', 0) / 'eval' / 'dev'
  alone = shutil.copytree(folder, tmp_path / 'alone')
  (run,) = read_runs([alone])
  assert run.metrics
  (alone / 'judged.json').unlink()
  (run,) = read_runs([alone])
  assert run.metrics == {}
