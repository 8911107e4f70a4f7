"""Signals while Python collects garbage or logs."""

import gc
import logging
import signal
import sys
import threading
import time
import weakref

import pytest

from xjax.core.errors import Interrupted, Preempted
from xjax.core.processes.interrupts import hearing_ctrl_c
from xjax.train.preemption import Preemption


@pytest.fixture(autouse=True)
def python_hears_ctrl_c():
  """The processes that run tests side by side ignore SIGINT by default."""
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, before)


CONTEXTS = [
  (hearing_ctrl_c, signal.SIGINT, KeyboardInterrupt),
  (Preemption, signal.SIGTERM, Preempted),
  (Preemption, signal.SIGINT, Interrupted),
]


class Signalling:
  """Sends this process a signal when it is deleted."""

  def __init__(self, number):
    self.number = number

  def __del__(self):
    signal.raise_signal(self.number)


def in_a_callback_of_the_collector(number):
  def callback(*_):
    gc.callbacks.remove(callback)
    signal.raise_signal(number)

  gc.callbacks.append(callback)
  gc.collect()
  time.sleep(20)


def in_a_callback_of_a_weak_reference(number):
  class Referred:
    pass

  referred = Referred()
  reference = weakref.ref(referred, lambda _: signal.raise_signal(number))
  try:
    del referred
    time.sleep(20)
  finally:
    assert reference() is None


def in_a_destructor(number):
  Signalling(number)
  time.sleep(20)


@pytest.mark.parametrize(
  'send',
  [
    in_a_callback_of_the_collector,
    in_a_callback_of_a_weak_reference,
    in_a_destructor,
    Signalling,  # the context is left at once
  ],
)
@pytest.mark.parametrize(('context', 'number', 'error'), CONTEXTS)
def test_a_signal_is_heard(context, number, error, send):
  with pytest.raises(error), context():
    send(number)


@pytest.mark.parametrize(('context', 'number', 'error'), CONTEXTS)
def test_a_signal_is_heard_if_it_comes_again_too_early(
  context, number, error, monkeypatch
):
  start = threading.Thread.start

  def start_slowly(thread):
    start(thread)
    time.sleep(0.2)  # on a busy machine, the thread is faster

  monkeypatch.setattr(threading.Thread, 'start', start_slowly)
  with pytest.raises(error), context():
    in_a_destructor(number)


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_not_heard_after_its_context(number):
  def never(*_):
    raise AssertionError

  before = signal.signal(number, never)
  try:
    with pytest.raises((Preempted, Interrupted)), Preemption() as preemption:
      Signalling(number)
      preemption.check()
    time.sleep(0.1)
  finally:
    signal.signal(number, before)


def test_a_signal_in_a_destructor_does_not_break_off_a_save(monkeypatch):
  monkeypatch.setattr('xjax.train.preemption._is_interactive', lambda: True)
  is_saved = False
  with pytest.raises(Interrupted), Preemption() as preemption:
    Signalling(signal.SIGINT)
    with preemption.deferred():
      time.sleep(0.1)
      is_saved = True
  assert is_saved


def test_other_ignored_exceptions_are_shown(capsys, monkeypatch):
  monkeypatch.setattr(sys, 'unraisablehook', sys.__unraisablehook__)

  class Raising:
    def __del__(self):
      raise ValueError('in a destructor')

  with hearing_ctrl_c():
    Raising()
  assert 'ValueError: in a destructor' in capsys.readouterr().err
  assert sys.unraisablehook is sys.__unraisablehook__


# After half a second, a second Ctrl-C would count.
@pytest.mark.parametrize(('seconds', 'more'), [(0, 20), (0.6, 0)])
def test_one_ctrl_c_is_heard_while_a_message_is_logged(capsys, seconds, more):
  class Stream:
    def write(self, text):
      del text
      signal.raise_signal(signal.SIGINT)
      time.sleep(seconds)

  handler = logging.StreamHandler(Stream())
  with pytest.raises(Interrupted, match='Ctrl-C'), Preemption():
    handler.handle(logging.makeLogRecord({'msg': 'message'}))
    time.sleep(more)
  assert 'Traceback' not in capsys.readouterr().err


def test_only_the_emit_of_logging_delays_a_signal():
  def emit():
    signal.raise_signal(signal.SIGINT)
    time.sleep(20)

  with pytest.raises(Interrupted, match='Ctrl-C'), Preemption():
    emit()


def test_another_handler_of_ctrl_c_stays():
  before = signal.signal(signal.SIGINT, signal.SIG_IGN)
  try:
    with hearing_ctrl_c():
      signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
  finally:
    signal.signal(signal.SIGINT, before)
