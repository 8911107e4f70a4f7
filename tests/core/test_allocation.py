import os
import platform
import subprocess
import sys
import types

import pytest

from xjax.core.allocation import check_memory, enough_memory, keep_freed_memory
from xjax.core.errors import ConfigError, UserError

# Prints the page faults of a large array that replaces one freed before.
FAULTS = """
import resource, sys
import numpy as np
from xjax.core.allocation import keep_freed_memory
kept = keep_freed_memory()
def faults():
  before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
  np.ones(2**24)
  return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(kept, min(faults() for _ in range(3)))
"""


def measured(**environment):
  answer = subprocess.run(
    [sys.executable, '-c', FAULTS],
    env={k: v for k, v in os.environ.items() if k[:7] != 'MALLOC_'}
    | environment,
    capture_output=True,
    text=True,
    check=True,
  )
  kept, faults = answer.stdout.split()
  return kept == 'True', int(faults)


@pytest.mark.parametrize('chosen', [{}, {'MALLOC_ARENA_MAX': '2'}])
def test_freed_memory_is_used_again(chosen):
  kept, faults = measured(**chosen)
  assert kept == (not chosen and platform.libc_ver()[0] == 'glibc')
  # The array has 128 MiB. Pages are 4 KiB, or larger on some systems.
  assert faults < 30 if kept else faults > 30


@pytest.mark.parametrize(('cores', 'arenas'), [(2, [1]), (16, [])])
def test_threads_share_one_arena_where_that_was_measured(
  monkeypatch, cores, arenas
):
  asked = []
  library = types.SimpleNamespace(mallopt=lambda *pair: asked.append(pair) or 1)
  monkeypatch.setattr('ctypes.CDLL', lambda name: library)
  monkeypatch.setattr('platform.libc_ver', lambda: ('glibc', '2.36'))
  monkeypatch.setattr('os.sched_getaffinity', lambda pid: set(range(cores)))
  for name in [name for name in os.environ if name.startswith('MALLOC_')]:
    monkeypatch.delenv(name)
  assert keep_freed_memory()
  arena = -8  # M_ARENA_MAX
  assert [value for name, value in asked if name == arena] == arenas


def test_what_no_memory_can_hold_is_refused_before_it_is_made():
  check_memory(1000, 'few lists', 'nothing')
  with pytest.raises(ConfigError, match='^lists: needs 9,313.2 GiB of memory'):
    check_memory(10**13, 'lists', 'choose fewer')


@pytest.mark.parametrize(
  'error',
  [
    MemoryError(),
    RuntimeError('RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nx'),
  ],
)
def test_full_memory_is_one_error(error):
  with pytest.raises(UserError, match='^the memory is full: choose less'):
    with enough_memory('choose less'):
      raise error


def test_other_errors_of_a_backend_stay():
  with pytest.raises(RuntimeError, match='^INTERNAL'):
    with enough_memory('choose less'):
      raise RuntimeError('INTERNAL: a fault')
