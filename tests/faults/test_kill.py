"""Runs that are killed, asked to stop or damaged, and started again."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.faults.attacked_commands import environment, neural
from xjax.models.config_json import to_json
from xjax.train.checkpoint import read_params
from xjax.train.saved_steps import intact_steps, read_meta
from xjax.train.writers import CLOCK_FIELDS

pytestmark = pytest.mark.thorough

PROCESS = pathlib.Path(__file__).parents[1] / 'run' / 'fit_process.py'
STEPS = 60
KILLS = 10
PREEMPTED, INTERRUPTED = 75, 130


@pytest.fixture(scope='module')
def start(tmp_path_factory):
  folder = tmp_path_factory.mktemp('config')
  # Judgings and checkpoints are out of step.
  config = to_json(neural(STEPS, judge_every=10))
  (folder / 'config.json').write_text(json.dumps(config))

  def begin(workdir):
    return subprocess.Popen(
      [sys.executable, PROCESS, folder / 'config.json', workdir],
      env={**os.environ, **environment(folder)},
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )

  return begin


@pytest.fixture(scope='module')
def whole(start, tmp_path_factory):
  """A run that nothing happened to."""
  workdir = tmp_path_factory.mktemp('whole') / 'run'
  finish(start(workdir))
  return workdir


def finish(process):
  output, _ = process.communicate(timeout=120)
  assert process.returncode == 0, output
  return output


def records(workdir):
  """All records but their clocks; of a file being written, the whole lines."""
  path = workdir / 'metrics.jsonl'
  lines = path.read_text().splitlines(True) if path.exists() else []
  found = [json.loads(line) for line in lines if line.endswith('\n')]
  for record in found:
    for name in CLOCK_FIELDS:
      record.pop(name, None)
  return found


def step_of(workdir):
  return max((record['step'] for record in records(workdir)), default=0)


def writing(workdir):
  """Steps whose checkpoint is being written."""
  return {path.name for path in workdir.glob('checkpoints/*.orbax*')}


def kill(process):
  process.kill()
  process.communicate()
  return process.returncode == -signal.SIGKILL


def wait_until(process, happens):
  while process.poll() is None and not happens():
    time.sleep(0.0005)


def wait_for_step(process, workdir, step):
  wait_until(process, lambda: step_of(workdir) >= step)


def assert_same_params(workdir, whole, step):
  found, expected = (
    read_params(w / 'checkpoints', step) for w in (workdir, whole)
  )
  assert found.keys() == expected.keys()
  for name in expected:
    np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def assert_same(workdir, whole):
  """Bitwise: parameters of every checkpoint left, records, judged lists."""
  assert records(workdir) == records(whole)
  steps = intact_steps(whole / 'checkpoints')
  assert intact_steps(workdir / 'checkpoints') == steps
  assert steps[-1] == STEPS
  for step in steps:
    assert_same_params(workdir, whole, step)
    assert read_meta(workdir / 'checkpoints', step) == read_meta(
      whole / 'checkpoints', step
    )
  for path in (
    *('eval/dev/metrics.json', 'eval/dev/predictions.npz'),
    *('eval/test/metrics.json', 'eval/test/predictions.npz'),
    'calibration.json',
  ):
    assert (workdir / path).read_bytes() == (whole / path).read_bytes()


def test_killed_at_random_moments(start, whole, tmp_path):
  rng = random.Random(os.environ.get('XJAX_KILL_SEED', 0))
  workdir = tmp_path / 'run'
  killed, during_checkpoint = 0, 0
  for number in range(KILLS):
    # On from where it was, but not so far that the next ones have no room.
    step = min(step_of(workdir) + 1, STEPS * (number + 1) // (KILLS + 2))
    process = start(workdir)
    wait_for_step(process, workdir, step)
    if number % 2:
      wait_until(process, lambda: writing(workdir))
      time.sleep(rng.random() * 0.01)
    else:
      time.sleep(rng.random() * 0.05)
    killed += kill(process)
    during_checkpoint += bool(writing(workdir))
  assert killed == KILLS
  assert during_checkpoint >= 1
  finish(start(workdir))
  assert writing(workdir) == set()
  assert_same(workdir, whole)


def test_asked_to_leave_it_saves_and_says_how_it_ended(start, whole, tmp_path):
  workdir = tmp_path / 'run'
  for step, asked, code in (
    (0, signal.SIGTERM, PREEMPTED),  # before training
    (7, signal.SIGTERM, PREEMPTED),
    (20, signal.SIGINT, INTERRUPTED),
  ):
    process = start(workdir)
    wait_until(process, (workdir / 'config.json').exists)
    wait_for_step(process, workdir, step)
    process.send_signal(asked)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == code, output
    assert 'Traceback' not in output
    if step:  # nothing is lost: the checkpoint is of the step it stopped at
      (*_, saved) = intact_steps(workdir / 'checkpoints')
      assert STEPS > saved >= step_of(workdir)
  finish(start(workdir))
  assert records(workdir) == records(whole)
  assert_same_params(workdir, whole, STEPS)


def test_truncated_newest_checkpoint(start, whole, tmp_path):
  workdir = tmp_path / 'run'
  process = start(workdir)
  wait_for_step(process, workdir, 30)
  assert kill(process)
  folder = workdir / 'checkpoints'
  *_, before, newest = intact_steps(folder)
  params = (folder / str(newest) / 'params').rglob('*')
  largest = max(params, key=lambda path: path.stat().st_size)
  os.truncate(largest, largest.stat().st_size // 2)
  output = finish(start(workdir))
  assert f'checkpoints/{newest} is damaged' in output
  assert f'resuming at step {before} of {STEPS}' in output
  assert_same(workdir, whole)
