"""Flags of several processes: what goes together, and what is found."""

import subprocess
import sys

import jax
import pytest

from xjax.core.errors import ConfigError
from xjax.core.processes import connection
from xjax.core.processes.connection import start


@pytest.fixture
def joined(monkeypatch):
  """The arguments that JAX was given."""
  calls = []
  monkeypatch.setattr(
    jax.distributed, 'initialize', lambda *a, **k: calls.append(a)
  )
  monkeypatch.setattr(connection, '_watch_errors', lambda *a: None)
  return calls


def test_who_is_joined(joined):
  start(False)
  assert joined == []
  start(True)
  start(True, 'host:1', 2, 1)
  assert joined == [(), ('host:1', 2, 1)]


@pytest.mark.parametrize(
  'flags',
  [
    (False, 'host:1', 2, 1),
    (False, '', 0, 0),
    (True, 'host:1', 2, -1),
    (True, 'host:1', 2, 2),
    (True, '', 2, 1),
    (True, '', 0, 0),
  ],
)
def test_flags_that_need_others(joined, flags):
  with pytest.raises(ConfigError, match='must be given together, with --mul'):
    start(*flags)
  assert joined == []


def test_nobody_to_be_found():
  program = (
    'from xjax.core.processes.connection import start\n'
    'from xjax.core.errors import ConfigError\n'
    'try:\n'
    '  start(True)\n'
    'except ConfigError as error:\n'
    '  print(error)\n'
  )
  done = subprocess.run(
    [sys.executable, '-c', program], capture_output=True, text=True, check=True
  )
  assert done.stdout.startswith(
    '--multihost: the other processes are not found'
  )
  assert '--coordinator=ADDRESS:PORT' in done.stdout
