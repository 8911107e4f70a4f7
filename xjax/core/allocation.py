"""What the C library does with memory that is freed."""

import ctypes
import os
import platform

# Parameters of glibc's mallopt, and what they are set to: one arena, no arrays
# in mappings of their own, nothing given back, and 64 MiB more at a time.
_MALLOPT = {-8: 1, -4: 0, -1: -1, -2: 64 << 20}


def keep_freed_memory() -> bool:
  """Has the C library keep freed memory for the arrays that come next.

  Large arrays otherwise go back to the system when they are freed, which must
  clear new pages for the next ones: on CPUs a quarter of a training step and
  more. The process grows to its peak and stays there. Call it first of all.

  Returns:
    Whether it does now: with glibc, unless the environment has MALLOC_*, which
    is left as the user has it.
  """
  chosen = any(name.startswith('MALLOC_') for name in os.environ)
  if chosen or platform.libc_ver()[0] != 'glibc':
    return False
  mallopt = ctypes.CDLL(None).mallopt
  # Each by itself, whatever became of the one before.
  done = [mallopt(name, value) for name, value in _MALLOPT.items()]
  return all(done)
