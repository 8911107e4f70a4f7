"""Makes the training step, which is compiled once per batch shape."""

from collections.abc import Callable
import dataclasses
import functools

from flax import nnx, struct
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import numpy as np
import optax

from xjax.core.mesh import DATA, LABEL, put_labels
from xjax.losses.loss import ChunkLoss, LabelWeights
from xjax.networks.batch import TokenBatch
from xjax.networks.heads.chunks import row_spec
from xjax.networks.rows.fused import RowUpdate
from xjax.networks.rows.update import Slots
from xjax.train.state import StatePlan, TrainState


@struct.dataclass
class StepMetrics:
  """Holds the numbers that a step reports, which show divergence.

  If a parameter that the optimizer changes becomes infinite or NaN, the loss or
  the norm of that step is not finite. If a label row that the optimizer does
  not change does, the loss of the next step is not finite.
  """

  # float32, of the parameters before the step, summed over labels and averaged
  # over the batch's documents.
  loss: jax.Array
  # float32, global norm before clipping, over the gradients of all parameters
  # that the optimizer changes. A batch that is not full has a smaller norm.
  grad_norm: jax.Array


TrainStep = Callable[
  [TrainState, TokenBatch, jax.Array], tuple[TrainState, StepMetrics]
]


def make_train_step(
  plan: StatePlan,
  optimizer: optax.GradientTransformation,
  loss: ChunkLoss,
  mesh: jax.sharding.Mesh,
  accumulate: int = 1,
  weights: LabelWeights | None = None,
) -> TrainStep:
  """Compiles the step (state, batch, key) -> (state, metrics).

  The state is donated. The randomness depends only on the key and state.step,
  so a resumed run draws the same numbers as an uninterrupted one. Call the step
  under jax.set_mesh(mesh). `accumulate` micro-batches are computed one after
  the other; their gradients are summed and divided by the rows of the batch.
  So, without dropout, the result does not depend on their number.
  """

  def step(
    state: TrainState,
    batch: TokenBatch,
    key: jax.Array,
    weights: LabelWeights | None = None,
  ) -> tuple[TrainState, StepMetrics]:
    key = jax.random.fold_in(key, state.step)
    trained, frozen = plan.split(state.params)
    row_update = None  # the label rows' own rule, for this step
    if plan.rows is not None:
      slots = nnx.to_pure_dict(state.row_slots)
      scalars = plan.rows.scalars(state.step, key)
      row_update = RowUpdate(plan.rows.rule, slots, scalars)

    def batch_loss(
      trained: nnx.State, batch: TokenBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[nnx.State, Slots] | None]:
      # Returns the loss summed over documents, and the label rows and their
      # slots after the step; None if the optimizer changes label rows.
      model = nnx.merge(plan.graphdef, trained, frozen)
      rngs = nnx.Rngs(dropout=key)
      if row_update is None:
        return model.loss(batch, loss, rngs, weights), None
      return model.fused_loss(batch, loss, rngs, weights, row_update)

    sum_and_grads = jax.value_and_grad(batch_loss, has_aux=True)
    if accumulate > 1:
      sum_and_grads = _accumulated(sum_and_grads, accumulate, mesh)
    (total, rows), grads = sum_and_grads(trained, batch, key)
    documents = jnp.maximum(batch.mask_B.sum(), 1).astype(jnp.float32)
    # The gradients are divided by the number of all rows, with padding rows. So
    # a document counts alike in every batch; the last of a bucket may have few.
    grads = jax.tree.map(lambda grad: grad / len(batch.mask_B), grads)
    grads = plan.without_frozen(grads)
    norm = optax.tree.norm(grads)
    state = _apply_gradients(state, grads, plan, optimizer)
    # The label rows have changed in the forward pass already (rows/fused.py).
    return _with_rows(state, rows), StepMetrics(total / documents, norm)

  # Without out_shardings, jit might choose another sharding for the new state
  # than for the old one, and compile a second program for the next step.
  compiled = jax.jit(
    step,
    donate_argnums=0,
    out_shardings=(plan.shardings, NamedSharding(mesh, P())),
  )
  if weights is None:
    return compiled
  # The weights are an argument, because constants of this size (one weight per
  # label) would make the compiled program large.
  return functools.partial(compiled, weights=weights)


def _with_rows(
  state: TrainState, changed: tuple[nnx.State, Slots] | None
) -> TrainState:
  if changed is None:
    return state
  rows, slots = changed
  params = nnx.merge_state(state.params, nnx.State({'head': rows}))
  row_slots = state.row_slots
  nnx.replace_by_pure_dict(row_slots, slots)
  return dataclasses.replace(state, params=params, row_slots=row_slots)


def _apply_gradients(
  state: TrainState,
  grads: nnx.State,
  plan: StatePlan,
  optimizer: optax.GradientTransformation,
) -> TrainState:
  trained, frozen = plan.split(state.params)
  updates, opt_state = optimizer.update(grads, state.opt_state, trained)
  trained = optax.apply_updates(trained, updates)
  step, averages = state.step + 1, state.averages
  if averages is not None:
    share = plan.average.newest_share(step)
    averages = update_mean(averages, trained, share)
  params = nnx.merge_state(trained, frozen)
  return TrainState(step, params, opt_state, averages, state.row_slots)


def update_mean(
  mean: nnx.State, newest: nnx.State, share: jax.Array
) -> nnx.State:
  """Returns the mean of parameters after one more step."""
  # Not share * new + (1 - share) * old: rounded factors do not add up to 1, and
  # a parameter that stands still would drift away from its mean. With share 1,
  # the result must equal the newest parameters exactly.
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
  """Puts label weights on the mesh as float32, with label rows' sharding.

  The NumPy weights [L] must be the same on every process. Padding labels get
  weight 0. `axes` are the mesh axes of the head's label rows.
  """
  sharding = NamedSharding(mesh, row_spec(axes))
  return jax.tree.map(
    lambda weights_L: put_labels(np.asarray(weights_L, np.float32), sharding),
    weights,
  )


def _accumulated(
  sum_and_grads: Callable, accumulate: int, mesh: jax.sharding.Mesh
) -> Callable:
  """Returns a function that sums losses and gradients of micro-batches."""
  rows = NamedSharding(mesh, P(None, DATA))

  def cut(array: jax.Array) -> jax.Array:
    # With n micro-batches, each of them has every n-th row of the batch. So
    # every row stays on its device.
    micro = array.reshape(-1, accumulate, *array.shape[1:]).swapaxes(0, 1)
    return jax.lax.with_sharding_constraint(micro, rows)

  def sum_micro_batches(
    trained: nnx.State, batch: TokenBatch, key: jax.Array
  ) -> tuple[tuple[jax.Array, None], nnx.State]:
    def add(carry: tuple, micro: tuple) -> tuple[tuple, None]:
      index, documents = micro
      # Without this, all micro-batches would have the same dropout.
      sums = sum_and_grads(trained, documents, jax.random.fold_in(key, index))
      return jax.tree.map(jnp.add, carry, sums), None

    zeros = jax.tree.map(jnp.zeros_like, trained)
    zero = ((jnp.float32(0), None), zeros)
    micros = (jnp.arange(accumulate), jax.tree.map(cut, batch))
    # The scan keeps the activations of only one micro-batch in memory.
    return jax.lax.scan(add, zero, micros)[0]

  return sum_micro_batches
