"""Workdirs that others write to, that were killed, or changed by hand."""

import functools
import json
import logging
import os

import pytest

from tests.fixtures.kills import kill
from tests.fixtures.sparse_runs import RUNS, config_of
from tests.run.tagging import contents
from xjax.core.errors import ConfigError, DataError, Preempted
from xjax.core.processes.lock import NAME, locked
from xjax.models.neural import neural_model as neural
from xjax.run import fit as fit_module
from xjax.run.evaluate_split import evaluate_split
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.run_record import RunRecord
from xjax.train.workdir import Workdir

BUSY = 'another process is running here: process'


@pytest.fixture
def impatient(monkeypatch):
  now = functools.partial(locked, wait=0)
  monkeypatch.setattr('xjax.train.workdir.locked', now)


def test_who_writes_is_kept_out_and_who_reads_is_not(
  impatient, workdir, config
):
  with locked(workdir):
    before = contents(workdir)
    with pytest.raises(ConfigError, match=BUSY):
      fit(config, workdir)
    with pytest.raises(ConfigError, match=BUSY):
      evaluate_split(workdir, 'dev')
    model = open_run(workdir)
    assert model.predict(['some words'], k=1)
    assert contents(workdir) == before
  evaluate_split(workdir, 'dev')


def test_a_checkpoint_that_a_run_replaces_is_read_again(workdir, monkeypatch):
  read, failed = neural.read_params, []

  def vanish_first(*args, **options):
    if not failed:
      failed.append(args)
      raise FileNotFoundError('the run has just removed it')
    return read(*args, **options)

  monkeypatch.setattr(neural, 'read_params', vanish_first)
  monkeypatch.setattr(neural.time, 'sleep', lambda seconds: None)
  with locked(workdir):
    open_run(workdir)
  failed.clear()
  (workdir / NAME).write_text('{"pid": 1}')  # a killed process left it
  with pytest.raises(FileNotFoundError):  # nobody trains
    open_run(workdir)


def test_the_next_start_removes_what_a_killed_one_left(workdir, config):
  before = contents(workdir).keys()
  dead = f'xjax-{os.getpid()}-abcdefgh.tmp'
  (workdir / f'.metrics.jsonl.{dead}').touch()
  (workdir / 'eval' / 'dev' / f'.predictions.npz.{dead}').touch()
  (workdir / 'eval' / 'dev' / '.predictions.npz.mine').touch()
  fit(config, workdir)
  mine = 'eval/dev/.predictions.npz.mine'
  after = {name for name in contents(workdir) if not name.startswith('tb/')}
  # Every start adds a file of TensorBoard's.
  assert after == {x for x in before if not x.startswith('tb/')} | {mine}


def test_a_run_killed_after_its_judging_still_gets_its_record(
  tmp_path, monkeypatch
):
  config = config_of(*RUNS['lr'])
  with monkeypatch.context() as patch, pytest.raises(Preempted):
    kill(patch, fit_module, 'judge_splits', after=True)
    fit(config, tmp_path)
  fit(config, tmp_path)
  record = RunRecord.read(Workdir.at(tmp_path))
  assert record and record.finished


def test_a_changed_config_is_said_and_a_changed_corpus_an_error(
  tmp_path, caplog
):
  caplog.set_level(logging.WARNING)
  workdir = fit(config_of(*RUNS['lr']), tmp_path).workdir
  assert open_run(workdir).config.eval.depth == 20
  assert not caplog.records
  config = json.loads((workdir / 'config.json').read_text())
  config['eval']['depth'] = 1
  (workdir / 'config.json').write_text(json.dumps(config))
  assert open_run(workdir).config.eval.depth == 1
  assert 'config.json: is not the file that this run wrote' in caplog.text
  # The propensities of labels depend on the number of documents.
  path = workdir / 'corpus.json'
  described = json.loads(path.read_text())
  described['n_train'] += 1
  path.write_text(json.dumps(described))
  with pytest.raises(DataError, match='corpus.json: is not the file that this'):
    open_run(workdir)
