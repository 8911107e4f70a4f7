"""Long work says how far it is, on a terminal and elsewhere."""

import io
import threading
import time
import types

from absl import logging
import pytest

from xjax.core import progress as module
from xjax.core.progress import Heartbeat, Progress, progress


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
    until = self.now + seconds
    self.waiting.set()
    self.waited.acquire()
    if not self._ended:
      self.now = max(self.now, until)
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


def test_a_line_at_least_every_ten_seconds(clock, lines):
  with Progress('nodes', 5000, done=1000, unit='node') as shown:
    assert not lines()
    clock.passes()
    assert lines() == ['nodes: 1,000 of 5,000 nodes'] and clock.now == 10
    shown.update()
    shown.update(9)
    assert shown.done == 1010
    clock.passes()
    assert lines()[1:] == ['nodes: 1,010 of 5,000 nodes'] and clock.now == 20
    clock.passes()
    assert len(lines()) == 3 and clock.now == 30
  assert lines()[3:] == ['nodes: 1,010 of 5,000 nodes; ended after 30 s']


def test_a_line_that_is_said_delays_the_next(clock, lines):
  with Progress('training', 9, unit='batch') as shown:
    clock.passes()
    clock.now += 5
    shown.say('step 1: loss 0.5')
    clock.passes()  # it was to come here
    clock.passes()
    assert lines() == [
      'training: 0 of 9 batches',
      'step 1: loss 0.5',
      'training: 0 of 9 batches',
    ]
    assert clock.now == 25


@pytest.fixture
def impatient(monkeypatch):
  """A line is due after a hundredth of a second."""
  monkeypatch.setattr(module, '_SILENCE', 0.01)
  monkeypatch.setattr(module, '_LOOK', 0.01)


def wait_for(count, lines):
  while len(lines()) < count:
    time.sleep(0.001)


def test_only_the_innermost_work_is_told(impatient, lines):
  with Heartbeat('xjax train'):
    wait_for(1, lines)
    with Progress('reading', 7):
      outer = len(lines())
      wait_for(outer + 5, lines)
      inner = len(lines())
    wait_for(inner + 3, lines)
  assert all(line.startswith('xjax train: ') for line in lines()[:outer])
  assert set(lines()[outer:inner]) == {'reading: 0 of 7'}
  assert lines()[-1].startswith('xjax train: ')


def test_a_terminal_has_lines_where_there_is_no_bar(
  impatient, monkeypatch, lines
):
  monkeypatch.setattr(module.sys, 'stderr', Terminal())
  with Heartbeat('xjax train'):
    wait_for(1, lines)
    with Progress('reading'):
      begun = len(lines())
      time.sleep(0.05)
      assert len(lines()) == begun  # the bar is on the screen
    assert 'reading ...' in module.sys.stderr.getvalue()
    wait_for(begun + 1, lines)
  assert all(line.startswith('xjax train: ') for line in lines())


def test_items_and_how_many_there_are(clock, lines):
  with progress((x for x in 'abcd'), 'letters', total=4) as items:
    assert next(items) + next(items) + next(items) == 'abc'
    clock.passes()
    assert lines() == ['letters: 2 of 4']  # the third is being worked on
    assert list(items) == ['d']


def test_other_processes_say_nothing(clock, lines, monkeypatch):
  monkeypatch.setattr('jax.distributed.is_initialized', lambda: True)
  monkeypatch.setattr('jax.process_index', lambda: 1)
  before = threading.active_count()
  with Progress('letters') as shown:
    assert threading.active_count() == before
    shown.say('a line')
  assert not lines()


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
  assert not lines()
