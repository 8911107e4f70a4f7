"""Keeps forked processes from waiting for what a fork does not copy: threads.

Servers often load a model, and then fork workers. A worker has a copy of the
pools and locks of all threads, but only the thread that called fork.
"""

from concurrent.futures import ThreadPoolExecutor
import functools
import gc
import os
import sys
import threading

from xjax.core.errors import ConfigError

# The process that had started JAX when it was forked: this one or an ancestor.
_jax_process: int | None = None
_awaited: list[threading.RLock] = []
_forking = threading.local()  # `locks`: those that this thread's fork holds


def threads(workers: int) -> ThreadPoolExecutor:
  """Returns threads of this process, which stay until it ends.

  OpenMP remembers threads for each thread that has called it, and a forked
  process would wait for them. So libraries with OpenMP must run in these.
  """
  return _threads(workers, os.getpid())


@functools.cache
def _threads(workers: int, process: int) -> ThreadPoolExecutor:
  del process
  return ThreadPoolExecutor(workers)


def let_forks_wait_for(lock: threading.RLock) -> None:
  """Delays forks while another thread holds a lock."""
  _awaited.append(lock)


def check_jax_runs() -> None:
  """Raises a ConfigError in a process that was forked after JAX had started."""
  if _jax_process not in (None, os.getpid()):
    raise ConfigError(
      'this process was forked from one that had used JAX, so that neural '
      'networks cannot run in it: load the model in each worker, and use none '
      'before the fork, or start workers by spawn or forkserver, such as '
      "multiprocessing.get_context('spawn').Pool"
    )


def _before_fork() -> None:
  global _jax_process
  bridge = sys.modules.get('jax._src.xla_bridge')  # JAX has no public access
  if _jax_process is None and bridge and bridge.backends_are_initialized():
    _jax_process = os.getpid()
  # The last one, since who holds another lock may need it.
  compiling = sys.modules.get('numba.core.compiler_lock')
  compiler = [compiling.global_compiler_lock] if compiling else []
  _forking.locks = [*_awaited, *compiler]
  for lock in _forking.locks:
    lock.acquire()


def _after_fork() -> None:
  for lock in reversed(_forking.locks):
    lock.release()


def _after_fork_in_child() -> None:
  _after_fork()
  if sys.version_info < (3, 12):
    # There, a cached_property has a lock, which another thread may have held.
    for found in gc.get_objects():
      if type(found) is functools.cached_property:
        found.lock = threading.RLock()


os.register_at_fork(
  before=_before_fork,
  after_in_parent=_after_fork,
  after_in_child=_after_fork_in_child,
)
