"""Makes the C library keep freed memory; refuses what no memory can hold."""

from collections.abc import Iterator
import contextlib
import ctypes
import os
import platform
import resource

from xjax.core.errors import ConfigError, UserError

# Parameters of glibc's mallopt and their new values: large arrays get no memory
# mapping of their own (-4), no memory is returned to the system (-1), and the
# heap grows by 64 MiB at a time (-2).
_MALLOPT = {-4: 0, -1: -1, -2: 64 << 20}

# On machines with at most two cores, all threads share one arena, which saves
# memory and costs no time there: quickstart with 40 steps needs 963 MB and 51 s
# of CPU time (without this setting, 1082 MB and 50 s). With more cores, threads
# could wait for one another, so glibc chooses the number of arenas.
_ONE_ARENA = {-8: 1}
_MEASURED_CORES = 2


def keep_freed_memory() -> bool:
  """Makes the C library keep freed memory and reuse it for later arrays.

  By default, the memory of a large freed array goes back to the system, and the
  system must clear new pages for the next array. On CPUs this clearing takes a
  quarter of a training step or more. With this setting, the process grows to
  its peak size and stays there. Call this function before anything else.

  Returns whether it is kept: not without glibc, nor if the user has set an
  environment variable MALLOC_*.
  """
  set_by_user = any(name.startswith('MALLOC_') for name in os.environ)
  if set_by_user or platform.libc_ver()[0] != 'glibc':
    return False
  mallopt = ctypes.CDLL(None).mallopt
  few_cores = len(os.sched_getaffinity(0)) <= _MEASURED_CORES
  parameters = _MALLOPT | (_ONE_ARENA if few_cores else {})
  # The list makes sure that all parameters are set, even if one of them fails.
  results = [mallopt(name, value) for name, value in parameters.items()]
  return all(results)


def check_memory(n_bytes: int, what: str, advice: str) -> None:
  """Raises a ConfigError if arrays of n_bytes do not fit into memory."""
  # `what` names the arrays; `advice` says what the user can do.
  memory = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
  limit, _ = resource.getrlimit(resource.RLIMIT_AS)
  if limit != resource.RLIM_INFINITY:
    memory = min(memory, limit)
  if n_bytes > memory:
    raise ConfigError(
      f'{what}: needs {n_bytes / 2**30:,.1f} GiB of memory, but there are only '
      f'{memory / 2**30:,.1f} GiB; {advice}'
    )


@contextlib.contextmanager
def enough_memory(advice: str) -> Iterator[None]:
  """Turns the errors of Python and of JAX about full memory into UserErrors."""
  try:
    yield
  except MemoryError as error:
    raise UserError(f'the memory is full: {advice}') from error
  except RuntimeError as error:  # JAX raises a subclass
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    reason = str(error).partition('\n')[0][:200]
    raise UserError(f'the memory is full: {advice} ({reason})') from error


def power_of_two(n: int) -> int:
  """Returns the smallest power of two that is at least n."""
  return 1 << max(n - 1, 0).bit_length()
