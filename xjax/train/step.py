"""One optimizer step, compiled once per batch shape."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

from flax import nnx, struct
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import numpy as np
import optax

from xjax.core.mesh import DATA, LABEL, put_labels
from xjax.core.rng import step_key
from xjax.core.types import Batch
from xjax.losses.contract import ChunkLoss, LabelWeights
from xjax.score.heads.contract import row_spec
from xjax.score.heads.fused import RowStep
from xjax.score.heads.update import Slots
from xjax.train.state import StatePlan, TrainState


@struct.dataclass
class StepMetrics:
  """What a step reports.

  Attributes:
    loss: float32, summed over labels, mean over the batch's documents, of the
      parameters before the step.
    grad_norm: float32, global norm of the optimizer's gradient before clipping;
      of a batch that is not full it is the smaller for it. While it and the
      loss are finite, so are the parameters that it changes.
      Label rows that are changed in the pass are not in it: where they cease to
      be finite, so does the next loss.
  """

  loss: jax.Array
  grad_norm: jax.Array


TrainStep = Callable[
  [TrainState, Batch, jax.Array], tuple[TrainState, StepMetrics]
]


def make_train_step(
  plan: StatePlan,
  optimizer: optax.GradientTransformation,
  loss: ChunkLoss,
  mesh: jax.sharding.Mesh,
  accumulate: int = 1,
  weights: LabelWeights | None = None,
) -> TrainStep:
  """Compiles (state, batch, key) -> (state, metrics); state is donated.

  Args:
    plan: of the state.
    optimizer: whose slots the state has.
    loss: the training loss of a chunk of labels.
    mesh: the devices; call the step under jax.set_mesh(mesh).
    accumulate: micro-batches, one after the other. Their gradients are summed
      and divided by the rows of the whole batch, so without dropout the step
      is that of the whole batch.
    weights: of the labels in the loss, as place_weights gives them; None: all
      count alike.

  Returns:
    The jitted step. Its randomness follows from the key and state.step alone.
  """

  def step(
    state: TrainState,
    batch: Batch,
    key: jax.Array,
    weights: LabelWeights | None = None,
  ) -> tuple[TrainState, StepMetrics]:
    key = step_key(key, state.step)
    trained, held = plan.split(state.params)
    sum_and_grads = jax.value_and_grad(
      functools.partial(
        _batch_loss, plan, loss, held, weights, _row_step(plan, state, key)
      ),
      has_aux=True,
    )
    if accumulate > 1:
      sum_and_grads = _accumulated(sum_and_grads, accumulate, mesh)
    (total, rows), grads = sum_and_grads(trained, batch, key)
    documents = jnp.maximum(batch.mask_B.sum(), 1).astype(jnp.float32)
    # By all rows, real or not: a document counts in a bucket's last batch, of
    # which it may be the only one, as much as in any other.
    grads = jax.tree.map(lambda grad: grad / len(batch.mask_B), grads)
    norm = optax.tree.norm(grads)
    state = _advanced(state, grads, plan, optimizer)
    return _with_rows(state, rows), StepMetrics(total / documents, norm)

  compiled = jax.jit(
    step,
    donate_argnums=0,
    out_shardings=(plan.shardings, NamedSharding(mesh, P())),
  )
  if weights is None:
    return compiled
  # An argument, not a constant of the program: it is as long as the labels.
  return functools.partial(compiled, weights=weights)


def _batch_loss(
  plan: StatePlan,
  loss: ChunkLoss,
  held: nnx.State,
  weights: LabelWeights | None,
  rows: RowStep | None,
  trained: nnx.State,
  batch: Batch,
  key: jax.Array,
) -> tuple[jax.Array, tuple[nnx.State, Slots] | None]:
  """The loss, and the head's rows and slots where they are not trained's."""
  model, rngs = nnx.merge(plan.graphdef, trained, held), nnx.Rngs(dropout=key)
  if rows is None:
    return model.loss(batch, loss, rngs, weights), None
  return model.fused_loss(batch, loss, rngs, weights, rows)


def _row_step(
  plan: StatePlan, state: TrainState, key: jax.Array
) -> RowStep | None:
  """How label rows are changed; None: by the optimizer."""
  if plan.rows is None:
    return None
  pace = plan.rows.pace(state.step, key)
  return RowStep(plan.rows.rule, nnx.to_pure_dict(state.row_slots), pace)


def _with_rows(
  state: TrainState, changed: tuple[nnx.State, Slots] | None
) -> TrainState:
  """The state with the head's rows and slots, if they were changed."""
  if changed is None:
    return state
  rows, slots = changed
  params = nnx.merge_state(state.params, nnx.State({'head': rows}))
  row_slots = state.row_slots
  nnx.replace_by_pure_dict(row_slots, slots)
  return dataclasses.replace(state, params=params, row_slots=row_slots)


def _advanced(
  state: TrainState,
  grads: nnx.State,
  plan: StatePlan,
  optimizer: optax.GradientTransformation,
) -> TrainState:
  """The state after a step with these gradients of what is trained."""
  trained, frozen = plan.split(state.params)
  updates, opt_state = optimizer.update(grads, state.opt_state, trained)
  trained = optax.apply_updates(trained, updates)
  step, averages = state.step + 1, state.averages
  if averages is not None:
    share = plan.average.newest_share(step)
    averages = update_mean(averages, trained, share)
  params = nnx.merge_state(trained, frozen)
  return TrainState(step, params, opt_state, averages, state.row_slots)


def update_mean(mean: Any, newest: Any, share: jax.Array) -> Any:
  """The mean of parameters once it has taken in a step's.

  Args:
    mean, newest: pytrees of the same arrays.
    share: of the newest; at 1 they are the mean, bit by bit.
  """
  return jax.tree.map(
    lambda old, new: jnp.where(share == 1, new, old + share * (new - old)),
    mean,
    newest,
  )


def place_weights(
  weights: LabelWeights | None,
  mesh: jax.sharding.Mesh,
  axes: tuple[str, ...] = (LABEL,),
) -> LabelWeights | None:
  """Label weights as the loss takes them, float32 and sharded as label rows.

  Args:
    weights: NumPy [L], the same on every process; rows that pad them become 0.
    mesh: the devices.
    axes: of the head.
  """
  sharding = NamedSharding(mesh, row_spec(axes))
  return jax.tree.map(
    lambda weights_L: put_labels(np.asarray(weights_L, np.float32), sharding),
    weights,
  )


def _accumulated(
  sum_and_grads: Callable, accumulate: int, mesh: jax.sharding.Mesh
) -> Callable:
  """The same sums, over micro-batches in a scan."""
  rows = NamedSharding(mesh, P(None, DATA))

  def cut(array: jax.Array) -> jax.Array:
    # Every accumulate-th row: each device's rows stay where they are.
    micro = array.reshape(-1, accumulate, *array.shape[1:]).swapaxes(0, 1)
    return jax.lax.with_sharding_constraint(micro, rows)

  def summed(
    trained: nnx.State, batch: Batch, key: jax.Array
  ) -> tuple[tuple[jax.Array, None], nnx.State]:
    def add(carry: tuple, micro: tuple) -> tuple[tuple, None]:
      index, documents = micro
      found = sum_and_grads(trained, documents, jax.random.fold_in(key, index))
      return jax.tree.map(jnp.add, carry, found), None

    zeros = jax.tree.map(jnp.zeros_like, trained)
    zero = ((jnp.float32(0), None), zeros)
    micros = (jnp.arange(accumulate), jax.tree.map(cut, batch))
    return jax.lax.scan(add, zero, micros)[0]

  return summed
