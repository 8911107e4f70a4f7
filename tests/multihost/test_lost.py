"""Processes that lose another process end soon, with one line."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

SCRIPT = pathlib.Path(__file__).with_name('lost_process.py')
LOST = 'error: another process of the run was lost (killed'


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
def test_a_lost_process_is_one_line_and_75(run, lost, how):
  code, text = run(f'{lost} is {how}')[1 - lost]
  *log, line = text.splitlines()
  assert code == 75 and line.startswith(LOST)
  assert log in ([], ['a collective has failed; waiting to hear who is lost'])


@pytest.mark.thorough
def test_who_does_not_join_is_one_line_and_75(run):
  ((code, text),) = run('never joins', [1])
  *log, line = text.splitlines()
  assert code == 75
  assert line.startswith('error: not all processes of the run have joined')
  assert all(line.startswith('waiting ') for line in log) and len(log) == 2


@pytest.mark.thorough
def test_the_error_of_one_process_ends_all(run):
  ends = run('1 has an error')
  assert ends[1] == (1, 'error: the file is damaged\n')
  code, text = ends[0]
  assert code == 1
  assert text.endswith('error: process 1: the file is damaged\n')
  assert len(text.splitlines()) <= 2


@pytest.mark.thorough
def test_a_bug_in_one_process_ends_all(run):
  ends = run('1 has a bug')
  assert [code for code, _ in ends] == [1, 1]
  assert 'Traceback' in ends[1][1] and 'Traceback' not in ends[0][1]
