import os
import platform
import subprocess
import sys
import types

import pytest

from xjax.commands.flags.allocation import keep_freed_memory

# Prints the page faults of a large array that replaces one freed before.
FAULTS = """
import resource, sys
import numpy as np
from xjax.commands.flags.allocation import keep_freed_memory
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
