"""Connects and synchronises the processes of a run, and gathers top-k lists."""

from collections.abc import Callable, Iterable
import importlib.util
import os
import sys
import typing
import warnings

import numpy as np

from xjax.core.allocation import check_memory
from xjax.core.errors import ConfigError
from xjax.core.types import PAD, Batch

if typing.TYPE_CHECKING:
  import jax


def start(
  multihost: bool,
  coordinator: str = '',
  num_processes: int = 0,
  process_id: int = -1,
) -> None:
  """Connects this process to the other processes of the run.

  This function must be called before any JAX function.

  Args:
    multihost: whether this run has several processes.
    coordinator: address:port of process 0. The argument can be empty where JAX
      finds the address and the two numbers below by itself: on TPU pods, under
      SLURM's srun and Open MPI's mpirun, and in Jobs and JobSets of Kubernetes.
    num_processes: number of processes, if `coordinator` is set.
    process_id: number of this process, from 0, if `coordinator` is set.

  Raises:
    ConfigError: the flags do not fit together, or the other processes are not
      found.
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
  import jax

  arguments = (coordinator, num_processes, process_id) if coordinator else ()
  try:
    with warnings.catch_warnings():
      # JAX warns that the package kubernetes is missing. The warning is hidden,
      # because the error below says the same (see _reason).
      warnings.filterwarnings('ignore', 'Kubernetes environment detected')
      jax.distributed.initialize(*arguments)
  except Exception as error:  # different clusters raise different errors
    raise ConfigError(
      f'--multihost: the other processes are not found ({_reason(error)}). JAX '
      'finds them on TPU pods, under srun (SLURM) and mpirun (Open MPI), and '
      'in Jobs and JobSets of Kubernetes; elsewhere give '
      '--coordinator=ADDRESS:PORT, --num_processes and --process_id'
    ) from error


def _reason(error: Exception) -> str:
  """Returns one line that explains why the other processes were not found."""
  reason = f'{type(error).__name__}: {" ".join(str(error).split())}'
  in_kubernetes = 'KUBERNETES_SERVICE_HOST' in os.environ
  if in_kubernetes and not importlib.util.find_spec('kubernetes'):
    return f"Kubernetes needs pip install 'xjax[k8s]'; {reason}"
  return reason


def process_index() -> int:
  """Returns the number of this process in the run, from 0."""
  # start() imports JAX. A process without JAX is the only process of its run,
  # and a linear model or a label tree predicts without loading JAX.
  return sys.modules['jax'].process_index() if 'jax' in sys.modules else 0


def process_count() -> int:
  """Returns the number of processes of the run."""
  return sys.modules['jax'].process_count() if 'jax' in sys.modules else 1


def is_connected() -> bool:
  """Returns whether start() has connected this process to others.

  Unlike the other functions, this one never initialises the devices.
  """
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


def host0_says(answer: bool) -> bool:
  """Returns the answer of host 0; all processes must call this function."""
  if process_count() == 1:
    return answer
  from jax.experimental import multihost_utils

  return bool(multihost_utils.broadcast_one_to_all(np.bool_(answer)))


def rank_documents(
  batches: Iterable[Batch],
  topk: 'Callable[[Batch], tuple[jax.Array, jax.Array]]',
  n_documents: int,
  k: int,
  n_lists: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns the top-k lists of all documents, on every process.

  Args:
    batches: batches with this process's rows; every process must have the same
      number of batches.
    topk: batch -> (ids_GBK, scores_GBK).
    n_documents: N; every entry of a doc_B is below N.
    k: length of the lists.
    n_lists: G, lists per document.

  Returns:
    ids_GNK: int32, PAD where a list has fewer than k labels.
    scores_GNK: float32, -inf where ids are PAD.
    seen_N: int64, in how many rows of the batches each document occurred.

  Raises:
    ConfigError: the lists do not fit into memory.
  """
  check_memory(
    8 * n_lists * n_documents * k,
    f'{n_lists} lists of {k} labels for {n_documents} documents',
    'choose a smaller eval.depth, or a smaller --k',
  )
  ids_GNK = np.full((n_lists, n_documents, k), PAD, np.int32)
  scores_GNK = np.full(ids_GNK.shape, -np.inf, np.float32)
  seen_N = np.zeros(n_documents, np.int64)
  for batch in batches:
    doc_B, ids_GBK, scores_GBK = all_rows(batch.doc_B, *topk(batch))
    real_B = doc_B != PAD
    rows = doc_B[real_B]
    np.add.at(seen_N, rows, 1)
    ids_GNK[:, rows] = ids_GBK[:, real_B]
    scores_GNK[:, rows] = scores_GBK[:, real_B]
  return ids_GNK, scores_GNK, seen_N


def all_rows(
  doc_B: 'jax.Array', ids_GBK: 'jax.Array', scores_GBK: 'jax.Array'
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Gathers the lists of all processes' documents.

  A document that several processes have is returned only once.

  Args:
    doc_B: int32, the documents of this process's rows.
    ids_GBK, scores_GBK: the lists of these documents, from core.types.Scorer.

  Returns:
    doc_B, ids_GBK, scores_GBK: NumPy arrays, the same on every process.
  """
  rows = np.asarray(doc_B), np.asarray(ids_GBK), np.asarray(scores_GBK)
  if process_count() == 1:
    return rows
  from jax.experimental import multihost_utils

  doc_by_process = multihost_utils.process_allgather(rows[0])
  # Processes along the mesh's label axis read the same documents, so one of
  # these processes is enough.
  _, different = np.unique(doc_by_process, axis=0, return_index=True)
  if len(different) == 1:
    return rows
  lists = multihost_utils.process_allgather(rows[1:])
  ids_GBK, scores_GBK = (np.concatenate(x[different], axis=1) for x in lists)
  return np.concatenate(doc_by_process[different]), ids_GBK, scores_GBK
