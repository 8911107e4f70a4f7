"""Tests the scripts for TPU VMs with a gcloud that records its calls."""

import json
import os
import signal

import pytest

from tests.tpu_scripts.conftest import kill

WHERE = '--zone=here --project=mine'
QUEUED = 'gcloud compute tpus queued-resources'
CREATE = (
  f'{QUEUED} create tpu {WHERE} --node-id=tpu --accelerator-type=v5litepod-16 '
  '--runtime-version=v2-alpha-tpuv5-lite --async --spot'
)
DELETE = f'{QUEUED} delete tpu {WHERE} --force --quiet --async'
DESCRIBE = f'{QUEUED} describe tpu {WHERE} --format=value(state.state)'


@pytest.fixture(autouse=True)
def settings(monkeypatch):
  for name, value in {
    'NAME': 'tpu',
    'ZONE': 'here',
    'PROJECT': 'mine',
    'TYPE': 'v5litepod-16',
    'SPOT': '1',
  }.items():
    monkeypatch.setenv(name, value)


@pytest.fixture
def plan(cluster):
  """States of the TPU VMs that will be created."""

  def write(*plans):
    lines = '\n'.join(map(json.dumps, plans))
    (cluster.folder / 'plans').write_text(lines)

  return write


def changes(cluster):
  """Returns the calls that change something."""
  verbs = {
    'create': 'queued-resources create',
    'delete': 'queued-resources delete',
    'copy': ' scp ',
    'start': 'worker.sh start',
    'stop': 'worker.sh stop',
  }
  return [
    verb
    for call in cluster.calls()
    for verb, text in verbs.items()
    if text in call
  ]


def test_create_waits_until_it_is_active(cluster, plan, run, said):
  plan(['WAITING_FOR_RESOURCES', 'WAITING_FOR_RESOURCES', 'ACTIVE'])
  assert run('create.sh') == 0
  assert cluster.calls() == [DESCRIBE, CREATE, *[DESCRIBE] * 3]
  states = ['ABSENT', 'WAITING_FOR_RESOURCES', 'ACTIVE']
  assert said().splitlines() == [f'tpu: {state}' for state in states]
  assert run('create.sh') == 0
  assert cluster.calls()[5:] == [DESCRIBE]


def test_two_slices_are_one_run(cluster, job, run, monkeypatch):
  monkeypatch.setenv('SLICES', '2')
  job.ends_with(0)
  assert run('run.sh', *job.words) == 0
  nodes = '--node-count=2 --node-prefix=tpu'
  assert cluster.calls(' create ') == [CREATE.replace('--node-id=tpu', nodes)]
  assert changes(cluster) == ['create', 'copy', 'start']
  assert not cluster.calls('tpu-vm')
  reached = cluster.calls('--worker=all')
  assert reached == cluster.calls('--worker=all --node=all')
  assert any(call.startswith(f'{QUEUED} scp ') for call in reached)


@pytest.mark.parametrize('state', ['SUSPENDED', 'FAILED'])
def test_create_makes_what_is_lost_anew(state, cluster, plan, run):
  (cluster.folder / 'states').write_text(state)
  plan(['PROVISIONING', 'ACTIVE'])
  assert run('create.sh') == 0
  assert changes(cluster) == ['delete', 'create']
  assert cluster.calls('delete') == [DELETE]


def test_create_makes_no_other_of_what_is_deleted_meanwhile(
  cluster, plan, begin, run, said, wait_for
):
  plan(['WAITING_FOR_RESOURCES'])
  process = begin('create.sh')
  wait_for(lambda: len(cluster.calls('describe')) > 3)
  assert run('delete.sh') == 0
  assert process.wait(60) == 1
  assert changes(cluster) == ['create', 'delete']
  assert 'error: tpu: the TPU VM was deleted' in said().splitlines()


@pytest.mark.thorough
@pytest.mark.parametrize(('times', 'remains'), [(2, False), (3, True)])
def test_a_delete_that_fails_is_tried_again_and_is_no_failure_of_the_run(
  times, remains, cluster, job, run, said, stumble, monkeypatch
):
  monkeypatch.setenv('DELETE', '1')
  stumble('gcloud', 'resources delete', times)
  job.ends_with(0)
  assert run('run.sh', *job.words) == 0
  assert (cluster.folder / 'states').exists() == remains
  assert ('warning: tpu still exists' in said()) == remains


def test_setup_installs_on_all_workers_and_may_come_twice(
  cluster, run, monkeypatch
):
  monkeypatch.setenv('PREPARE', 'echo mounted >> mounts')
  assert run('create.sh') == 0
  for _ in range(2):
    assert run('setup.sh') == 0
  for worker in ('worker0', 'worker1'):
    home = cluster.folder / worker
    assert (home / 'xjax' / 'xjax' / 'run' / 'fit.py').exists()
    assert (home / 'xjax' / 'setup.py').exists()
    assert (home / 'xjax' / '.venv' / 'bin' / 'python').exists()
    assert (home / 'mounts').read_text() == 'mounted\n' * 2
    assert (home / 'xjax' / 'ready').exists()


@pytest.mark.parametrize(
  ('codes', 'code', 'times'), [((75, 143, 0), 0, 3), ((75, 1, 0), 1, 2)]
)
def test_run_starts_again_on_75_only(
  codes, code, times, cluster, job, run, said
):
  job.ends_with(*codes)
  assert run('run.sh', *job.words) == code
  words = '--workdir=a b --multihost'
  assert sorted(job.starts) == sorted(
    [f'worker{n} {words}' for n in (0, 1)] * times
  )
  assert changes(cluster) == ['create', 'copy', *['start'] * times]
  if code == 1:
    assert 'error: not today' in said().splitlines()


def test_a_failure_of_one_worker_is_that_of_the_run(cluster, job, run):
  job.ends_with(75, 0)
  words = *job.words[:2], 'x'
  one = '[ ${HOME##*/} = worker0 ] || exit 9; exec "$@"'
  assert run('run.sh', 'bash', '-c', one, 'bash', *words) == 9
  assert len(job.starts) == 1


@pytest.mark.thorough
def test_run_makes_a_vm_that_was_taken_away_anew(
  cluster, plan, job, run, monkeypatch
):
  monkeypatch.setenv('DELETE', '1')
  job.ends_with('wait', 0)
  plan(['WAITING_FOR_RESOURCES', *['ACTIVE'] * 3, 'SUSPENDED'], ['ACTIVE'])
  assert run('run.sh', *job.words) == 0
  once = ['create', 'copy', 'start', 'delete']
  assert changes(cluster) == once * 2
  assert len(job.starts) == 4
  assert not (cluster.folder / 'states').exists()


@pytest.mark.thorough
def test_run_comes_back_to_what_goes_on(
  cluster, job, begin, run, said, wait_for, monkeypatch, at_work
):
  job.ends_with('wait', 0)
  kill(at_work('run.sh', 2))
  second = begin('run.sh', *job.words)
  states = len(cluster.calls('worker.sh state'))
  wait_for(lambda: len(cluster.calls('worker.sh state')) > states + 1)
  assert len(job.starts) == 2
  # Another command is refused until the run ends, and it changes nothing.
  before = changes(cluster)
  monkeypatch.setenv('DELETE', '1')
  assert run('run.sh', 'true') == 1
  assert 'error: another command is running here: bash' in said()
  assert changes(cluster) == before
  assert second.poll() is None
  # The operating system, for one, may send SIGTERM to the processes.
  for worker in ('worker0', 'worker1'):
    pid = (cluster.folder / worker / 'xjax_run' / 'pid').read_text()
    os.kill(int(pid), signal.SIGTERM)
  assert second.wait(60) == 0
  assert len(job.starts) == 4


@pytest.mark.thorough
def test_run_is_left_by_a_key_and_asked_to_leave_lets_it_save(
  cluster, job, begin, said, wait_for, monkeypatch, at_work
):
  job.ends_with('wait', 0)
  process = at_work('run.sh', 2)
  process.send_signal(signal.SIGINT)
  assert process.wait(60) == 130
  assert 'run the same command again to return to it' in said()
  monkeypatch.setenv('DELETE', '1')
  looks = len(cluster.calls('worker.sh state'))
  process = begin('run.sh', *job.words)
  wait_for(lambda: len(cluster.calls('worker.sh state')) > looks)
  process.terminate()
  assert process.wait(60) == 75
  assert ': exit 75' in said()
  assert changes(cluster)[-2:] == ['stop', 'delete']
  assert len(job.starts) == 2
  assert not (cluster.folder / 'states').exists()


@pytest.mark.thorough
@pytest.mark.parametrize('aborts', [False, True])
def test_a_worker_that_started_anew_is_set_up_and_all_start_again(
  aborts, cluster, job, begin, said, wait_for, monkeypatch
):
  monkeypatch.setenv('PREPARE', 'echo mounted >> mounts')
  job.ends_with('wait', 0)
  process = begin('run.sh', *job.words)
  pids = pids_of(cluster, job, wait_for)
  if aborts:  # JAX aborts if another worker is lost
    os.kill(pids[0], signal.SIGABRT)
    wait_for(lambda: 'worker' in said() and ': exit 134' in said())
  home = cluster.folder / 'worker1'
  reboot(home)
  os.killpg(os.getpgid(pids[1]), signal.SIGKILL)
  assert process.wait(60) == 0
  again = ['copy', 'start'] if aborts else ['stop', 'copy', 'start']
  assert changes(cluster) == ['create', 'copy', 'start', *again]
  assert len(job.starts) == 4
  assert (home / 'mounts').read_text() == 'mounted\n' * 2


def pids_of(cluster, job, wait_for):
  """Returns the process ids of both workers, once they have started."""
  wait_for(lambda: len(job.starts) == 2)
  files = [cluster.folder / f'worker{n}' / 'xjax_run' / 'pid' for n in (0, 1)]
  wait_for(lambda: all(file.exists() for file in files))
  return [int(file.read_text()) for file in files]


def reboot(home):
  """Makes the worker look as if it had been set up in another boot."""
  ready = home / 'xjax' / 'ready'
  ready.write_text(f'{ready.read_text().split()[0]} another-boot\n')


@pytest.mark.thorough
def test_what_has_changed_is_set_up_but_not_under_a_run(
  cluster, job, begin, run, wait_for, monkeypatch
):
  job.ends_with(0, 'wait', 0)
  assert run('run.sh', *job.words) == 0
  monkeypatch.setenv('PREPARE', 'true # otherwise')
  process = begin('run.sh', *job.words)
  wait_for(lambda: len(job.starts) == 4)
  once = ['copy', 'start']
  assert changes(cluster) == ['create', *once * 2]
  kill(process)
  looks = len(cluster.calls('worker.sh state'))
  monkeypatch.setenv('PREPARE', 'true # and again')
  process = begin('run.sh', *job.words)
  wait_for(lambda: len(cluster.calls('worker.sh state')) > looks + 1)
  assert changes(cluster) == ['create', *once * 2]
  process.terminate()
  assert process.wait(60) == 75
  assert run('run.sh', *job.words) == 0
  assert changes(cluster) == ['create', *once * 2, 'stop', *once]
