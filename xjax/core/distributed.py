"""Several processes: start-up, the host that writes, barriers."""

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
    coordinator: address:port of process 0; empty on TPU pods, where JAX finds
      it (and the two numbers) by itself.
    num_processes: count, where coordinator is given.
    process_id: this process, where coordinator is given.

  Raises:
    ConfigError: coordinator without the count and the id.
  """
  if not multihost:
    return
  if not coordinator:
    jax.distributed.initialize()
    return
  if num_processes < 1 or not 0 <= process_id < num_processes:
    raise ConfigError(
      '--coordinator needs --num_processes and --process_id in its range'
    )
  jax.distributed.initialize(coordinator, num_processes, process_id)


def is_host0() -> bool:
  """Whether this process writes logs and artefacts."""
  return jax.process_index() == 0


def barrier(name: str) -> None:
  """Waits until every process is here."""
  if jax.process_count() > 1:
    multihost_utils.sync_global_devices(name)
