import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.sweep.conftest import wait_for
from xjax.sweep.local_process import LocalProcess


def ended(process: LocalProcess) -> int:
  wait_for(lambda: process.poll() is not None)
  return process.poll()


def written(path: pathlib.Path) -> str:
  wait_for(lambda: path.exists() and path.read_text())
  return path.read_text()


def start(folder, script, *words, device='', job=False):
  command = ('/bin/sh', '-c', script, *words)
  return LocalProcess(command, folder / 'a.pid', folder / 'a.txt', device, job)


@pytest.mark.parametrize('code', [0, 1, 75])
def test_says_how_it_ended(tmp_path, code):
  assert ended(start(tmp_path, f'echo out; echo err >&2; exit {code}')) == code
  assert (tmp_path / 'a.txt').read_text() == 'out\nerr\n'
  assert int((tmp_path / 'a.pid').read_text()) > 0


def test_sees_its_device(tmp_path):
  ended(start(tmp_path, 'echo $CUDA_VISIBLE_DEVICES', device='3'))
  assert (tmp_path / 'a.txt').read_text() == '3\n'


def test_is_asked_to_leave(tmp_path):
  process = start(tmp_path, "trap 'exit 75' TERM; echo on; sleep 60 & wait")
  written(tmp_path / 'a.txt')
  process.terminate()
  assert ended(process) == 75
  os.killpg(int((tmp_path / 'a.pid').read_text()), signal.SIGKILL)  # its sleep


# This program starts a process as a sweep does, and is then killed.
PARENT = """
import pathlib, sys, time
from xjax.sweep.local_process import LocalProcess
folder = pathlib.Path(sys.argv[1])
LocalProcess(
  ('/bin/sh', '-c', 'trap "echo left; exit 75" TERM; echo on; '
   'while :; do sleep 0.1; done'),
  folder / 'a.pid', folder / 'a.txt')
time.sleep(60)
"""


def test_kills_what_does_not_leave(tmp_path):
  stubborn = "trap '' TERM; echo $0; while :; do sleep 0.1; done"
  first = start(tmp_path, stubborn, 'on')
  written(tmp_path / 'a.txt')
  first.terminate()
  first.kill()
  assert first.poll() == -signal.SIGKILL
  first = start(tmp_path, stubborn, 'again')
  log = tmp_path / 'a.txt'
  wait_for(lambda: first.poll() is None and 'again' in log.read_text())
  # A killed sweep left the first process; the next process waits for it.
  second = start(tmp_path, 'echo never')
  second.kill()
  assert ended(first) == -signal.SIGKILL and ended(second) == 0
  assert log.read_text() == 'on\nagain\n'


def test_outlives_a_killed_parent_and_makes_room(tmp_path):
  parent = subprocess.Popen([sys.executable, '-c', PARENT, str(tmp_path)])
  log = tmp_path / 'a.txt'
  written(log)
  parent.kill()
  parent.wait()
  orphan = int((tmp_path / 'a.pid').read_text())
  os.kill(orphan, 0)  # the process is alive
  process = start(tmp_path, 'echo next')
  assert ended(process) == 0
  assert log.read_text() == 'on\nleft\nnext\n'


def test_need_not_start_when_asked_to_leave_before(tmp_path):
  first = start(tmp_path, "trap 'exit 75' TERM; echo on; sleep 0.2 & wait")
  written(tmp_path / 'a.txt')
  second = start(tmp_path, 'echo never')
  second.terminate()
  assert ended(first) == 75 and ended(second) == 0
  assert (tmp_path / 'a.txt').read_text() == 'on\n'


def test_an_orphan_that_only_awaits_a_job_is_killed(tmp_path):
  orphan = start(tmp_path, 'echo on; sleep 60', job=True)
  written(tmp_path / 'a.txt')
  assert ended(start(tmp_path, 'echo next', job=True)) == 0
  assert ended(orphan) == -signal.SIGKILL
