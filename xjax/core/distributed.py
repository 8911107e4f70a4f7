"""Several processes: start-up, the host that writes, barriers."""

import importlib.util
import os
import warnings

import jax
from jax.experimental import multihost_utils

from xjax.core.errors import ConfigError


def start(
  multihost: bool,
  coordinator: str = '',
  num_processes: int = 0,
  process_id: int = -1,
) -> None:
  """Joins the other processes; must come before any other JAX call.

  Args:
    multihost: whether this run has several processes at all.
    coordinator: address:port of process 0; empty where JAX finds it (and the
      two numbers) by itself: on TPU pods, under SLURM's srun and Open MPI's
      mpirun, and in Jobs and JobSets of Kubernetes.
    num_processes: count, where coordinator is given.
    process_id: this process, where coordinator is given.

  Raises:
    ConfigError: flags that do not go together; the others are not found.
  """
  given = {
    '--coordinator': bool(coordinator),
    '--num_processes': num_processes != 0,
    '--process_id': process_id != -1,
  }
  if not multihost:
    if any(given.values()):
      name = next(name for name, is_given in given.items() if is_given)
      raise ConfigError(f'{name} is of use with --multihost only')
    return
  if any(given.values()) and not (
    coordinator and 0 <= process_id < num_processes
  ):
    raise ConfigError(
      '--coordinator, --num_processes and --process_id (below the count) must '
      'be given together'
    )
  others = (coordinator, num_processes, process_id) if coordinator else ()
  try:
    with warnings.catch_warnings():
      # Told below, where it matters.
      warnings.filterwarnings('ignore', 'Kubernetes environment detected')
      jax.distributed.initialize(*others)
  except Exception as error:  # whatever asking a cluster may raise
    raise ConfigError(
      f'--multihost: the other processes are not found ({_reason(error)}). JAX '
      'finds them on TPU pods, under srun (SLURM) and mpirun (Open MPI), and '
      'in Jobs and JobSets of Kubernetes; elsewhere give '
      '--coordinator=ADDRESS:PORT, --num_processes and --process_id'
    ) from error


def _reason(error: Exception) -> str:
  reason = f'{type(error).__name__}: {" ".join(str(error).split())}'
  in_kubernetes = 'KUBERNETES_SERVICE_HOST' in os.environ
  if in_kubernetes and not importlib.util.find_spec('kubernetes'):
    return f"in Kubernetes it takes pip install 'xjax[k8s]'; {reason}"
  return reason


def is_host0() -> bool:
  """Whether this process writes logs and artefacts."""
  return jax.process_index() == 0


def barrier(name: str) -> None:
  """Waits until every process is here."""
  if jax.process_count() > 1:
    multihost_utils.sync_global_devices(name)
