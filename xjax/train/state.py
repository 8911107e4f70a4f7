"""Defines the state that a training step changes, and the state's sharding."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
from typing import Any

from flax import nnx, struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from xjax.core.mesh import put_labels
from xjax.networks.heads.chunks import is_label_row
from xjax.networks.heads.head import Frozen
from xjax.networks.rows.kahan import PLACE, kahan_places
from xjax.train.optimizer import LabelRowOptimizer
from xjax.train.optimizer_config import AverageConfig, NoAverage
from xjax.train.parameters import (
  by_part,
  by_path,
  from_paths,
  in_group,
  parts_of,
)


@struct.dataclass
class TrainState:
  """Holds the parameters, and the optimizer's slots, such as momentum."""

  step: jax.Array  # int32, optimizer steps taken
  # All parameters, including frozen ones, in float32, except for label rows
  # with another storage (networks.rows.storage).
  params: nnx.State
  # Slots of the trained parameters. jit alone would replicate them; here each
  # has the sharding of its parameter.
  opt_state: optax.OptState
  # Mean over steps of each trained parameter, with its sharding.
  averages: nnx.State | None = None
  # Slots of label rows, sharded like label rows; None if the optimizer changes
  # label rows.
  row_slots: nnx.State | None = None

  def averaged_params(self) -> nnx.State:
    """Returns the parameters, with means, if any, in place of trained ones."""
    if self.averages is None:
      return self.params
    return nnx.merge_state(self.params, self.averages)

  def with_params(self, changed: Mapping[str, jax.Array]) -> 'TrainState':
    """Returns the state with other values of some parameters, by path."""
    params = from_paths(self.params, by_path(self.params) | changed)
    return dataclasses.replace(self, params=params)


@dataclasses.dataclass(frozen=True, eq=False)
class StatePlan:
  """Describes the structure of a state, without its arrays."""

  graphdef: nnx.GraphDef  # of the model, to merge with parameters
  abstract: TrainState  # of ShapeDtypeStructs that have shardings
  # Makes the initial state from a random key. Each array is created on the
  # devices of its sharding, so no device ever holds all label rows.
  init: Callable[[jax.Array], TrainState]
  freeze: tuple[str, ...]  # globs over paths of parameters
  average: AverageConfig
  # The rule that changes label rows; None if the optimizer changes them.
  rows: LabelRowOptimizer | None = None

  @property
  def shardings(self) -> TrainState:
    return jax.tree.map(lambda leaf: leaf.sharding, self.abstract)

  def split(self, params: nnx.State) -> tuple[nnx.State, nnx.State]:
    """Returns the parameters that the optimizer changes, and all others."""
    return split_frozen(params, self.freeze, self.rows is not None)

  def without_frozen(self, grads: nnx.State) -> nnx.State:
    """Zeroes the gradients of frozen layers of stacks with other layers."""
    # So they have no share in the norm, and the optimizer does not move them.
    leaves = by_path(grads)
    for path, grad in leaves.items():
      kept = by_part(path, grad, lambda part: not in_group(part, self.freeze))
      if not np.all(kept):
        leaves[path] = jnp.where(kept, grad, 0)
    return from_paths(grads, leaves)

  def start_averages(self, state: TrainState) -> TrainState:
    """Returns an initial state whose means, if any, equal the parameters."""
    if state.averages is None:
      return state
    trained, _ = self.split(state.params)
    # The means are copies, because parameters and means are both donated to the
    # first step.
    copy = jax.jit(_copied, out_shardings=self.shardings.averages)
    return dataclasses.replace(state, averages=copy(trained))


def plan_state(
  build: Callable[[nnx.Rngs], nnx.Module],
  optimizer: optax.GradientTransformation,
  mesh: jax.sharding.Mesh,
  freeze: Sequence[str] = (),
  average: AverageConfig | None = None,
  rows: LabelRowOptimizer | None = None,
) -> StatePlan:
  """Plans the state of a model and its optimizer on a mesh."""
  average = NoAverage() if average is None else average

  def init(key: jax.Array) -> TrainState:
    model = build(nnx.Rngs(key))
    params = nnx.state(model, nnx.Param)
    trained, _ = split_frozen(params, freeze, rows is not None)
    mean = _copied(trained) if average.averages else None
    slots = None if rows is None else rows.slots(model.head)
    opt_state = optimizer.init(trained)
    return TrainState(jnp.int32(0), params, opt_state, mean, slots)

  # Nothing is computed here: a model may be too large for one device, and a
  # plan may be made for devices that this machine does not have.
  with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
    graphdef = nnx.graphdef(nnx.eval_shape(lambda: build(nnx.Rngs(0))))
    shapes = jax.eval_shape(init, jax.random.key(0))
    shardings = nnx.get_named_sharding(shapes, mesh)
  abstract = jax.tree.map(
    lambda leaf, sharding: leaf.update(sharding=sharding), shapes, shardings
  )
  return StatePlan(
    graphdef,
    abstract,
    jax.jit(init, out_shardings=shardings),
    tuple(freeze),
    average,
    rows,
  )


def split_frozen(
  params: nnx.State, freeze: Sequence[str] = (), rows: bool = False
) -> tuple[nnx.State, nnx.State]:
  """Returns the parameters that the optimizer changes, and all others.

  The others match a glob of `freeze` (a stack: with all layers), have the type
  Frozen, or are label rows that change by their own rule (`rows`).
  """

  def is_excluded(path: tuple[Any, ...], variable: Any) -> bool:
    if rows and is_label_row(path, variable):
      return True
    parts = parts_of({'/'.join(map(str, path)): variable})
    return all(in_group(part, freeze) for part in parts)

  frozen, trained = nnx.split_state(params, nnx.Any(Frozen, is_excluded), ...)
  return trained, frozen


def _copied(params: nnx.State) -> nnx.State:
  return jax.tree.map(jnp.copy, params)


def with_rows(state: TrainState, **rows: np.ndarray) -> TrainState:
  """Returns a state whose head has the given rows: `kernel`, `bias` or both."""
  params, changed = by_path(state.params), {}
  for name, values in rows.items():
    sharding = params[f'head/{name}'].sharding
    values = np.asarray(values, np.float32)
    changed[f'head/{name}'] = put_labels(values, sharding)
  return state.with_params(changed)


def with_label_start(plan: StatePlan, biases: np.ndarray | None) -> StatePlan:
  """Returns a plan that also sets the initial biases and places of labels."""
  # A place says where the slot of rounding errors has the label's entry
  # (kahan_places). Without biases [L], they stay 0.

  def init(key: jax.Array) -> TrainState:
    state = plan.init(key)
    if biases is not None:
      state = with_rows(state, bias=biases)
    slots = by_path(state.row_slots)
    if PLACE in slots:
      places = kahan_places(plan.rows.compensated)
      slots[PLACE] = put_labels(places, slots[PLACE].sharding)
      row_slots = from_paths(state.row_slots, slots)
      state = dataclasses.replace(state, row_slots=row_slots)
    # Only now, because the first means must equal the changed biases, too.
    return plan.start_averages(state)

  return dataclasses.replace(plan, init=init)
