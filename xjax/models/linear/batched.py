"""Trains one classifier per label, many labels at once, on all devices.

dual.py defines the objective. Labels are divided over the devices. Every device
holds all documents. Devices work independently within a step.

A device needs memory for
- the documents: 20 bytes per entry of their rows, or twice as much where
  features have few documents,
- the preconditioner: 4 bytes per feature for each of its RANK directions,
- each label that the device trains at the same time: about 24 bytes per feature
  and 30 bytes per document.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import NamedTuple

from absl import logging
import jax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec as P
from jaxtyping import Array, Bool, Float32, Int, Shaped
import numpy as np
from scipy import sparse

from xjax.core import distributed
from xjax.core.config_part import AT_LEAST_1, POSITIVE, field
from xjax.core.errors import DataError
from xjax.core.mesh import make_mesh
from xjax.core.progress import Progress
from xjax.core.types import PAD
from xjax.models.linear.block_weights import BlockWeights
from xjax.models.linear.classifiers import Classifiers, FileArrays, PartFiles
from xjax.models.linear.descent import (
  DescentState,
  Objective,
  TrainingRows,
  halve,
  make_preconditioner,
  start,
  step,
)
from xjax.models.linear.problem import (
  OneVsAllProblem,
  SolverConfig,
  check_training_rows,
  documents_of_labels,
  largest_norm,
)
from xjax.models.linear.tiles import tiles_of
from xjax.networks.heads.chunks import ALL_DEVICES

# A part has the arrays of Classifiers.arrays(), and an int with this name: the
# number of labels that did not converge.
_UNCONVERGED = 'unconverged'
# Least number of labels per device. A step with fewer labels is not faster.
_NARROWEST = 16
_ON_LABELS = P(None, ALL_DEVICES)
_STATE = DescentState(
  positive_NC=_ON_LABELS,
  label_C=P(ALL_DEVICES),
  done_C=P(ALL_DEVICES),
  weights_DC=_ON_LABELS,
  scores_NC=_ON_LABELS,
  direction_DC=_ON_LABELS,
  gradient_DC=_ON_LABELS,
  decrement_C=P(ALL_DEVICES),
)


@dataclasses.dataclass
class OnDevices(SolverConfig):
  """Trains many labels at once, on the devices of the mesh."""

  processes = True

  tolerance: float = field(
    1e-3,
    'Training ends if the relative distance of the objective from its minimum '
    'is at most this number. The distance is estimated. In float32, the '
    'distance can be as small as about 1e-5.',
    POSITIVE,
  )
  max_steps: int = field(
    200,
    'Largest number of steps for a label. The log reports how many labels '
    'reached this limit.',
    AT_LEAST_1,
  )
  chunk: int = field(
    256,
    'Number of labels that all devices together train at a time. A killed run '
    'loses at most the training of these labels.',
    AT_LEAST_1,
  )

  def fit(self, problem: OneVsAllProblem) -> BlockWeights:
    classifiers = fit_batched(problem, self, make_mesh(problem.mesh))
    # All labels are one block, as children of the root.
    columns = np.array([0, problem.n_labels])
    return BlockWeights.of([classifiers], columns, classifiers.weights.nnz)


def fit_batched(
  problem: OneVsAllProblem, solver: OnDevices, mesh: jax.sharding.Mesh
) -> Classifiers:
  """Trains one classifier per label, on all devices of the mesh.

  Labels without documents rank after all other labels (Classifiers.with_last).
  With several processes, every process must call this function and be able to
  read the folder of parts.
  """
  rows, gold, n_labels = problem.rows, problem.gold, problem.n_labels
  check_training_rows(rows, gold)
  indptr, documents = documents_of_labels(gold, n_labels)
  counts = np.diff(indptr)
  # Labels are sorted by frequency, so that the labels of a chunk need about the
  # same number of steps.
  order = np.argsort(-counts, kind='stable')
  n_trained = int((counts > 0).sum())
  files = problem.parts
  chunks = [
    [documents[indptr[label] : indptr[label + 1]] for label in labels]
    for labels in _cut(order[:n_trained], solver.chunk)
  ]
  parts = _load_parts(len(chunks), files)
  if any(part is None for part in parts):
    width = min(solver.chunk, n_trained)
    trainer = _ChunkTrainer(problem, solver, mesh, width)
    _train_missing(parts, chunks, trainer, files)
  classifiers = _join_parts(parts, rows.shape[1], n_labels)
  # argsort of the order is its inverse: labels go back to their own numbers.
  classifiers = classifiers.take(np.argsort(order))
  return classifiers.with_last(counts == 0, largest_norm(rows))


def _cut(labels: Int[np.ndarray, ' C'], size: int) -> list[np.ndarray]:
  return [labels[at : at + size] for at in range(0, len(labels), size)]


def _part_name(chunk: int) -> str:
  return f'chunk_{chunk:06}'


def _load_parts(count: int, files: PartFiles) -> list[FileArrays | None]:
  """Returns the parts that the first process sees; None for other parts."""
  parts = [files.load(_part_name(chunk)) for chunk in range(count)]
  if jax.process_count() > 1:
    saved = multihost_utils.broadcast_one_to_all(
      np.array([part is not None for part in parts], bool)
    )
    # All processes must train the same chunks, because they work together on
    # each step. So the first process decides which parts exist.
    parts = [part if yes else None for part, yes in zip(parts, saved)]
    if any(part is None for part, yes in zip(parts, saved) if yes):
      raise DataError(
        f'{files.folder}: this process does not see the same files as the '
        'first process; use a folder that all processes share'
      )
  return parts


def _train_missing(
  parts: list[FileArrays | None],
  chunks: list[list[np.ndarray]],
  trainer: '_ChunkTrainer',
  files: PartFiles,
) -> None:
  missing = [chunk for chunk, part in enumerate(parts) if part is None]
  n_labels = sum(map(len, chunks))
  n_missing = sum(len(chunks[chunk]) for chunk in missing)
  with Progress('training labels', n_labels, done=n_labels - n_missing) as bar:
    for chunk in missing:
      parts[chunk] = trainer.train(chunks[chunk], bar)
      # Every process has the part in memory, and one file is enough.
      if jax.process_index() == 0:
        files.save(_part_name(chunk), parts[chunk])
  distributed.barrier('parts')  # from here on, every process sees all parts


def _join_parts(
  parts: list[FileArrays], n_features: int, n_labels: int
) -> Classifiers:
  """Joins all parts, and adds zeros for the labels that are in no part."""
  unconverged = sum(int(part[_UNCONVERGED]) for part in parts)
  if unconverged:
    logging.warning(
      'labels that did not converge within max_steps steps: %d', unconverged
    )
  trained = [Classifiers.of_arrays(part) for part in parts]
  n_others = n_labels - sum(part.n_labels for part in trained)
  return Classifiers.join([*trained, Classifiers.zeros(n_features, n_others)])


class _Programs(NamedTuple):
  """Holds compiled programs, which each device runs for its own labels."""

  start: Callable[..., DescentState]
  step: Callable[..., DescentState]
  halve: Callable[..., DescentState]
  count_unfinished: Callable[..., tuple[jax.Array, jax.Array]]


@functools.cache
def _programs(mesh: jax.sharding.Mesh, n_features: int) -> _Programs:
  # shard_map and not the compiler divides the work: the devices need no values
  # of each other within a step, and nothing is communicated.
  on_mesh = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)
  by_label = P(ALL_DEVICES)
  start_all = functools.partial(start, n_features)
  return _Programs(
    start=jax.jit(
      on_mesh(start_all, in_specs=(_ON_LABELS, by_label, P()), out_specs=_STATE)
    ),
    # The old state is donated, since a state takes most of the memory.
    step=jax.jit(
      on_mesh(step, in_specs=(P(), _STATE, P(), P()), out_specs=_STATE),
      donate_argnums=1,
    ),
    halve=jax.jit(on_mesh(halve, in_specs=(_STATE,), out_specs=_STATE)),
    count_unfinished=jax.jit(
      on_mesh(_count_unfinished, in_specs=by_label, out_specs=P())
    ),
  )


class _ChunkTrainer:
  """Copies the documents to all devices, and trains chunks of labels."""

  def __init__(
    self,
    problem: OneVsAllProblem,
    solver: 'OnDevices',
    mesh: jax.sharding.Mesh,
    width: int,  # the most labels in a chunk
  ):
    self._problem, self._solver, self._mesh = problem, solver, mesh
    self._goal = Objective(problem.loss, np.float32(problem.c))
    self._documents = _place_documents(problem.rows, mesh)
    devices = mesh.devices.size
    # Each device has the same number of columns; those that are too many are
    # PAD and done from the start.
    self._width = -(-width // devices) * devices
    # One more feature, the constant 1 of the bias.
    self._programs = _programs(mesh, problem.rows.shape[1] + 1)

  def train(self, documents: list[np.ndarray], bar: Progress) -> FileArrays:
    """Trains a chunk of labels, given the rows of each label's documents."""
    n_labels = len(documents)
    state = self._start_state(documents)
    shape = state.weights_DC.shape[0], n_labels
    weights_DC = np.zeros(shape, np.float32)
    unfinished = n_labels
    for _ in range(self._solver.max_steps):
      # A signal is noticed between steps. It may raise here, and the chunk is
      # then trained again by the next start.
      self._problem.between()
      state = self._programs.step(
        self._documents, state, self._goal, self._solver.tolerance
      )
      # Only two numbers leave the devices after each step.
      counts = self._programs.count_unfinished(state.done_C)
      most, still = map(int, jax.device_get(counts))
      bar.update(unfinished - still)
      unfinished = still
      if not unfinished:
        break
      # Once half of the labels of every device are done, the arrays are halved,
      # so that later steps take half the time. A program is compiled for each
      # width, and there are few.
      width = len(state.label_C) // self._mesh.devices.size
      if most <= width // 2 and width // 2 >= _NARROWEST:
        _store_weights(state, weights_DC)
        state = self._programs.halve(state)
    bar.update(unfinished)
    _store_weights(state, weights_DC)
    classifiers = Classifiers.from_dense(
      weights_DC[:-1], weights_DC[-1], self._problem.threshold
    )
    return {**classifiers.arrays(), _UNCONVERGED: np.int64(unfinished)}

  def _start_state(self, documents: list[np.ndarray]) -> DescentState:
    n_docs = self._documents.rows.n_rows
    # Documents and labels as a dense mask: it takes 1 byte per pair, and a
    # chunk has few labels.
    positive_NC = np.zeros((n_docs, self._width), bool)
    for column, docs in enumerate(documents):
      positive_NC[docs, column] = True
    label_C = np.full(self._width, PAD, np.int32)
    label_C[: len(documents)] = np.arange(len(documents))
    return self._programs.start(
      _put(positive_NC, NamedSharding(self._mesh, _STATE.positive_NC)),
      _put(label_C, NamedSharding(self._mesh, _STATE.label_C)),
      self._goal,
    )


def _place_documents(
  rows: sparse.csr_array, mesh: jax.sharding.Mesh
) -> TrainingRows:
  """Adds a last feature that is always 1, and copies rows to all devices."""
  ones = np.ones((rows.shape[0], 1), np.float32)
  with_one = sparse.csr_array(sparse.hstack([rows, ones], format='csr'))
  # Each device has all documents, because it needs all of them for its labels.
  everywhere = NamedSharding(mesh, P())
  tiles = [
    jax.tree.map(lambda x: _put(x, everywhere), tiles_of(matrix))
    for matrix in (with_one, sparse.csr_array(with_one.T.tocsr()))
  ]
  return TrainingRows(*tiles, make_preconditioner(*tiles))


def _put(
  array: Shaped[np.ndarray, '...'], sharding: NamedSharding
) -> Shaped[Array, '...']:
  """Copies an array, which every process must have, to the devices."""
  return jax.make_array_from_callback(
    array.shape, sharding, lambda index: array[index]
  )


def _count_unfinished(
  done_C: Bool[Array, ' C'],
) -> tuple[Int[Array, ''], Int[Array, '']]:
  """Counts unfinished labels: the most of a device, and all of them."""
  count = (~done_C).sum()
  # The largest number decides whether all devices can halve their arrays.
  return jax.lax.pmax(count, ALL_DEVICES), jax.lax.psum(count, ALL_DEVICES)


def _store_weights(
  state: DescentState, weights_DC: Float32[np.ndarray, 'D C']
) -> None:
  arrays = state.weights_DC, state.label_C
  if jax.process_count() > 1:
    # A process can only read the labels of its own devices.
    arrays = multihost_utils.process_allgather(arrays, tiled=True)
  current_DC, label_C = map(np.asarray, arrays)
  weights_DC[:, label_C[label_C != PAD]] = current_DC[:, label_C != PAD]
