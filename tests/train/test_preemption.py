"""Runs stop at SIGTERM and Ctrl-C, where nothing is lost."""

import os
import signal
import threading

import pytest

from xjax.core.errors import Interrupted
from xjax.train import preemption as module
from xjax.train.preemption import Preempted, Preemption


def ask(number=signal.SIGTERM):
  os.kill(os.getpid(), number)


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


def test_a_second_ctrl_c_leaves_unless_it_is_an_echo(monkeypatch):
  with pytest.raises(Interrupted), Preemption() as preemption:
    with preemption.deferred():
      ask(signal.SIGINT)
      ask(signal.SIGINT)
  monkeypatch.setattr(module, '_ECHO', 0.0)
  with pytest.raises(KeyboardInterrupt) as error, Preemption() as preemption:
    with preemption.deferred():
      for number in (signal.SIGTERM, signal.SIGINT, signal.SIGINT):
        ask(number)
  assert error.type is KeyboardInterrupt


def test_the_signals_of_before_come_back():
  both = signal.SIGTERM, signal.SIGINT
  before = [*map(signal.getsignal, both)]
  with Preemption() as preemption:
    preemption.check()
    for now, then in zip(map(signal.getsignal, both), before):
      assert now != then
  assert [*map(signal.getsignal, both)] == before


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
