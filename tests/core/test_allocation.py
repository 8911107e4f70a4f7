import os
import platform
import subprocess
import sys

import pytest

from xjax.core.allocation import check_memory, enough_memory
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


def measured():
  answer = subprocess.run(
    [sys.executable, '-c', FAULTS],
    env={k: v for k, v in os.environ.items() if k[:7] != 'MALLOC_'},
    capture_output=True,
    text=True,
    check=True,
  )
  kept, faults = answer.stdout.split()
  return kept == 'True', int(faults)


def test_freed_memory_is_used_again():
  kept, faults = measured()
  assert kept == (platform.libc_ver()[0] == 'glibc')
  # The array has 128 MiB. Pages are 4 KiB, or larger on some systems.
  assert faults < 30 if kept else faults > 30


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
