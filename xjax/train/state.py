"""What a training step changes, and where it lies on the mesh."""

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any

from flax import nnx, struct
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import numpy as np
import optax

from xjax.config.optimizer import AverageConfig, NoAverage
from xjax.config.parameter_groups import in_group
from xjax.core.mesh import put_labels
from xjax.score.heads.contract import Frozen, is_label_row
from xjax.score.heads.kahan import PLACE, kahan_places
from xjax.train.fused_rows import FusedRows
from xjax.train.parameters import by_path, from_paths


@struct.dataclass
class TrainState:
  """Parameters and what the optimizer remembers.

  Attributes:
    step: int32, optimizer steps taken.
    params: the model's parameters, the frozen ones too; float32 but for label
      rows that are stored otherwise (score.heads.storage).
    opt_state: slots of the optimizer, of what is trained; each has its
      parameter's sharding.
    averages: the mean over steps of what is trained, each with its parameter's
      sharding; None: none is kept.
    row_slots: what is remembered of label rows that are not the optimizer's,
      sharded as they are; None: there are no such rows.
  """

  step: jax.Array
  params: nnx.State
  opt_state: optax.OptState
  averages: nnx.State | None = None
  row_slots: nnx.State | None = None

  def averaged_params(self) -> nnx.State:
    """The parameters, with the means in place of what is trained."""
    if self.averages is None:
      return self.params
    return nnx.merge_state(self.params, self.averages)


@dataclasses.dataclass(frozen=True, eq=False)
class StatePlan:
  """The structure of a state, known before any of its arrays is made.

  Attributes:
    graphdef: of the model, to merge with parameters.
    abstract: a TrainState of ShapeDtypeStructs that carry shardings.
    init: makes the arrays from a key, each on its own devices.
    freeze: globs of parameters that training leaves as they are.
    average: the mean over steps that is kept.
    rows: how label rows are changed; None: by the optimizer.
  """

  graphdef: nnx.GraphDef
  abstract: TrainState
  init: Callable[[jax.Array], TrainState]
  freeze: tuple[str, ...]
  average: AverageConfig
  rows: FusedRows | None = None

  @property
  def shardings(self) -> TrainState:
    """A TrainState of NamedShardings."""
    return jax.tree.map(lambda leaf: leaf.sharding, self.abstract)

  def split(self, params: nnx.State) -> tuple[nnx.State, nnx.State]:
    """The parameters that the optimizer changes, and those that it does not."""
    return split_frozen(params, self.freeze, self.rows is not None)

  def start_averages(self, state: TrainState) -> TrainState:
    """A fresh state once its parameters are what they begin with."""
    if state.averages is None:
      return state
    trained, _ = self.split(state.params)
    # Copied: both are donated to the first step.
    copy = jax.jit(_copied, out_shardings=self.shardings.averages)
    return dataclasses.replace(state, averages=copy(trained))


def plan_state(
  build: Callable[[nnx.Rngs], nnx.Module],
  optimizer: optax.GradientTransformation,
  mesh: jax.sharding.Mesh,
  freeze: Sequence[str] = (),
  average: AverageConfig | None = None,
  rows: FusedRows | None = None,
) -> StatePlan:
  """Lays out the state of a model and its optimizer on a mesh.

  Args:
    build: makes the model; its parameters carry partition specs.
    optimizer: whose slots get their parameters' specs. Left to jit alone,
      they would be replicated.
    mesh: the devices.
    freeze: globs over the paths of parameters that are not trained.
    average: the mean over steps that is kept; None: none.
    rows: how label rows are changed; None: by the optimizer.
  """
  average = NoAverage() if average is None else average

  def init(key: jax.Array) -> TrainState:
    model = build(nnx.Rngs(key))
    params = nnx.state(model, nnx.Param)
    trained, _ = split_frozen(params, freeze, rows is not None)
    mean = _copied(trained) if average.averages else None
    slots = None if rows is None else rows.slots(model.head)
    opt_state = optimizer.init(trained)
    return TrainState(jnp.int32(0), params, opt_state, mean, slots)

  with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
    graphdef = nnx.graphdef(nnx.eval_shape(lambda: build(nnx.Rngs(0))))
    shapes = jax.eval_shape(init, jax.random.key(0))
    shardings = shardings_of(shapes, mesh)
  abstract = jax.tree.map(
    lambda leaf, sharding: jax.ShapeDtypeStruct(
      leaf.shape, leaf.dtype, sharding=sharding
    ),
    shapes,
    shardings,
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
  """The parameters that the optimizer changes, and those that it does not.

  Args:
    params: of a model.
    freeze: globs over paths, of further ones that it does not change.
    rows: whether label rows are among the latter.
  """

  def held(path: tuple[Any, ...], variable: Any) -> bool:
    if rows and is_label_row(path, variable):
      return True
    return in_group('/'.join(map(str, path)), freeze)

  frozen, trained = nnx.split_state(params, nnx.Any(Frozen, held), ...)
  return trained, frozen


def _copied(params: nnx.State) -> nnx.State:
  return jax.tree.map(jnp.copy, params)


def shardings_of(tree: Any, mesh: jax.sharding.Mesh) -> Any:
  """NamedShardings from the specs that variables carry; else replicated."""
  return jax.tree.map(
    lambda spec: NamedSharding(mesh, spec if isinstance(spec, P) else P()),
    nnx.get_partition_spec(tree),
    is_leaf=lambda leaf: isinstance(leaf, P),
  )


BIASES = 'head/bias'


def with_label_start(plan: StatePlan, biases: np.ndarray | None) -> StatePlan:
  """The plan of states whose label rows begin with numbers of their own.

  Args:
    plan: of the model, whose biases begin at 0 and whose labels have no places
      for what rounding leaves out.
    biases: [L] first biases of the head; None: they stay as they are.

  Returns:
    The plan; where labels have such places, its states have them.
  """

  def init(key: jax.Array) -> TrainState:
    state = plan.init(key)
    params = by_path(state.params)
    if biases is not None:
      first = np.asarray(biases, np.float32)
      params[BIASES] = put_labels(first, params[BIASES].sharding)
    slots = by_path(state.row_slots)
    if PLACE in slots:
      places = kahan_places(plan.rows.compensated)
      slots[PLACE] = put_labels(places, slots[PLACE].sharding)
    state = dataclasses.replace(
      state,
      params=from_paths(state.params, params),
      row_slots=from_paths(state.row_slots, slots),
    )
    return plan.start_averages(state)

  return dataclasses.replace(plan, init=init)
