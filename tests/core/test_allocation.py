import os
import platform
import subprocess
import sys

import pytest

# Page faults of a large array that takes the place of one freed before.
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
  # Of 128 MiB; pages are 4 KiB, or larger where the system has such.
  assert faults < 30 if kept else faults > 30
