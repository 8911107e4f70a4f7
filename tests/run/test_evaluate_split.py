"""Judging a finished run again: on its own documents, and on others."""

import dataclasses
import errno
import json
import os
import shutil

import pytest

from tests.fixtures.kills import kill
from tests.run.tagging import contents, read_rows, rows_of, write_rows
from xjax.core.atomic import WriteError
from xjax.core.errors import DataError, Preempted
from xjax.data.files.file_set import writing_set
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.synthetic import make_synthetic
from xjax.judge.files import evaluation
from xjax.judge.files.judge_files import JudgeFiles
from xjax.judge.request import JudgeRequest, Similarity
from xjax.report.sources import read_runs
from xjax.run.evaluate_split import (
  evaluate_files,
  evaluate_split,
  saved_threshold,
)
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.run.strategies.strategy_request import StrategyKind, StrategyRequest
from xjax.train.workdir import Workdir


@pytest.fixture(scope='module')
def corpus_dir(config, tmp_path_factory):
  folder = tmp_path_factory.mktemp('corpus')
  _, splits = make_synthetic(config.data)
  for name, documents in splits.items():
    write_rows(folder / f'{name}.jsonl', rows_of(documents))
  return folder


@pytest.fixture(scope='module')
def read_config(config, corpus_dir):
  data = JsonlData(
    dir=str(corpus_dir), hold_out_labels=2, tokens=config.data.tokens, workers=1
  )
  return dataclasses.replace(config, data=data)


@pytest.fixture(scope='module')
def read_run(read_config, tmp_path_factory):
  return fit(read_config, tmp_path_factory.mktemp('read') / 'run')


@pytest.fixture
def workdir(read_run, tmp_path):
  return Workdir(shutil.copytree(read_run.workdir, tmp_path / 'run'))


@pytest.fixture
def other_dir(corpus_dir, tmp_path):
  """Its dev is half of the run's, with a gold label nobody knows."""
  shutil.copytree(corpus_dir, tmp_path / 'other')
  path = tmp_path / 'other' / 'dev.jsonl'
  rows = read_rows(path)
  rows[0]['labels'].append('unheard-of')
  write_rows(path, rows[: len(rows) // 2])
  return tmp_path / 'other'


def test_again_on_its_own_documents(read_run, workdir, corpus_dir):
  split = 'test'
  before = contents(workdir.path / 'eval')
  found = evaluate_split(workdir.path, split)
  assert found.metrics == read_run.metrics[split]
  assert found.prior == read_run.prior[split]
  assert found.folder == workdir.evaluation(split)
  assert contents(workdir.path / 'eval') == before
  moved = shutil.copytree(corpus_dir, workdir.path.parent / 'moved')
  again = evaluate_split(workdir.path, split, str(moved))
  assert (again.metrics, again.prior) == (found.metrics, found.prior)
  assert again.folder == found.folder
  assert contents(workdir.path / 'eval') == before


def test_other_documents_have_a_folder_of_their_own(
  read_config, read_run, workdir, other_dir
):
  before = contents(workdir.path / 'eval')
  found = evaluate_split(workdir.path, 'dev', str(other_dir))
  values = found.metrics['xjax']['all']
  assert values['n_docs'] + values['n_skipped'] == 8
  assert found.folder.name.startswith('dev@')
  after = contents(workdir.path / 'eval')
  assert after.items() >= before.items()
  new = {name.split('/')[0] for name in set(after) - set(before)}
  assert new == {found.folder.name}
  # Its threshold is the one that the run's own dev has tuned.
  own = read_run.metrics['dev']['xjax']['all']['threshold-tuned']
  assert values['threshold-tuned'] == own
  assert saved_threshold(workdir, read_run.best_step) == own
  assert fit(read_config, workdir.path).metrics == read_run.metrics


def test_documents_that_have_changed_are_warned_of(
  corpus_dir, workdir, caplog, monkeypatch
):
  other = shutil.copytree(corpus_dir, workdir.path.parent / 'other')
  write_rows(other / 'dev.jsonl', read_rows(other / 'dev.jsonl')[:-1])
  monkeypatch.chdir(workdir.path.parent)
  config = json.loads(workdir.config.read_text())
  config['data']['dir'] = 'other'
  workdir.config.write_text(json.dumps(config))
  assert evaluate_split(workdir.path, 'test').folder.name == 'test'
  assert 'are not those of the run' not in caplog.text
  assert '@' in evaluate_split(workdir.path, 'dev').folder.name
  assert 'the documents of dev, or their labels, are not' in caplog.text


def test_a_split_the_run_did_not_have(workdir, other_dir):
  (other_dir / 'dev.jsonl').rename(other_dir / 'extra.jsonl')
  found = evaluate_split(workdir.path, 'extra', str(other_dir))
  assert found.folder.name.startswith('extra@')


def test_what_is_of_another_corpus_is_not_believed(
  read_config, read_run, workdir, caplog
):
  mark = json.loads(workdir.judged('dev').read_text())
  assert mark['step'] == read_run.best_step
  other = {**mark, 'digest': '0' * 64}
  workdir.judged('dev').write_text(json.dumps(other))
  (workdir.evaluation('dev') / 'metrics.json').write_text(
    '{"xjax": {"all": {"threshold-tuned": 9.0}}}'
  )
  assert saved_threshold(workdir, read_run.best_step) is None
  assert 'no tuned threshold' in caplog.text
  metrics = evaluate_split(workdir.path, 'test').metrics['xjax']['all']
  assert 'micro-F1-tuned' not in metrics
  assert fit(read_config, workdir.path).metrics == read_run.metrics
  assert json.loads(workdir.judged('dev').read_text()) == mark


def test_an_unfinished_folder_is_not_believed(read_run, workdir):
  assert saved_threshold(workdir, read_run.best_step) is not None
  workdir.judged('dev').unlink()
  assert saved_threshold(workdir, read_run.best_step) is None


def test_a_file_that_is_not_of_the_set_is_named(
  read_config, read_run, workdir, caplog
):
  name = 'predictions.npz'
  path = workdir.evaluation('dev') / name
  before = path.read_bytes()
  shutil.copy(workdir.evaluation('test') / name, path)
  with pytest.raises(DataError, match=f'dev/{name}: is not .* --split=dev'):
    saved_threshold(workdir, read_run.best_step)
  with pytest.raises(DataError, match=f'dev/{name}: is not .* --split=dev'):
    read_runs([workdir.path])
  # The same command judges again, and says why.
  assert fit(read_config, workdir.path).metrics == read_run.metrics
  assert f'dev/{name}: is not' in caplog.text
  assert path.read_bytes() == before


def test_a_killed_evaluation_mixes_nothing(workdir, monkeypatch):
  before = contents(workdir.path / 'eval')
  with monkeypatch.context() as patch, pytest.raises(Preempted):
    kill(patch, evaluation, '_write_table')
    evaluate_split(workdir.path, 'dev')
  assert contents(workdir.path / 'eval') == before
  # An older evaluation is replaced.
  with writing_set(workdir.judged('dev'), {'step': 1}) as new:
    for name in ('metrics.json', 'predictions.npz'):
      shutil.copy(workdir.evaluation('test') / name, new / name)
  replace, moved = os.replace, []

  def killed_midway(source, target):
    if str(target).startswith(str(workdir.evaluation('dev') / 'p')):
      raise KeyboardInterrupt
    moved.append(target)
    replace(source, target)

  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(os, 'replace', killed_midway)
    evaluate_split(workdir.path, 'dev')
  assert workdir.evaluation('dev') / 'metrics.json' in moved
  says = 'dev/predictions.npz: is not the file .* written with .*'
  with pytest.raises(DataError, match=says + 'workdir=.* --split=dev'):
    read_runs([workdir.path])
  with pytest.raises(DataError, match=says):
    read_runs([workdir.evaluation('dev')])
  evaluate_split(workdir.path, 'dev')
  assert contents(workdir.path / 'eval') == before


def test_another_step_has_a_folder_of_its_own(read_run, workdir):
  other = 6
  assert read_run.best_step != other
  before = contents(workdir.path)
  dev = evaluate_split(workdir.path, 'dev', step=other)
  assert dev.folder == workdir.evaluation(f'dev.step_{other}')
  assert dev.metrics != read_run.metrics['dev']
  test = evaluate_split(workdir.path, 'test', step=other)
  tuned = [m.metrics['xjax']['all']['threshold-tuned'] for m in (dev, test)]
  assert tuned[0] == tuned[1] == saved_threshold(workdir, other)
  after = contents(workdir.path)
  assert after.items() >= before.items()
  (run,) = read_runs([dev.folder])
  assert run.metrics == dev.metrics and run.name == f'run.step_{other}'
  # The step of the best checkpoint is judged where the best is judged.
  best = evaluate_split(workdir.path, 'dev', step=read_run.best_step)
  assert best.folder == workdir.evaluation('dev')
  assert contents(workdir.path) == after
  says = 'checkpoints/9: no such checkpoint.*3, 4'
  with pytest.raises(DataError, match=says):
    evaluate_split(workdir.path, 'dev', step=9)


def test_a_damaged_newest_checkpoint_is_an_error(
  read_config, read_run, workdir
):
  before = contents(workdir.path / 'eval')
  (workdir.checkpoints / '6' / 'checkpoint.json').write_text('{')
  says = r'checkpoints/6: .* damaged.*train.*--step=N \(N: 3, '
  for use in (open_run, lambda path: evaluate_split(path, 'dev')):
    with pytest.raises(DataError, match=says):
      use(workdir.path)
  assert contents(workdir.path / 'eval') == before
  assert open_run(workdir.path, step=3).step == 3
  # It is not known whether step 3 is the best.
  judged = evaluate_split(workdir.path, 'dev', step=3)
  assert judged.folder == workdir.evaluation('dev.step_3')
  # Training goes back and makes the checkpoint again.
  assert fit(read_config, workdir.path).metrics == read_run.metrics
  assert open_run(workdir.path).step == read_run.best_step


@pytest.mark.parametrize('number', [errno.EROFS, errno.EACCES, errno.EPERM])
@pytest.mark.parametrize('split', ['dev', 'test'])
def test_a_read_only_workdir_is_judged(
  read_run, read_config, workdir, monkeypatch, caplog, number, split
):
  def refuse(path, flags, *rest, **options):
    writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes and str(path).startswith(str(workdir.path)):
      raise OSError(number, os.strerror(number), str(path))
    return open_(path, flags, *rest, **options)

  open_, before = os.open, contents(workdir.path)
  monkeypatch.setattr(os, 'open', refuse)
  strategy = StrategyRequest(StrategyKind.PROPENSITY, 3)
  for chosen in (strategy, None):
    found = evaluate_split(workdir.path, split, strategy=chosen)
    assert not found.is_saved
  assert found.metrics == read_run.metrics[split]
  assert caplog.text.count('is read-only: metrics are not saved') == 2
  assert contents(workdir.path) == before
  assert open_run(workdir.path).predict(['a'], 1)
  with pytest.raises(WriteError, match='cannot be written'):
    fit(read_config, workdir.path)


def test_saved_predictions_are_judged_and_nothing_is_written(read_run):
  folder = read_run.paths['dev']
  before = contents(folder)
  files = JudgeFiles(folder / 'predictions.npz')
  found = evaluate_files(files, JudgeRequest(ks=(1, 3, 5, 10)))
  assert found.folder is None
  assert contents(folder) == before
  assert found.prior == read_run.prior['dev']
  for name, values in found.metrics['xjax'].items():
    saved = read_run.metrics['dev']['xjax'][name]
    # A file has raw scores, and the run was judged by its probabilities.
    same = [metric for metric in values if not metric.startswith('ECE')]
    assert [values[x] for x in same] == [saved[x] for x in same]


def test_what_is_asked_for_is_judged_and_not_written(
  read_config, read_run, workdir
):
  before = contents(workdir.path)
  asked = JudgeRequest(
    ks=(2, 4),
    kinds=('P', 'ILD', 'micro-F1-tuned'),
    protocols=('lmtc', 'xjax'),
    slices=('bin:1-9',),
    similarity=Similarity.CO_OCCURRENCE,
    replicates=20,
  )
  found = evaluate_split(workdir.path, 'dev', request=asked)
  assert contents(workdir.path) == before
  assert found.folder == workdir.evaluation('dev')
  assert [*found.metrics][:2] == ['lmtc', 'xjax']
  slices = found.metrics['xjax']
  assert 'bin:1-9' in slices
  wanted = {'P@2', 'P@4', 'ILD@2', 'ILD@4', 'micro-F1-tuned'}
  counts = {'n_docs', 'n_skipped', 'n_labels', 'threshold-tuned'}
  assert set(slices['all']) - counts == wanted
  # The threshold is the one that the run's dev has tuned.
  own = read_run.metrics['dev']['xjax']['all']
  for name in ('threshold-tuned', 'micro-F1-tuned'):
    assert slices['all'][name] == own[name]
  assert found.metrics['intervals']['xjax']['all']['P@2']
  assert found.prior.keys() <= {'lmtc', 'notes'}  # once, without intervals
  # Where nothing is said of cut-offs, the run's hold.
  asked = JudgeRequest(kinds=('P',))
  alike = evaluate_split(workdir.path, 'dev', request=asked)
  assert alike.criteria.ks == read_config.eval.criteria().ks


def test_labels_of_the_run_have_descriptors(workdir):
  values = []
  for by in (Similarity.DESCRIPTORS, Similarity.CO_OCCURRENCE):
    asked = JudgeRequest(ks=(3,), kinds=('ILD',), similarity=by)
    found = evaluate_split(workdir.path, 'dev', request=asked)
    values.append(found.metrics['xjax']['all']['ILD@3'])
  assert 0 < values[0] <= 1 and values[0] != values[1]
