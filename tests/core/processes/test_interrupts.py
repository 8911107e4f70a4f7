"""Signals while Python collects garbage or logs."""

import gc
import logging
import signal
import time

import pytest

from xjax.core.errors import Interrupted, Preempted
from xjax.core.processes import interrupts
from xjax.core.processes.interrupts import hearing_ctrl_c
from xjax.train.preemption import Preemption


@pytest.fixture(autouse=True)
def python_hears_ctrl_c():
  """The processes that run tests side by side ignore SIGINT by default."""
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
  ('context', 'number', 'error'),
  [
    (hearing_ctrl_c, signal.SIGINT, KeyboardInterrupt),
    (Preemption, signal.SIGTERM, Preempted),
  ],
)
def test_a_signal_is_heard_where_exceptions_are_ignored(context, number, error):
  def _xla_gc_callback(*_):  # JAX's own callback has this name
    gc.callbacks.remove(_xla_gc_callback)
    signal.raise_signal(number)

  others = gc.callbacks[:]
  gc.callbacks[:] = [_xla_gc_callback]  # a library of the tests has one too
  try:
    with pytest.raises(error), context():
      gc.collect()
      time.sleep(20)
  finally:
    gc.callbacks[:] = others


def test_a_signal_is_heard_while_a_message_is_logged(capsys):
  class Stream:
    def write(self, text):
      del text
      signal.raise_signal(signal.SIGINT)

  handler = logging.StreamHandler(Stream())
  with pytest.raises(Interrupted), Preemption():
    handler.handle(logging.makeLogRecord({'msg': 'message'}))
    time.sleep(20)
  assert 'Traceback' not in capsys.readouterr().err


def test_only_the_emit_of_logging_delays_a_signal():
  def emit():
    signal.raise_signal(signal.SIGINT)
    time.sleep(20)

  with pytest.raises(KeyboardInterrupt), hearing_ctrl_c():
    emit()


def test_a_long_destructor_does_not_make_ctrl_c_unheard(monkeypatch):
  monkeypatch.setattr(interrupts, '_LONGEST', 0.1)

  def __del__():
    signal.raise_signal(signal.SIGINT)
    time.sleep(20)

  with pytest.raises(KeyboardInterrupt), hearing_ctrl_c():
    __del__()


def test_another_handler_of_ctrl_c_stays():
  before = signal.signal(signal.SIGINT, signal.SIG_IGN)
  try:
    with hearing_ctrl_c():
      signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
  finally:
    signal.signal(signal.SIGINT, before)
