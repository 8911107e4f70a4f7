"""create, setup, run, logs and delete, beside a gcloud that notes its calls."""

import json
import os
import signal

import pytest

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
  """The calls that change something."""
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


@pytest.mark.parametrize('state', ['SUSPENDED', 'FAILED'])
def test_create_makes_what_is_lost_anew(state, cluster, plan, run):
  (cluster.folder / 'states').write_text(state)
  plan(['PROVISIONING', 'ACTIVE'])
  assert run('create.sh') == 0
  assert changes(cluster) == ['delete', 'create']
  assert cluster.calls('delete') == [DELETE]


def test_create_does_not_insist_on_the_impossible(cluster, plan, run, said):
  plan(['WAITING_FOR_RESOURCES', 'FAILED'])
  assert run('create.sh') == 1
  assert changes(cluster) == ['create']
  assert said().splitlines()[-1] == (
    'error: tpu: the TPU VM could not be created'
  )


def test_delete_takes_the_node_with_it_and_may_come_twice(cluster, run):
  (cluster.folder / 'states').write_text('ACTIVE')
  assert run('delete.sh') == 0
  assert cluster.calls('delete') == [DELETE]
  assert run('delete.sh') == 0
  assert cluster.calls('delete') == [DELETE]


def test_setup_installs_on_all_workers_and_may_come_twice(
  cluster, run, monkeypatch
):
  monkeypatch.setenv('PREPARE', 'echo mounted >> mounts')
  assert run('create.sh') == 0
  for _ in range(2):
    assert run('setup.sh') == 0
  for worker in ('worker0', 'worker1'):
    home = cluster.folder / worker
    assert (home / 'xjax' / 'xjax' / 'train' / 'fit.py').exists()
    assert (home / 'xjax' / 'setup.py').exists()
    assert (home / 'xjax' / '.venv' / 'bin' / 'python').exists()
    assert (home / 'mounts').read_text() == 'mounted\n' * 2
    assert (home / 'xjax' / 'ready').exists()


def test_setup_that_fails_is_not_ready(cluster, run, monkeypatch):
  monkeypatch.setenv('PREPARE', 'false')
  assert run('create.sh') == 0
  assert run('setup.sh') != 0
  assert not (cluster.folder / 'worker0' / 'xjax' / 'ready').exists()


@pytest.mark.parametrize(
  ('codes', 'code', 'times'),
  [((75, 143, 0), 0, 3), ((75, 1, 0), 1, 2)],
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


def test_run_again_finds_it_done(cluster, job, run):
  job.ends_with(0, 0)
  assert run('run.sh', *job.words) == 0
  assert run('run.sh', *job.words) == 0
  assert changes(cluster) == ['create', 'copy', 'start', 'start']


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


def test_run_comes_back_to_what_goes_on(
  cluster, job, begin, run, said, wait_for
):
  job.ends_with('wait', 0)
  first = begin('run.sh', *job.words)
  wait_for(lambda: len(job.starts) == 2)
  os.killpg(first.pid, signal.SIGKILL)
  first.wait()
  second = begin('run.sh', *job.words)
  wait_for(lambda: len(cluster.calls('worker.sh start')) == 2)
  states = len(cluster.calls('worker.sh state'))
  wait_for(lambda: len(cluster.calls('worker.sh state')) > states)
  assert len(job.starts) == 2
  # Another command has to wait until this one has ended.
  assert run('run.sh', 'true') == 1
  assert 'error: another command is at work here: bash' in said()
  assert second.poll() is None
  # As the system asks the processes themselves, say.
  for worker in ('worker0', 'worker1'):
    pid = (cluster.folder / worker / 'xjax_run' / 'pid').read_text()
    os.kill(int(pid), signal.SIGTERM)
  assert second.wait(60) == 0
  assert len(job.starts) == 4


def test_run_is_left_by_a_key_and_asked_to_leave_lets_it_save(
  cluster, job, begin, said, wait_for, monkeypatch
):
  job.ends_with('wait', 0)
  process = begin('run.sh', *job.words)
  wait_for(lambda: len(job.starts) == 2)
  process.send_signal(signal.SIGINT)
  assert process.wait(60) == 130
  assert 'the same command comes back to the run' in said()
  monkeypatch.setenv('DELETE', '1')
  process = begin('run.sh', *job.words)
  wait_for(lambda: len(cluster.calls('worker.sh start')) == 2)
  process.terminate()
  assert process.wait(60) == 75
  assert ': exit 75' in said()
  assert changes(cluster)[-2:] == ['stop', 'delete']
  assert len(job.starts) == 2
  assert not (cluster.folder / 'states').exists()


def test_run_asked_to_leave_before_there_is_a_vm(
  cluster, plan, job, begin, wait_for, monkeypatch
):
  monkeypatch.setenv('DELETE', '1')
  plan(['WAITING_FOR_RESOURCES'])
  process = begin('run.sh', *job.words)
  wait_for(lambda: len(cluster.calls('describe')) > 3)
  process.terminate()
  assert process.wait(60) == 75
  assert changes(cluster) == ['create', 'delete']


def test_run_makes_no_other_of_a_vm_that_was_deleted(
  cluster, job, begin, run, said, wait_for
):
  job.ends_with('wait')
  process = begin('run.sh', *job.words)
  wait_for(lambda: len(job.starts) == 2)
  assert run('delete.sh') == 0
  assert process.wait(60) == 1
  assert 'error: tpu: the TPU VM was deleted' in said().splitlines()
  assert changes(cluster)[-1] == 'delete'


def test_a_worker_that_started_anew_stops_the_others(
  cluster, job, begin, wait_for
):
  job.ends_with('wait', 0)
  process = begin('run.sh', *job.words)
  wait_for(lambda: len(job.starts) == 2)
  folder = cluster.folder / 'worker1' / 'xjax_run'
  wait_for((folder / 'pid').exists)
  os.killpg(os.getpgid(int((folder / 'pid').read_text())), signal.SIGKILL)
  assert process.wait(60) == 0
  assert changes(cluster)[2:] == ['start', 'stop', 'start']


def test_logs_are_followed(job, run, begin, said, wait_for):
  job.ends_with(0)
  assert run('run.sh', *job.words) == 0
  process = begin('logs.sh')
  wait_for(lambda: 'out 0' in said())
  os.killpg(process.pid, signal.SIGTERM)
  assert process.wait(60)
