"""Chunks of labels trained on all devices, each device with its own labels.

Memory of a device: 20 bytes per entry of the documents' rows, twice that where
features have few documents; 4 bytes for each of RANK directions per feature;
and for each of its labels of a chunk some 24 bytes per feature and 30 per
document.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import NamedTuple

import jax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec as P
import numpy as np
from scipy import sparse

from xjax.core.errors import ConfigError
from xjax.core.progress import Progress
from xjax.core.types import PAD
from xjax.score.heads.contract import ALL_DEVICES
from xjax.score.linear.classifiers import Classifiers
from xjax.score.linear.config import Loss
from xjax.score.linear.descent import (
  Documents,
  Objective,
  State,
  halve,
  start,
  step,
)
from xjax.score.linear.preconditioner import make_preconditioner
from xjax.score.linear.tiles import tiles_of

Part = dict[str, np.ndarray]  # Classifiers.arrays() and UNCONVERGED
UNCONVERGED = 'unconverged'  # int, of a part
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
class Settings:
  """How labels are trained; as of batched.fit_batched."""

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


class ChunkTrainer:
  """Documents on all devices, and what is done with them."""

  def __init__(
    self,
    rows: sparse.csr_array,
    mesh: jax.sharding.Mesh,
    settings: Settings,
    width: int,
    between: Callable[[], None],
  ):
    self._settings, self._mesh, self._between = settings, mesh, between
    self._goal = Objective(settings.loss, np.float32(settings.c))
    self._documents = _documents(rows, mesh)
    devices = mesh.devices.size
    self._width = -(-width // devices) * devices
    self._programs = _programs(mesh, rows.shape[1] + 1)

  def train(self, of_labels: list[np.ndarray], shown: Progress) -> Part:
    """The part of a chunk, of labels that these documents have."""
    state = self._begin(of_labels)
    shape = state.weights_DC.shape[0], len(of_labels)
    weights_DC = np.zeros(shape, np.float32)
    most = self._width // self._mesh.devices.size  # of a device, not done
    left = len(of_labels)
    for _ in range(self._settings.max_steps):
      self._between()
      state = self._programs.step(
        self._documents, state, self._goal, self._settings.tolerance
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
      weights_DC[:-1], weights_DC[-1], self._settings.threshold
    )
    return {**found.arrays(), UNCONVERGED: np.int64(left)}

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
