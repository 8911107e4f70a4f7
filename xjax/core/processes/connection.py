"""Connects the processes of a run, and ends them if one of them is lost."""

import atexit
from collections.abc import Callable, Iterator
import contextlib
import ctypes
import importlib.util
import os
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings

from absl import logging
import jax
from jax._src import xla_bridge  # JAX has no public access
from jax._src.distributed import global_state  # nor here

from xjax.core.errors import ConfigError, Preempted, UserError, printable

EXIT_FAILED = 1
EXIT_LOST = 75  # launchers then start all processes again

_JOIN = 60  # seconds to wait until all processes have joined
_LOST = 40  # seconds without a sign of life until a process counts as lost
_LEAVE = 3  # seconds in which the other processes hear of an error
_SAY_EVERY = 10  # seconds between lines while this process waits
_ERROR = 'xjax/error'  # key of the error of the first process that fails

# JAX's coordination service prints these texts before it ends the process.
_REPORT = (
  b'JAX distributed service detected fatal errors',
  b'Use error polling to propagate',
)

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

  This function must be called before any JAX function. If another process is
  lost, or does not join in time, this process ends with one line and EXIT_LOST;
  see `together` for errors of other processes. Flags that do not fit together,
  or processes that are not found, raise a ConfigError.

  Args:
    multihost: whether this run has several processes.
    coordinator: address:port of process 0. The argument can be empty where JAX
      finds the address and the two numbers below by itself: on TPU pods, under
      SLURM's srun and Open MPI's mpirun, and in Jobs and JobSets of Kubernetes.
    num_processes: number of processes, if `coordinator` is set.
    process_id: number of this process, from 0, if `coordinator` is set.
  """
  flags_set = {
    '--coordinator': bool(coordinator),
    '--num_processes': num_processes != 0,
    '--process_id': process_id != -1,
  }
  if not multihost:
    if any(flags_set.values()):
      name = next(name for name, is_set in flags_set.items() if is_set)
      raise ConfigError(
        f'{name} needs --multihost; add --multihost, or drop {name}'
      )
    return
  if any(flags_set.values()) and not (
    coordinator and 0 <= process_id < num_processes
  ):
    raise ConfigError(
      '--coordinator, --num_processes and --process_id must be given together; '
      '--process_id counts from 0 and is below --num_processes'
    )
  arguments = (coordinator, num_processes, process_id) if coordinator else ()
  show_again = _replace_crash_report()
  try:
    with _joining(), warnings.catch_warnings():
      # JAX warns that the package kubernetes is missing. The warning is hidden,
      # because the error below says the same (see _reason).
      warnings.filterwarnings('ignore', 'Kubernetes environment detected')
      jax.distributed.initialize(
        *arguments,
        initialization_timeout=2 * _JOIN,  # _joining ends the process before
        heartbeat_timeout_seconds=_LOST,
      )
  except Exception as error:  # different clusters raise different errors
    show_again()
    raise ConfigError(
      f'--multihost: the other processes are not found ({_reason(error)}). JAX '
      'finds them on TPU pods, under srun (SLURM) and mpirun (Open MPI), and '
      'in Jobs and JobSets of Kubernetes; elsewhere give '
      '--coordinator=ADDRESS:PORT, --num_processes and --process_id'
    ) from error
  ended = threading.Event()
  heeding = threading.Thread(target=_watch_errors, args=(ended,), daemon=True)
  heeding.start()

  def leave() -> None:
    ended.set()
    heeding.join()
    jax.distributed.shutdown()
    _keep_cpu_client()
    show_again()

  atexit.register(leave)


def _keep_cpu_client() -> None:
  """Keeps JAX's client for CPUs from being destroyed when the process ends.

  A result may be there while some devices still run the last collective. Their
  threads may then connect to a process that is gone, which never ends, and the
  destructor of the client waits for its threads.
  """
  if xla_bridge.backends_are_initialized():
    client = jax.local_devices()[0].client
    if client.platform == 'cpu':
      ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))


@contextlib.contextmanager
def together() -> Iterator[None]:
  """Ends all processes of the run if one of them fails in this context.

  With one process, the context does nothing. With several processes, each one
  enters it after `start`. If one raises an error, all end with EXIT_FAILED, and
  all print the error. If a collective fails because another process is lost,
  this process ends with EXIT_LOST. Preempted is raised as usual.
  """
  try:
    yield
  except Preempted:
    raise
  except Exception as error:
    if not jax.distributed.is_initialized():
      raise
    if not isinstance(error, UserError) and _BROKEN.search(str(error)):
      # JAX ends this process, and others, as soon as it knows who is lost.
      logging.info('a collective has failed; waiting to hear who is lost')
      time.sleep(_LOST + _SAY_EVERY)
    with contextlib.suppress(Exception):  # another process was first
      text = f'process {global_state.process_id}: {error}'
      global_state.client.key_value_set(_ERROR, text)
    if not isinstance(error, UserError):
      traceback.print_exc()
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


@contextlib.contextmanager
def _joining() -> Iterator[None]:
  """Says that this process waits for the others, and gives up after _JOIN."""
  joined = threading.Event()

  def wait() -> None:
    until = time.monotonic() + _JOIN
    while not joined.wait(min(_SAY_EVERY, max(0, until - time.monotonic()))):
      if (left := until - time.monotonic()) <= 0:
        _end(
          f'error: not all processes of the run have joined within {_JOIN} s; '
          'start all of them again',
          EXIT_LOST,
        )
      logging.info('waiting %.0f s more for processes that must join', left)

  threading.Thread(target=wait, daemon=True).start()
  try:
    yield
  finally:
    joined.set()


def _end(message: str, code: int) -> None:
  """Prints a line and ends this process, also if another thread hangs."""
  print(printable(message), file=sys.stderr, flush=True)
  with contextlib.suppress(Exception):
    sys.stdout.flush()
  os._exit(code)


def _replace_crash_report() -> Callable[[], None]:
  """Makes one line and EXIT_LOST of the abort with which JAX ends a process.

  JAX aborts when another process is lost, and first prints a report of many
  lines. So what native code prints goes to a temporary file, from which it is
  copied to standard error, and a handler of SIGABRT looks for that report. The
  returned function copies the rest, and ends the use of the file.
  """
  report, shown = tempfile.TemporaryFile(), os.dup(2)
  sys.stderr.flush()
  sys.stderr = os.fdopen(shown, 'w', 1, 'utf-8', 'backslashreplace')
  logging.get_absl_handler().python_handler.setStream(sys.stderr)
  os.dup2(report.fileno(), 2)
  copied = 0

  def copy(always: bool = False) -> None:
    nonlocal copied
    text = os.pread(report.fileno(), 1 << 20, copied)
    if always or not any(line in text for line in _REPORT):
      copied += os.write(shown, text)

  def copy_often() -> None:
    while True:
      time.sleep(1)
      copy()

  def aborted(number: int) -> None:
    del number
    if _REPORT[0] in os.pread(report.fileno(), 1 << 20, copied):
      _end(
        'error: another process of the run was lost (killed, or its host has '
        'failed); start all processes again to resume',
        EXIT_LOST,
      )
    copy(always=True)

  def show_again() -> None:
    copy(always=True)
    os.dup2(shown, 2)

  # Python's own handlers run in the main thread, which a collective may block.
  _replace_crash_report.handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(aborted)
  ctypes.CDLL(None).signal(signal.SIGABRT, _replace_crash_report.handler)
  threading.Thread(target=copy_often, daemon=True).start()
  return show_again


def _reason(error: Exception) -> str:
  """Returns one line that explains why the other processes were not found."""
  reason = f'{type(error).__name__}: {" ".join(str(error).split())}'
  in_kubernetes = 'KUBERNETES_SERVICE_HOST' in os.environ
  if in_kubernetes and not importlib.util.find_spec('kubernetes'):
    return f"Kubernetes needs pip install 'xjax[k8s]'; {reason}"
  return reason
