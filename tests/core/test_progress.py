"""Long work says how far it is, on a terminal and elsewhere."""

import io
import threading
import types

from absl import logging
import pytest

from xjax.core import progress as module
from xjax.core.progress import Progress, progress


class Clock:
  """Time that passes while somebody waits, and no other way."""

  def __init__(self):
    self.now = 0.0
    self.waiting, self.waited = threading.Event(), threading.Semaphore(0)
    self._ended = False

  def monotonic(self):
    return self.now

  def wait(self, seconds):
    """As of an Event; returns after `passes` or `set`."""
    if self._ended:
      return True
    self.waiting.set()
    self.waited.acquire()
    if not self._ended:
      self.now += seconds
    return self._ended

  def set(self):
    self._ended = True
    self.waited.release()

  def passes(self):
    """Until the next line is due, and is written."""
    self.waiting.wait()
    self.waiting.clear()
    self.waited.release()
    self.waiting.wait()


@pytest.fixture
def clock(monkeypatch):
  made = Clock()
  fake = types.SimpleNamespace(Event=lambda: made, Thread=threading.Thread)
  monkeypatch.setattr(module, 'threading', fake)
  clock = types.SimpleNamespace(monotonic=made.monotonic)
  monkeypatch.setattr(module, 'time', clock)
  return made


@pytest.fixture
def lines(caplog):
  before = logging.get_verbosity()
  # First: what caplog restores in the end is the level that it finds now.
  caplog.set_level('INFO', logger='absl')
  logging.set_verbosity(logging.INFO)
  yield lambda: [record.getMessage() for record in caplog.records]
  logging.set_verbosity(before)


def test_a_line_at_least_every_half_minute(clock, lines):
  with Progress('nodes', 5000, done=1000, unit='node') as shown:
    assert not lines()
    clock.passes()
    assert lines() == ['nodes: 1,000 of 5,000 nodes'] and clock.now == 10
    shown.update()
    shown.update(9)
    assert shown.done == 1010
    clock.passes()
    assert lines()[1:] == ['nodes: 1,010 of 5,000 nodes'] and clock.now <= 30
    clock.passes()
    assert len(lines()) == 3 and clock.now <= 60
  assert lines()[3:] == ['nodes: 1,010 of 5,000 nodes; ended after 50 s']


def test_one_long_step(clock, lines):
  with Progress('clustering labels'):
    clock.passes()
    clock.passes()
  assert lines() == [
    'clustering labels: 10 s so far',
    'clustering labels: 30 s so far',
    'clustering labels: 30 s so far; ended after 30 s',
  ]


def test_short_work_says_nothing(lines):
  with Progress('reading'):
    pass
  assert list(progress(iter('abc'), 'letters')) == ['a', 'b', 'c']
  assert not lines()


def test_items_and_how_many_there_are(clock, lines):
  items = progress((x for x in 'abcd'), 'letters', total=4)
  assert next(items) + next(items) + next(items) == 'abc'
  clock.passes()
  assert lines() == ['letters: 2 of 4']  # the third is being worked on
  assert list(items) == ['d']
  assert lines()[1:] == ['letters: 4 of 4; ended after 10 s']


@pytest.mark.parametrize('error', [None, KeyError('x')])
def test_no_thread_is_left(clock, error):
  before = threading.active_count()
  try:
    with Progress('work'):
      assert threading.active_count() == before + 1
      if error:
        raise error
  except KeyError:
    pass
  assert threading.active_count() == before


def test_other_processes_say_nothing(clock):
  before = threading.active_count()
  assert list(progress('ab', 'letters', quiet=True)) == ['a', 'b']
  with Progress('letters', quiet=True):
    assert threading.active_count() == before


class Terminal(io.StringIO):
  def isatty(self):
    return True


def test_a_bar_on_a_terminal(monkeypatch, lines):
  monkeypatch.setattr(module.sys, 'stderr', Terminal())
  with Progress('nodes', 10, done=2) as shown:
    shown.update(3)
    shown._bar.refresh()
    text = module.sys.stderr.getvalue()
  assert 'nodes' in text and '5/10' in text
  with Progress('clustering'):
    pass
  assert 'clustering ...' in module.sys.stderr.getvalue()
  assert not lines()
