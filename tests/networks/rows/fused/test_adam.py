"""Adam in the pass over all rows, and at rest in the pass over shortlists."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from xjax.core.types import PAD
from xjax.networks.batch import Shortlist
from xjax.networks.heads.streaming import head_loss
from xjax.networks.rows.fused import RowUpdate, StepScalars, fused_loss
from xjax.networks.rows.update import LazyAdam

RATE, DECAY, STEPS, LABELS = 0.05, 0.3, 3, 307


def start(step):
  head, slots = step.start()
  return nnx.split(head), {name: 0 * slot for name, slot in slots.items()}


def scalars(number):
  rate, decay = jnp.float32(RATE), jnp.float32(DECAY)
  return StepScalars(rate, decay, jnp.uint32(0), jnp.int32(number))


def test_over_all_rows_it_is_adamw(step_trial):
  step = step_trial(rule=LazyAdam())
  document_BD, *gold = map(jnp.asarray, step.draw())
  with step.on_mesh():
    (graphdef, params), slots = start(step)

    @jax.jit
    def fused(params, slots, number):
      taken = RowUpdate(step.rule, slots, scalars(number))
      head = nnx.merge(graphdef, params)
      return fused_loss(head, document_BD, *gold, step.loss, taken)[1]

    @jax.jit
    @jax.grad
    def gradient(params):
      head = nnx.merge(graphdef, params)
      return head_loss(head, document_BD, *gold, step.loss) / len(document_BD)

    decays = nnx.map_state(lambda path, _: path == ('kernel',), params)
    optimizer = optax.adamw(RATE, weight_decay=DECAY, mask=decays)
    twin, state, rows = params, optimizer.init(params), params
    for number in range(STEPS):
      rows, slots = jax.block_until_ready(fused(rows, slots, number))
      updates, state = optimizer.update(gradient(twin), state, twin)
      twin = optax.apply_updates(twin, updates)
  first = nnx.to_pure_dict(params)
  rows, twin = nnx.to_pure_dict(rows), nnx.to_pure_dict(twin)
  for name, exact in twin.items():
    found_LD, exact = rows[name][:LABELS], exact[:LABELS]
    np.testing.assert_allclose(found_LD, exact, rtol=1e-5, atol=1e-5)
    assert np.abs(exact - first[name][:LABELS]).max() > RATE


def test_labels_on_no_shortlist_rest(step_trial):
  """After a step with labels 0 to 9, a step with labels 5 to 14."""
  step = step_trial(rule=LazyAdam())
  document_BD, _, mask_B = map(jnp.asarray, step.draw())
  lists = np.full((len(mask_B), 12), PAD, np.int32)
  lists[:, :10] = np.arange(10)

  def shortlist(ids_BA):
    gold_BA = ids_BA % 4 == 1
    return Shortlist(*map(jnp.asarray, (ids_BA, gold_BA)))

  with step.on_mesh():
    (graphdef, params), slots = start(step)

    @jax.jit
    def change(params, slots, number, shortlist):
      taken = RowUpdate(step.rule, slots, scalars(number))
      head = nnx.merge(graphdef, params)
      return fused_loss(head, document_BD, shortlist, mask_B, step.loss, taken)[
        1
      ]

    arrays = [params, slots]
    states = [nnx.to_pure_dict(params) | slots]
    for number, more in enumerate((0, 5)):
      ids_BA = np.where(lists == PAD, PAD, lists + more)
      arrays = jax.block_until_ready(change(*arrays, number, shortlist(ids_BA)))
      states.append(nnx.to_pure_dict(arrays[0]) | arrays[1])
  zero, one, two = (jax.tree.map(np.asarray, state) for state in states)
  assert set(two) == {'kernel', 'bias', *step.rule.names}
  for name in two:
    np.testing.assert_array_equal(one[name][10:], zero[name][10:])
    np.testing.assert_array_equal(two[name][:5], one[name][:5])
    np.testing.assert_array_equal(two[name][15:], zero[name][15:])
    assert (two[name][5:15] != one[name][5:15]).reshape(10, -1).any(1).all()
