"""Synchronises the processes of a run, and gathers their results."""

import sys

import numpy as np


def process_index() -> int:
  """Returns the number of this process in the run, from 0."""
  # A process that is connected to others has imported JAX (connection.py).
  # Linear models and label trees predict without loading JAX.
  return sys.modules['jax'].process_index() if 'jax' in sys.modules else 0


def process_count() -> int:
  """Returns the number of processes of the run."""
  return sys.modules['jax'].process_count() if 'jax' in sys.modules else 1


def is_connected() -> bool:
  """Returns whether start() has connected this process to others."""
  # Unlike the other functions, this one never initialises the devices.
  return (
    'jax' in sys.modules and sys.modules['jax'].distributed.is_initialized()
  )


def is_host0() -> bool:
  """Returns whether this process writes logs and artefacts."""
  return process_index() == 0


def barrier(name: str) -> None:
  """Waits until every process has called this function with this name."""
  if process_count() > 1:
    from jax.experimental import multihost_utils

    multihost_utils.sync_global_devices(name)


def host0_answer(answer: bool) -> bool:
  """Returns the answer of host 0; all processes must call this function."""
  if process_count() == 1:
    return answer
  from jax.experimental import multihost_utils

  return bool(multihost_utils.broadcast_one_to_all(np.bool_(answer)))


def gather_rows(
  doc_B: np.ndarray, *arrays: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
  """Gathers results of all processes' documents, the same on every process."""
  # Documents are the second axis of the arrays; repeats are left out.
  if process_count() == 1:
    return doc_B, list(arrays)
  from jax.experimental import multihost_utils

  doc_by_process = multihost_utils.process_allgather(doc_B)
  # Processes along the mesh's label axis read the same documents, so one of
  # these processes is enough.
  _, different = np.unique(doc_by_process, axis=0, return_index=True)
  if len(different) == 1:
    return doc_B, list(arrays)
  gathered = multihost_utils.process_allgather(tuple(arrays))
  return np.concatenate(doc_by_process[different]), [
    np.concatenate(x[different], axis=1) for x in gathered
  ]
