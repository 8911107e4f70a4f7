"""One process at a time writes to a workdir; readers need no lock."""

import functools
import os
import shutil

import pytest

from tests.run.tagging import contents
from xjax.core.errors import ConfigError
from xjax.core.processes.lock import NAME, locked
from xjax.models.neural import neural_model as neural
from xjax.run.evaluate import evaluate_split
from xjax.run.fit import fit
from xjax.run.open_run import open_run

BUSY = 'another process is running here: process'


@pytest.fixture
def workdir(finished, tmp_path):
  shutil.copytree(finished.workdir, tmp_path / 'run')
  return tmp_path / 'run'


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


def test_a_workdir_that_nobody_has_made_yet_is_kept_too(
  impatient, config, tmp_path
):
  with locked(tmp_path / 'run'), pytest.raises(ConfigError, match=BUSY):
    fit(config, tmp_path / 'run')
  assert list(tmp_path.iterdir()) == []


def test_evaluate_makes_no_workdir(tmp_path):
  with pytest.raises(Exception, match='has no run of xjax'):
    evaluate_split(tmp_path / 'run', 'dev')
  assert list(tmp_path.iterdir()) == []


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
