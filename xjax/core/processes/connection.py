"""Connects the processes of a run, and ends all if one of them fails."""

import atexit
from collections.abc import Iterator
import contextlib
import ctypes
import importlib.util
import os
import re
import sys
import threading
import time
import traceback
import warnings

import jax
from jax._src import xla_bridge  # JAX has no public access
from jax._src.distributed import global_state  # nor here

from xjax.core.errors import ConfigError, Preempted, UserError, printable

EXIT_FAILED = 1
EXIT_LOST = 75  # launchers then start all processes again

_JOIN = 60  # seconds to wait until all processes have joined
_LOST = 40  # seconds without a sign of life until a process counts as lost
_LEAVE = 3  # seconds in which the other processes hear of an error
_ERROR = 'xjax/error'  # key of the error of the first process that fails

# Errors of collectives whose other end may be gone contain one of these words.
_BROKEN = re.compile(
  'gloo|nccl|connection|barrier|unavailable|deadline|heartbeat', re.I
)


def start(
  multihost: bool,
  coordinator: str = '',
  num_processes: int = 0,
  process_id: int = -1,
) -> None:
  """Connects this process to the other processes of the run.

  This function must be called before any JAX function. If a process does not
  join in time, or is lost later, JAX aborts the others: launchers then start
  all of them again. Flags that do not fit together, or processes that are not
  found, raise a ConfigError.

  `coordinator` is address:port of process 0. It can be '' where JAX finds it
  and the two numbers by itself: on TPU pods, under SLURM's srun and Open MPI's
  mpirun, and in Jobs and JobSets of Kubernetes.
  """
  has_flags = coordinator or num_processes or process_id != -1
  complete = coordinator and 0 <= process_id < num_processes
  if has_flags and not (multihost and complete):
    raise ConfigError(
      '--coordinator, --num_processes and --process_id must be given together, '
      'with --multihost; --process_id counts from 0 and is less than '
      '--num_processes'
    )
  if not multihost:
    return
  arguments = (coordinator, num_processes, process_id) if coordinator else ()
  try:
    with warnings.catch_warnings():
      # JAX warns that the package kubernetes is missing. The warning is hidden,
      # because the error below says the same (see _reason).
      warnings.filterwarnings('ignore', 'Kubernetes environment detected')
      jax.distributed.initialize(
        *arguments,
        initialization_timeout=_JOIN,
        heartbeat_timeout_seconds=_LOST,
      )
  except Exception as error:  # different clusters raise different errors
    raise ConfigError(
      f'--multihost: the other processes are not found ({_reason(error)}). JAX '
      'finds them on TPU pods, under srun (SLURM) and mpirun (Open MPI), and '
      'in Jobs and JobSets of Kubernetes; elsewhere give '
      '--coordinator=ADDRESS:PORT, --num_processes and --process_id'
    ) from error
  ended = threading.Event()
  watching = threading.Thread(target=_watch_errors, args=(ended,), daemon=True)
  watching.start()

  def leave() -> None:
    ended.set()
    watching.join()
    jax.distributed.shutdown()  # waits for the other processes
    _keep_cpu_client()

  atexit.register(leave)


def _keep_cpu_client() -> None:
  """Keeps JAX's client for CPUs from being destroyed when the process ends."""
  # Threads of the last collective may connect to a process that is gone, which
  # never ends, and the destructor waits for them.
  if xla_bridge.backends_are_initialized():
    client = jax.local_devices()[0].client
    if client.platform == 'cpu':
      ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))


@contextlib.contextmanager
def failing_together() -> Iterator[None]:
  """Ends all processes of the run if one of them fails in this context.

  With one process, the context does nothing. With several processes, each one
  enters it after `start`. If one raises an error, all print the error, and end
  with EXIT_FAILED, so that no launcher starts them again. If a collective fails
  because a process is lost, this one ends with EXIT_LOST. Preempted is raised
  as usual.
  """
  try:
    yield
  except Preempted:
    raise
  except Exception as error:
    if not jax.distributed.is_initialized():
      raise
    if not isinstance(error, UserError):
      traceback.print_exc()
      if _BROKEN.search(str(error)):
        time.sleep(3 * _LEAVE)  # _watch_errors knows of an error by then
        message = 'error: another process was lost; start all processes again'
        _end(message, EXIT_LOST)
    with contextlib.suppress(Exception):  # another process was first
      text = f'process {global_state.process_id}: {error}'
      global_state.client.key_value_set(_ERROR, text)
    time.sleep(_LEAVE)
    _end(f'error: {error}', EXIT_FAILED)


def _watch_errors(ended: threading.Event) -> None:
  """Ends this process if another process reports an error before `ended`."""
  own = f'process {global_state.process_id}:'
  while not ended.wait(1):
    with contextlib.suppress(Exception):  # there is no error yet
      text = global_state.client.key_value_try_get(_ERROR)
      if text.startswith(own):
        return
      if global_state.process_id == 0:
        # Process 0 goes last, because the others hear of the error through it.
        time.sleep(2 * _LEAVE)
      _end(f'error: {text}', EXIT_FAILED)


def _end(message: str, code: int) -> None:
  """Prints a line and ends this process, also if another thread hangs."""
  print(printable(message), file=sys.stderr, flush=True)
  with contextlib.suppress(Exception):
    sys.stdout.flush()
  os._exit(code)


def _reason(error: Exception) -> str:
  """Returns one line that explains why the other processes were not found."""
  reason = f'{type(error).__name__}: {" ".join(str(error).split())}'
  in_kubernetes = 'KUBERNETES_SERVICE_HOST' in os.environ
  if in_kubernetes and not importlib.util.find_spec('kubernetes'):
    return f"Kubernetes needs pip install 'xjax[k8s]'; {reason}"
  return reason
