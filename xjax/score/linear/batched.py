"""One classifier per label, many labels at once, on all devices.

The objective is that of dual.py. Labels are divided over the devices, which all
hold all documents; none waits for another but between steps.

Memory of a device: 20 bytes per entry of the documents' rows, twice that where
features have few documents; 4 bytes for each of RANK directions per feature;
and for each of its labels of a chunk some 24 bytes per feature and 30 per
document.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import NamedTuple

from absl import logging
import jax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec as P
import numpy as np
from scipy import sparse

from xjax.core import distributed
from xjax.core.config_part import AT_LEAST_1, POSITIVE, field
from xjax.core.errors import DataError
from xjax.core.mesh import make_mesh
from xjax.core.progress import Progress
from xjax.core.types import PAD
from xjax.score.heads.contract import ALL_DEVICES
from xjax.score.linear.block_weights import BlockWeights
from xjax.score.linear.classifiers import Classifiers
from xjax.score.linear.descent import (
  DescentState,
  Objective,
  TrainingRows,
  halve,
  make_preconditioner,
  start,
  step,
)
from xjax.score.linear.part_files import PartFiles
from xjax.score.linear.problem import (
  OneVsAllProblem,
  SolverConfig,
  check_rows,
  documents_of_labels,
  largest_norm,
)
from xjax.score.linear.tiles import tiles_of

_Part = dict[str, np.ndarray]  # Classifiers.arrays() and _UNCONVERGED
_UNCONVERGED = 'unconverged'  # int, of a part
_NARROWEST = 16  # labels of a device; fewer would be no faster
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
  """Many labels at once, on the devices of the mesh."""

  processes = True

  tolerance: float = field(
    1e-3,
    'How far above its minimum, relatively, the objective may be; an '
    'estimate. Float32 allows about 1e-5.',
    POSITIVE,
  )
  max_steps: int = field(
    200, 'Of a label; the log tells how many labels it ended.', AT_LEAST_1
  )
  chunk: int = field(
    256,
    'Labels at a time, over all devices; what a killed run loses.',
    AT_LEAST_1,
  )

  def fit(self, problem: OneVsAllProblem) -> BlockWeights:
    """As SolverConfig."""
    found = fit_batched(problem, self, make_mesh(problem.mesh))
    columns = np.array([0, problem.n_labels])
    return BlockWeights.of([found], columns, found.weights.nnz)


def fit_batched(
  problem: OneVsAllProblem, solver: OnDevices, mesh: jax.sharding.Mesh
) -> Classifiers:
  """Trains all labels, each against all others.

  Labels that no document has come after all others (Classifiers.with_last). Of
  several processes all call this, and all can read the folder of parts.

  Args:
    problem: the labels; the key of its parts need not tell of it.
    solver: how.
    mesh: the devices.

  Raises:
    DataError: rows are not finite, or there are none.
  """
  rows, gold, n_labels = problem.rows, problem.gold, problem.n_labels
  check_rows(rows, gold)
  indptr, documents = documents_of_labels(gold, n_labels)
  counts = np.diff(indptr)
  # By frequency, since labels that need as many steps then share a chunk.
  order = np.argsort(-counts, kind='stable')
  n_trained = int((counts > 0).sum())
  decided = problem.loss, problem.c, problem.threshold, solver
  parts = problem.parts.of('batched', rows, gold, n_labels, *decided)
  chunks = [
    [documents[indptr[label] : indptr[label + 1]] for label in labels]
    for labels in _cut(order[:n_trained], solver.chunk)
  ]
  found = _kept(len(chunks), parts)
  if any(part is None for part in found):
    width = min(solver.chunk, n_trained)
    trainer = _ChunkTrainer(problem, solver, mesh, width)
    _train_missing(found, chunks, trainer, parts)
  joined = _joined(found, rows.shape[1], n_labels).take(np.argsort(order))
  return joined.with_last(counts == 0, largest_norm(rows))


def _cut(labels: np.ndarray, size: int) -> list[np.ndarray]:
  return [labels[at : at + size] for at in range(0, len(labels), size)]


def _name(at: int) -> str:
  """Of the part of a chunk."""
  return f'chunk_{at:06}'


def _kept(count: int, parts: PartFiles) -> list[_Part | None]:
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
  found: list[_Part | None],
  chunks: list[list[np.ndarray]],
  trainer: '_ChunkTrainer',
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


def _joined(found: list[_Part], n_features: int, n_labels: int) -> Classifiers:
  """All parts, and zeros for the labels that are in none."""
  unconverged = sum(int(part[_UNCONVERGED]) for part in found)
  if unconverged:
    logging.warning(
      '%d labels had not converged after max_steps steps', unconverged
    )
  parts = [Classifiers.of_arrays(part) for part in found]
  n_others = n_labels - sum(part.n_labels for part in parts)
  return Classifiers.joined([*parts, Classifiers.none(n_features, n_others)])


class _Programs(NamedTuple):
  """What devices do, each for its own labels."""

  start: Callable[..., DescentState]
  step: Callable[..., DescentState]
  halve: Callable[..., DescentState]
  left: Callable[..., tuple[jax.Array, jax.Array]]


@functools.cache
def _programs(mesh: jax.sharding.Mesh, n_features: int) -> _Programs:
  """Compiled once for all that is trained on a mesh."""
  on = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)
  by_label = P(ALL_DEVICES)
  begin = functools.partial(start, n_features)
  return _Programs(
    start=jax.jit(
      on(begin, in_specs=(_ON_LABELS, by_label, P()), out_specs=_STATE)
    ),
    step=jax.jit(
      on(step, in_specs=(P(), _STATE, P(), P()), out_specs=_STATE),
      donate_argnums=1,
    ),
    halve=jax.jit(on(halve, in_specs=(_STATE,), out_specs=_STATE)),
    left=jax.jit(on(_left, in_specs=by_label, out_specs=P())),
  )


class _ChunkTrainer:
  """Documents on all devices, and what is done with them."""

  def __init__(
    self,
    problem: OneVsAllProblem,
    solver: 'OnDevices',
    mesh: jax.sharding.Mesh,
    width: int,
  ):
    self._problem, self._solver, self._mesh = problem, solver, mesh
    self._goal = Objective(problem.loss, np.float32(problem.c))
    self._documents = _documents(problem.rows, mesh)
    devices = mesh.devices.size
    self._width = -(-width // devices) * devices
    self._programs = _programs(mesh, problem.rows.shape[1] + 1)

  def train(self, of_labels: list[np.ndarray], shown: Progress) -> _Part:
    """The part of a chunk, of labels that these documents have."""
    state = self._begin(of_labels)
    shape = state.weights_DC.shape[0], len(of_labels)
    weights_DC = np.zeros(shape, np.float32)
    most = self._width // self._mesh.devices.size  # of a device, not done
    left = len(of_labels)
    for _ in range(self._solver.max_steps):
      self._problem.between()
      state = self._programs.step(
        self._documents, state, self._goal, self._solver.tolerance
      )
      most, still = map(int, jax.device_get(self._programs.left(state.done_C)))
      shown.update(left - still)
      left = still
      if not left:
        break
      width = len(state.label_C) // self._mesh.devices.size
      if most <= width // 2 and width // 2 >= _NARROWEST:
        _put_weights(state, weights_DC)
        state = self._programs.halve(state)
    shown.update(left)
    _put_weights(state, weights_DC)
    found = Classifiers.pruned(
      weights_DC[:-1], weights_DC[-1], self._problem.threshold
    )
    return {**found.arrays(), _UNCONVERGED: np.int64(left)}

  def _begin(self, of_labels: list[np.ndarray]) -> DescentState:
    """Labels at their start, on the devices."""
    n_docs = self._documents.rows.n_rows
    positive_NC = np.zeros((n_docs, self._width), bool)
    for at, documents in enumerate(of_labels):
      positive_NC[documents, at] = True
    label_C = np.full(self._width, PAD, np.int32)
    label_C[: len(of_labels)] = np.arange(len(of_labels))
    return self._programs.start(
      _put(positive_NC, NamedSharding(self._mesh, _STATE.positive_NC)),
      _put(label_C, NamedSharding(self._mesh, _STATE.label_C)),
      self._goal,
    )


def _documents(rows: sparse.csr_array, mesh: jax.sharding.Mesh) -> TrainingRows:
  """Documents with the feature that is 1, on all devices of a mesh."""
  ones = np.ones((rows.shape[0], 1), np.float32)
  with_one = sparse.csr_array(sparse.hstack([rows, ones], format='csr'))
  everywhere = NamedSharding(mesh, P())
  tiles = [
    jax.tree.map(lambda x: _put(x, everywhere), tiles_of(matrix))
    for matrix in (with_one, sparse.csr_array(with_one.T.tocsr()))
  ]
  return TrainingRows(*tiles, make_preconditioner(*tiles))


def _put(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
  """Places an array that all processes have."""
  return jax.make_array_from_callback(
    array.shape, sharding, lambda index: array[index]
  )


def _left(done_C: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Labels that are not done: the most of a device, and all."""
  left = (~done_C).sum()
  return jax.lax.pmax(left, ALL_DEVICES), jax.lax.psum(left, ALL_DEVICES)


def _put_weights(state: DescentState, weights_DC: np.ndarray) -> None:
  """Writes the weights as they are to their labels' columns."""
  arrays = state.weights_DC, state.label_C
  if jax.process_count() > 1:
    arrays = multihost_utils.process_allgather(arrays, tiled=True)
  of_state_DC, label_C = map(np.asarray, arrays)
  weights_DC[:, label_C[label_C != PAD]] = of_state_DC[:, label_C != PAD]
