"""One classifier per label, many labels at once, on all devices.

The objective is that of dual.py. Labels are divided over the devices,
which all hold all documents; none waits for another but between steps.
"""

from collections.abc import Callable

from absl import logging
import jax
from jax.experimental import multihost_utils
import numpy as np
from scipy import sparse

from xjax.core import distributed
from xjax.core.errors import DataError
from xjax.core.progress import Progress
from xjax.core.types import Ragged
from xjax.score.linear.chunk_trainer import (
  UNCONVERGED,
  ChunkTrainer,
  Part,
  Settings,
)
from xjax.score.linear.classifiers import Classifiers
from xjax.score.linear.config import Loss
from xjax.score.linear.part_files import PartFiles
from xjax.score.linear.problem import (
  check_rows,
  documents_of_labels,
  largest_norm,
)


def fit_batched(
  rows: sparse.csr_array,
  gold: Ragged,
  n_labels: int,
  *,
  loss: Loss,
  c: float,
  tolerance: float,
  max_steps: int,
  threshold: float,
  chunk: int,
  mesh: jax.sharding.Mesh,
  parts: PartFiles,
  between: Callable[[], None],
) -> Classifiers:
  """Trains labels 0 to n_labels - 1, each against all others.

  Labels that no document has come after all others (Classifiers.with_last). Of
  several processes all call this, and all can read the folder of parts.

  Args:
    rows: float32 [N, D], documents' features, finite.
    gold: documents' labels; those from n_labels on are left out.
    n_labels: L.
    loss: of a document.
    c: weight of the losses beside the norm.
    tolerance: how far above its minimum, relatively, the objective may be; an
      estimate. Float32 allows about 1e-5.
    max_steps: of a label; the log tells how many it ended.
    threshold: smaller weights are left out.
    chunk: labels trained at once, over all devices; what a killed run loses.
    mesh: the devices.
    parts: keeps what is done; the same call goes on from there. Its key need
      not tell of any of these arguments.
    between: called between steps; what it raises ends training.

  Raises:
    ConfigError: a number is out of range.
    DataError: rows are not finite, or there are none.
  """
  settings = Settings(loss, c, tolerance, max_steps, threshold, chunk)
  settings.check()
  check_rows(rows, gold)
  indptr, documents = documents_of_labels(gold, n_labels)
  counts = np.diff(indptr)
  # By frequency, since labels that need as many steps then share a chunk.
  order = np.argsort(-counts, kind='stable')
  n_trained = int((counts > 0).sum())
  parts = parts.of('batched', rows, gold, n_labels, settings)
  chunks = [
    [documents[indptr[label] : indptr[label + 1]] for label in labels]
    for labels in _cut(order[:n_trained], chunk)
  ]
  found = _kept(len(chunks), parts)
  if any(part is None for part in found):
    width = min(chunk, n_trained)
    trainer = ChunkTrainer(rows, mesh, settings, width, between)
    _train_missing(found, chunks, trainer, parts)
  joined = _joined(found, rows.shape[1], n_labels).take(np.argsort(order))
  return joined.with_last(counts == 0, largest_norm(rows))


def _cut(labels: np.ndarray, size: int) -> list[np.ndarray]:
  return [labels[at : at + size] for at in range(0, len(labels), size)]


def _name(at: int) -> str:
  """Of the part of a chunk."""
  return f'chunk_{at:06}'


def _kept(count: int, parts: PartFiles) -> list[Part | None]:
  """What is done already; of several processes, what the first one sees."""
  found = [parts.load(_name(at)) for at in range(count)]
  if jax.process_count() > 1:
    seen = multihost_utils.broadcast_one_to_all(
      np.array([part is not None for part in found], bool)
    )
    found = [part if yes else None for part, yes in zip(found, seen)]
    if any(part is None for part, yes in zip(found, seen) if yes):
      raise DataError(f'{parts.folder}: must be the same for all processes')
  return found


def _train_missing(
  found: list[Part | None],
  chunks: list[list[np.ndarray]],
  trainer: ChunkTrainer,
  parts: PartFiles,
) -> None:
  """Puts parts where there are none, and keeps them."""
  left = [at for at, part in enumerate(found) if part is None]
  n_labels, n_left = sum(map(len, chunks)), sum(len(chunks[at]) for at in left)
  with Progress('training labels', n_labels, done=n_labels - n_left) as shown:
    for at in left:
      found[at] = trainer.train(chunks[at], shown)
      if jax.process_index() == 0:
        parts.save(_name(at), found[at])
  distributed.barrier('parts')  # all are there from now on


def _joined(found: list[Part], n_features: int, n_labels: int) -> Classifiers:
  """All parts, and zeros for the labels that are in none."""
  unconverged = sum(int(part[UNCONVERGED]) for part in found)
  if unconverged:
    logging.warning(
      '%d labels had not converged after max_steps steps', unconverged
    )
  parts = [Classifiers.of_arrays(part) for part in found]
  n_others = n_labels - sum(part.n_labels for part in parts)
  return Classifiers.joined([*parts, Classifiers.none(n_features, n_others)])
