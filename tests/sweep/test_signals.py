import os
import signal

import pytest

from xjax.sweep import signals
from xjax.sweep.signals import Signals
from xjax.train.preemption import Preempted


def test_a_second_signal_is_urgent_an_echo_is_not(monkeypatch):
  with Signals() as seen:
    assert not seen.noticed
    os.kill(os.getpid(), signal.SIGTERM)
    assert seen.noticed
    os.kill(os.getpid(), signal.SIGTERM)
    assert not seen.urgent
    with pytest.raises(Preempted, match='have saved'):
      seen.leave()
    monkeypatch.setattr(signals, '_ECHO', 0)
    os.kill(os.getpid(), signal.SIGINT)
    assert seen.urgent
    with pytest.raises(Preempted, match='^not all trials have saved'):
      seen.leave()


def test_ctrl_c_leaves_as_ctrl_c():
  before = signal.getsignal(signal.SIGINT)
  with Signals() as seen:
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
      seen.leave()
  assert signal.getsignal(signal.SIGINT) is before
