"""One classifier per label, many labels at once, on all devices.

The objective is that of liblinear.py. Labels are divided over the devices,
which all hold all documents; none waits for another but between steps.

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
import tqdm

from xjax.core import distributed
from xjax.core.errors import ConfigError, DataError
from xjax.core.types import PAD, Ragged
from xjax.heads.contract import ALL_DEVICES
from xjax.linear.classifiers import Classifiers
from xjax.linear.config import Loss
from xjax.linear.descent import (
  Documents,
  Objective,
  State,
  halve,
  start,
  step,
)
from xjax.linear.part_files import PartFiles
from xjax.linear.preconditioner import make_preconditioner
from xjax.linear.problem import check_rows, documents_of_labels, largest_norm
from xjax.linear.tiles import tiles_of

_UNCONVERGED = 'unconverged'  # int, of a part
_NARROWEST = 16  # labels of a device; fewer would be no faster
_ON_LABELS = P(None, ALL_DEVICES)
_STATE = State(
  positive_NC=_ON_LABELS,
  label_C=P(ALL_DEVICES),
  done_C=P(ALL_DEVICES),
  weights_DC=_ON_LABELS,
  scores_NC=_ON_LABELS,
  direction_DC=_ON_LABELS,
  gradient_DC=_ON_LABELS,
  decrement_C=P(ALL_DEVICES),
)


@dataclasses.dataclass(frozen=True)
class _Settings:
  """How labels are trained; as of fit_batched."""

  loss: Loss
  c: float
  tolerance: float
  max_steps: int
  threshold: float
  chunk: int

  def check(self) -> None:
    """Raises ConfigError where a number is out of range."""
    for name in ('c', 'tolerance', 'max_steps', 'chunk'):
      if not getattr(self, name) > 0:
        raise ConfigError(f'{name}={getattr(self, name)}: must be above 0')
    if not self.threshold >= 0:
      raise ConfigError(f'threshold={self.threshold}: must not be negative')


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
  settings = _Settings(loss, c, tolerance, max_steps, threshold, chunk)
  settings.check()
  check_rows(rows, gold)
  indptr, documents = documents_of_labels(gold, n_labels)
  counts = np.diff(indptr)
  # By frequency, since labels that need as many steps then share a chunk.
  order = np.argsort(-counts, kind='stable')
  n_trained = int((counts > 0).sum())
  parts = parts.of('batched', rows, gold, n_labels, settings)
  chunks = [
    order[at : min(at + chunk, n_trained)] for at in range(0, n_trained, chunk)
  ]
  found = _kept(chunks, parts)
  left = [at for at, part in enumerate(found) if part is None]
  with tqdm.tqdm(
    total=n_trained, desc='labels', unit='label', disable=None
  ) as bar:
    bar.update(n_trained - sum(len(chunks[at]) for at in left))
    if left:
      width = min(chunk, n_trained)
      trainer = _Trainer(rows, mesh, settings, width, between, bar)
    for at in left:
      of_labels = [documents[indptr[x] : indptr[x + 1]] for x in chunks[at]]
      found[at] = trainer.train(of_labels)
      if jax.process_index() == 0:
        parts.save(_name(at), found[at])
  if left and jax.process_count() > 1:
    distributed.barrier('parts')  # all are there from now on
  _warn_of_unconverged(found)
  last = Classifiers.none(rows.shape[1], n_labels - n_trained)
  joined = Classifiers.joined([*map(Classifiers.of_arrays, found), last])
  return joined.take(np.argsort(order)).with_last(
    counts == 0, largest_norm(rows)
  )


def _name(at: int) -> str:
  """Of the part of a chunk."""
  return f'chunk_{at:06}'


def _kept(
  chunks: list[np.ndarray], parts: PartFiles
) -> list[dict[str, np.ndarray] | None]:
  """What is done already; of several processes, what the first one sees."""
  found = [parts.load(_name(at)) for at in range(len(chunks))]
  if jax.process_count() > 1:
    seen = multihost_utils.broadcast_one_to_all(
      np.array([part is not None for part in found], bool)
    )
    found = [part if yes else None for part, yes in zip(found, seen)]
    if any(part is None for part, yes in zip(found, seen) if yes):
      raise DataError(f'{parts.folder}: must be the same for all processes')
  return found


def _warn_of_unconverged(found: list[dict[str, np.ndarray]]) -> None:
  unconverged = sum(int(part[_UNCONVERGED]) for part in found)
  if unconverged:
    logging.warning(
      '%d labels had not converged after max_steps steps', unconverged
    )


class _Programs(NamedTuple):
  """What devices do, each for its own labels."""

  start: Callable[..., State]
  step: Callable[..., State]
  halve: Callable[..., State]
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


class _Trainer:
  """Documents on all devices, and what is done with them."""

  def __init__(
    self,
    rows: sparse.csr_array,
    mesh: jax.sharding.Mesh,
    settings: _Settings,
    width: int,
    between: Callable[[], None],
    bar: tqdm.tqdm,
  ):
    self._settings, self._mesh = settings, mesh
    self._between, self._bar = between, bar
    self._goal = Objective(settings.loss, np.float32(settings.c))
    self._documents = _documents(rows, mesh)
    devices = mesh.devices.size
    self._width = -(-width // devices) * devices
    self._programs = _programs(mesh, rows.shape[1] + 1)

  def train(self, of_labels: list[np.ndarray]) -> dict[str, np.ndarray]:
    """The part of a chunk, of labels that these documents have."""
    state = self._begin(of_labels)
    weights_DC = np.zeros((state.weights_DC.shape[0], len(of_labels)))
    most = self._width // self._mesh.devices.size  # of a device, not done
    left = len(of_labels)
    for _ in range(self._settings.max_steps):
      self._between()
      state = self._programs.step(
        self._documents, state, self._goal, self._settings.tolerance
      )
      most, still = map(int, jax.device_get(self._programs.left(state.done_C)))
      self._bar.update(left - still)
      left = still
      if not left:
        break
      width = len(state.label_C) // self._mesh.devices.size
      if most <= width // 2 and width // 2 >= _NARROWEST:
        _put_weights(state, weights_DC)
        state = self._programs.halve(state)
    self._bar.update(left)
    _put_weights(state, weights_DC)
    found = Classifiers.pruned(
      weights_DC[:-1], weights_DC[-1], self._settings.threshold
    )
    return {**found.arrays(), _UNCONVERGED: np.int64(left)}

  def _begin(self, of_labels: list[np.ndarray]) -> State:
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


def _documents(rows: sparse.csr_array, mesh: jax.sharding.Mesh) -> Documents:
  """Documents with the feature that is 1, on all devices of a mesh."""
  ones = np.ones((rows.shape[0], 1), np.float32)
  with_one = sparse.csr_array(sparse.hstack([rows, ones], format='csr'))
  everywhere = NamedSharding(mesh, P())
  tiles = [
    jax.tree.map(lambda x: _put(x, everywhere), tiles_of(matrix))
    for matrix in (with_one, sparse.csr_array(with_one.T.tocsr()))
  ]
  return Documents(*tiles, make_preconditioner(*tiles))


def _put(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
  """Places an array that all processes have."""
  return jax.make_array_from_callback(
    array.shape, sharding, lambda index: array[index]
  )


def _left(done_C: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Labels that are not done: the most of a device, and all."""
  left = (~done_C).sum()
  return jax.lax.pmax(left, ALL_DEVICES), jax.lax.psum(left, ALL_DEVICES)


def _put_weights(state: State, weights_DC: np.ndarray) -> None:
  """Writes the weights as they are to their labels' columns."""
  arrays = state.weights_DC, state.label_C
  if jax.process_count() > 1:
    arrays = multihost_utils.process_allgather(arrays, tiled=True)
  of_state_DC, label_C = map(np.asarray, arrays)
  weights_DC[:, label_C[label_C != PAD]] = of_state_DC[:, label_C != PAD]
