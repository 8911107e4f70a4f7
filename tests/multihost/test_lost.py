"""Processes that lose another process end soon, and can be started again."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

SCRIPT = pathlib.Path(__file__).with_name('lost_process.py')
# 134: JAX ends the process before xjax does.
LOST = 75, -signal.SIGABRT


@pytest.fixture
def run(free_port):
  """Runs process 0, 1 or both, until one of them has ended well or badly."""

  def start(what, processes=(0, 1)):
    running = [
      subprocess.Popen(
        [sys.executable, SCRIPT, str(free_port), str(process), what],
        env=os.environ | {'PYTHONPATH': str(SCRIPT.parents[2])},
        stdout=subprocess.DEVNULL,  # gloo greets
        stderr=subprocess.PIPE,
        text=True,
      )
      for process in processes
    ]
    try:
      until = time.monotonic() + 100
      frozen = 'frozen' in what
      while sum(p.poll() is None for p in running) > frozen:
        assert time.monotonic() < until, 'it hangs'
        time.sleep(0.1)
    finally:
      for process in running:
        process.kill()
    texts = [process.communicate()[1] for process in running]
    return [
      (p.returncode, text) for p, text in zip(running, texts, strict=True)
    ]

  return start


def test_processes_that_end_well_say_nothing(run):
  assert run('nothing') == [(0, ''), (0, '')]


@pytest.mark.thorough
@pytest.mark.parametrize(('lost', 'how'), [(0, 'killed'), (1, 'frozen')])
def test_who_has_lost_a_process_ends(run, lost, how):
  code, text = run(f'{lost} is {how}')[1 - lost]
  assert code in LOST and ('was lost' in text or 'fatal errors' in text)


@pytest.mark.thorough
def test_who_waits_in_vain_ends(run):
  ((code, text),) = run('never joins', [1])
  assert code in LOST and 'DEADLINE_EXCEEDED' in text


@pytest.mark.thorough
def test_the_error_of_one_process_ends_all(run):
  ends = run('1 has an error')
  assert ends[1] == (1, 'error: the file is damaged\n')
  code, text = ends[0]
  assert code == 1
  assert text.endswith('error: process 1: the file is damaged\n')


@pytest.mark.thorough
def test_a_bug_in_one_process_ends_all(run):
  ends = run('1 has a bug')
  assert [code for code, _ in ends] == [1, 1]
  assert 'Traceback' in ends[1][1] and 'bug' in ends[0][1]
