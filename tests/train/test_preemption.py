import os
import signal

import pytest

from xjax.train.preemption import Preempted, Preemption


def ask():
  os.kill(os.getpid(), signal.SIGTERM)


def test_raises_where_nothing_needs_saving():
  with pytest.raises(Preempted), Preemption():
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


def test_an_error_inside_is_not_hidden():
  with Preemption() as preemption, pytest.raises(KeyError):
    with preemption.deferred():
      ask()
      raise KeyError


def test_the_handler_of_before_comes_back():
  before = signal.getsignal(signal.SIGTERM)
  with Preemption() as preemption:
    preemption.check()
    assert signal.getsignal(signal.SIGTERM) != before
  assert signal.getsignal(signal.SIGTERM) == before
