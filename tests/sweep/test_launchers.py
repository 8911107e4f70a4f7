"""Tests sweeps whose runs are jobs of a cluster, with quick stand-ins."""

import pathlib

import pytest

from tests.sweep.conftest import (
  FAIL,
  RATE,
  WAIT,
  meanwhile,
  run,
  start_sweep,
  wait_for,
)
from xjax.core.errors import ConfigError
from xjax.sweep.config import Listed, MedianPruning, Sweep
from xjax.sweep.launchers import Launcher, check_launcher, start_process
from xjax.sweep.trials import STATES

JOBS = Launcher.SLURM, Launcher.TPU, Launcher.JOBSET
SETTINGS = {
  'WORKERS': '1',
  'ZONE': 'here',
  'TYPE': 'v5litepod-16',
  'IMAGE': 'xjax',
  'ACCELERATOR': 'gpu',
  'CLAIM': 'nfs',
}
# The call with which each launcher submits a job.
SUBMITS = {
  Launcher.SLURM: 'sbatch ',
  Launcher.TPU: 'queued-resources create',
  Launcher.JOBSET: 'kubectl apply',
}


@pytest.fixture(autouse=True)
def settings(monkeypatch):
  for name, value in SETTINGS.items():
    monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
  'launcher',
  [
    pytest.param(
      launcher, marks=() if launcher is Launcher.SLURM else pytest.mark.thorough
    )
    for launcher in JOBS
  ],
)
def test_outcomes_are_those_of_processes_here(
  launcher, session_of, cluster, tmp_path
):
  trials = [{RATE: 0.5}, {RATE: 0.6, FAIL: 1}, {RATE: 0.1, WAIT: 1}]
  sweep = Sweep(
    Listed(tuple(trials)), MedianPruning(startup_trials=1, warmup_judgings=0)
  )
  here = run(session_of(sweep))
  (tmp_path / 'sweep').rename(tmp_path / 'here')
  there = run(session_of(sweep, launcher=launcher))
  names = [STATES[trial.state] for trial in there]
  assert names == ['complete', 'failed', 'pruned']
  for one, other in zip(there, here, strict=True):
    assert (one.state, one.value) == (other.state, other.value)
    assert one.user_attrs == other.user_attrs
  assert len(cluster.calls(SUBMITS[launcher])) == 3


@pytest.mark.thorough
@pytest.mark.parametrize('launcher', JOBS)
def test_a_killed_sweep_finds_its_job(launcher, session_of, cluster):
  session = session_of([{RATE: 0.5, WAIT: 1}], launcher=launcher)
  workdir = session.folder.place(0, None).workdir
  sweep = start_sweep(session)
  wait_for((workdir / 'alive').exists)
  sweep.kill()
  sweep.wait()
  looks = len(cluster.calls())

  def let_go():
    wait_for(lambda: len(cluster.calls()) > looks + 4)
    (workdir / 'go').touch()

  with meanwhile(let_go):
    (trial,) = run(session)
  assert trial.value == 0.5
  assert not (workdir / 'twice').exists()
  assert (workdir / 'starts').read_text() == '.'
  assert len(cluster.calls(SUBMITS[launcher])) == 1


@pytest.mark.parametrize('launcher', JOBS)
def test_each_workdir_has_a_name_of_its_own(launcher, session_of):
  session = session_of([{}], launcher=launcher)
  places = [session.folder.place(1, None), session.folder.place(1, 7)]
  names = [session.command(place)[1] for place in places]
  assert names[0] != names[1] == session.command(places[1])[1]
  assert names[1].startswith('NAME=xjax-0001-seed7-')
  elsewhere = type(session.folder)(pathlib.Path('/elsewhere')).place(1, None)
  assert session.command(elsewhere)[1] != names[0]


def test_what_a_launcher_needs(cluster, monkeypatch):
  for launcher in Launcher:
    check_launcher(launcher, 1, [])
  monkeypatch.delenv('CLAIM')
  monkeypatch.setenv('TYPE', '')
  with pytest.raises(ConfigError, match='--launcher=slurm does not use the G'):
    check_launcher(Launcher.SLURM, 2, ['0', '1'])
  with pytest.raises(ConfigError, match='--launcher=jobset: set CLAIM in'):
    check_launcher(Launcher.JOBSET, 1, [])
  with pytest.raises(ConfigError, match='--launcher=tpu: set TYPE in'):
    check_launcher(Launcher.TPU, 1, [])
  monkeypatch.setenv('PATH', '')
  with pytest.raises(ConfigError, match='the program sbatch is not on this'):
    check_launcher(Launcher.SLURM, 1, [])


def test_a_process_has_a_log_and_its_device(tmp_path):
  script = 'echo $CUDA_VISIBLE_DEVICES; echo err >&2; exit 75'
  command, log = ('/bin/sh', '-c', script), tmp_path / 'log'
  with (tmp_path / 'lock').open('w') as lock:
    process = start_process(command, log, lock.fileno(), False, device='3')
  assert process.wait(60) == 75
  assert log.read_text() == '3\nerr\n'
