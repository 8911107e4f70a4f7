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
  for name in ('_replace_crash_report', '_watch_errors'):
    monkeypatch.setattr(connection, name, lambda *a: lambda: None)
  return calls


def test_one_process_joins_nobody(joined):
  start(False)
  assert joined == []


def test_who_is_joined(joined):
  start(True)
  start(True, 'host:1', 2, 1)
  assert joined == [(), ('host:1', 2, 1)]


@pytest.mark.parametrize(
  ('flags', 'name'),
  [
    (('host:1', 0, -1), '--coordinator'),
    (('', 2, -1), '--num_processes'),
    (('', 0, 0), '--process_id'),
  ],
)
def test_flags_that_would_be_ignored(joined, flags, name):
  with pytest.raises(ConfigError, match=f'{name} needs --multihost'):
    start(False, *flags)


@pytest.mark.parametrize(
  'flags',
  [
    ('host:1', 0, -1),
    ('host:1', 2, -1),
    ('host:1', 2, 2),
    ('host:1', 0, 0),
    ('', 2, -1),
    ('', 2, 1),
    ('', 0, 0),
  ],
)
def test_flags_that_need_others(joined, flags):
  with pytest.raises(ConfigError, match='must be given together'):
    start(True, *flags)
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
