"""Several processes: start-up, the host that writes, barriers, all rows."""

from collections.abc import Callable, Iterable
import importlib.util
import os
import warnings

import jax
from jax.experimental import multihost_utils
import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.types import PAD, Batch


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


def rank_documents(
  batches: Iterable[Batch],
  topk: Callable[[Batch], tuple[jax.Array, jax.Array]],
  n_documents: int,
  k: int,
  n_lists: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """The lists of all documents, each in its document's row.

  Args:
    batches: this process's rows; every process has as many batches.
    topk: (ids_GBK, scores_GBK) of a batch.
    n_documents: N; rows are below it.
    k: length of the lists.
    n_lists: G.

  Returns:
    ids_GNK: int32, PAD where labels run out.
    scores_GNK: float32, -inf where ids are PAD.
    seen_N: int, how often each document stood in a batch.
  """
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
  doc_B: jax.Array, ids_GBK: jax.Array, scores_GBK: jax.Array
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """The lists of all processes' documents, once where several have the same.

  Args:
    doc_B: int32, which documents this process's rows are.
    ids_GBK, scores_GBK: their lists, as core.types.Scorer gives them.

  Returns:
    doc_B, ids_GBK, scores_GBK: NumPy, the same on every process.
  """
  rows = np.asarray(doc_B), np.asarray(ids_GBK), np.asarray(scores_GBK)
  if jax.process_count() == 1:
    return rows
  doc_HB = multihost_utils.process_allgather(rows[0])
  # Along a mesh's label axis, processes read the same documents.
  _, different = np.unique(doc_HB, axis=0, return_index=True)
  if len(different) == 1:
    return rows
  lists = multihost_utils.process_allgather(rows[1:])
  ids_GBK, scores_GBK = (np.concatenate(x[different], axis=1) for x in lists)
  return np.concatenate(doc_HB[different]), ids_GBK, scores_GBK
