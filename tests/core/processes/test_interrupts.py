"""Ctrl-C while Python collects garbage."""

import gc
import signal
import time

import pytest

from xjax.core.errors import Preempted
from xjax.core.processes.interrupts import hearing_ctrl_c
from xjax.train.preemption import Preemption


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

  gc.callbacks.append(_xla_gc_callback)
  with pytest.raises(error), context():
    gc.collect()
    time.sleep(20)


def test_another_handler_of_ctrl_c_stays():
  before = signal.signal(signal.SIGINT, signal.SIG_IGN)
  try:
    with hearing_ctrl_c():
      signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
  finally:
    signal.signal(signal.SIGINT, before)
