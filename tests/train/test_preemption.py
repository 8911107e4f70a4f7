"""Runs stop at SIGTERM and Ctrl-C, where nothing is lost."""

import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

from xjax.core.errors import Interrupted
from xjax.train import preemption as module
from xjax.train.preemption import Preempted, Preemption

ROOT = pathlib.Path(__file__).resolve().parents[2]


def ask(number=signal.SIGTERM):
  os.kill(os.getpid(), number)


def test_raises_where_nothing_needs_saving():
  with pytest.raises(Preempted), Preemption():
    ask()


def test_a_handler_asks_jax_nothing(monkeypatch):
  """JAX holds a lock while it starts its devices, so an answer never comes."""
  with pytest.raises(Preempted), Preemption():
    monkeypatch.delattr(module.jax, 'process_count')
    ask()


def test_deferred_until_the_block_is_left():
  with Preemption() as preemption:
    with pytest.raises(Preempted):
      with preemption.deferred():
        assert not preemption.reached()
        ask()
        assert preemption.reached()
        with pytest.raises(Preempted):
          preemption.check()
    assert preemption.reached()


def test_ctrl_c_is_told_apart_from_sigterm():
  with pytest.raises(Interrupted, match='Ctrl-C; start the run again'):
    with Preemption():
      ask(signal.SIGINT)
  # A caller who knows nothing of runs still sees Ctrl-C.
  assert issubclass(Interrupted, KeyboardInterrupt)
  with pytest.raises(Preempted) as error, Preemption():
    ask(signal.SIGTERM)
  assert not isinstance(error.value, KeyboardInterrupt)


def test_ctrl_c_waits_for_work_to_be_saved(capfd):
  saved = []
  with pytest.raises(Interrupted, match='saved step 3'):
    with Preemption() as preemption, preemption.deferred():
      ask(signal.SIGINT)
      assert preemption.reached()
      shown = ''
      while 'press Ctrl-C again to leave at once' not in shown:
        shown += capfd.readouterr().err
      saved.append(3)
      preemption.leave('saved step 3')
  assert saved == [3]


def test_one_ctrl_c_that_comes_twice_at_once_is_one(monkeypatch):
  monkeypatch.setattr(module.os, '_exit', lambda code: pytest.fail('left'))
  with pytest.raises(Interrupted), Preemption() as preemption:
    with preemption.deferred():
      ask(signal.SIGINT)
      ask(signal.SIGINT)


def test_the_signals_of_before_come_back():
  both = signal.SIGTERM, signal.SIGINT
  before, threads = [*map(signal.getsignal, both)], threading.active_count()
  with Preemption() as preemption:
    preemption.check()
    for now, then in zip(map(signal.getsignal, both), before):
      assert now != then
    assert threading.active_count() == threads + 1
  assert [*map(signal.getsignal, both)] == before
  assert threading.active_count() == threads
  assert signal.set_wakeup_fd(-1) == -1


def test_in_another_thread_no_signal_is_handled():
  def enter():
    with Preemption() as preemption:
      preemption.check()
    left.append(True)

  left = []
  thread = threading.Thread(target=enter)
  thread.start()
  thread.join()
  assert left == [True]


# The main thread waits in C code that runs no signal handlers of Python, as it
# does while XLA compiles.
STUCK = """
import hashlib, os, signal, threading, time
from xjax.train import preemption

preemption._ECHO = 0.0

def press():
  for _ in range(2):
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGINT)

with preemption.Preemption() as stop, stop.deferred():
  threading.Thread(target=press, daemon=True).start()
  hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)
"""


@pytest.mark.thorough
def test_a_second_ctrl_c_leaves_at_once():
  done = subprocess.run(
    [sys.executable, '-c', STUCK],
    env=os.environ | {'PYTHONPATH': str(ROOT)},
    stderr=subprocess.PIPE,
    text=True,
    timeout=60,
  )
  assert done.returncode == 130
  assert done.stderr.splitlines() == [
    'interrupted: saving the run; press Ctrl-C again to leave at once',
    'interrupted again: left without saving',
  ]
