"""Defines the flags that connect the processes of a run."""

from collections.abc import Iterator
import contextlib

from absl import flags

TITLE = 'Several processes (clusters)'


def define() -> None:
  """Defines --multihost and the flags that connect the processes."""
  flags.DEFINE_bool(
    'multihost', False, 'Run as one of several connected processes.'
  )
  flags.DEFINE_string(
    'coordinator',
    '',
    'address:port of process 0; not needed on TPU pods, SLURM and Kubernetes.',
  )
  flags.DEFINE_integer(
    'num_processes', 0, 'Number of processes; used only with --coordinator.'
  )
  flags.DEFINE_integer(
    'process_id',
    -1,
    'Number of this process, counted from 0; used only with --coordinator.',
  )


@contextlib.contextmanager
def connected() -> Iterator[None]:
  """Connects this process to others; if one fails, all end."""
  names = 'multihost', 'coordinator', 'num_processes', 'process_id'
  if not any(
    name in flags.FLAGS and flags.FLAGS[name].present for name in names
  ):
    yield
    return
  from xjax.core.processes import connection

  connection.start(*(flags.FLAGS[name].value for name in names))
  with connection.failing_together():
    yield
