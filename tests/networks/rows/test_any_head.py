"""Rows of heads other than OneVsAll, changed on shortlists."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.head_programs import lists
from tests.fixtures.heads import KINDS, MEAN, REAL, B, L, hidden_states
from tests.fixtures.networks import on_mesh, thorough
from xjax.core.mesh import padded_labels
from xjax.losses.bce import bce
from xjax.losses.softmax import Softmax
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.shortlist import shortlist_loss
from xjax.networks.rows.any_head import any_head_loss, row_shape
from xjax.networks.rows.fused import RowUpdate, StepScalars
from xjax.networks.rows.update import FusedAdagrad, FusedAdam, RowGradient

RATE, DECAY, STEP = 0.5, 0.3, 4
VECTORS = 'attention', 'output'


def run(name, loss, rule, mesh=None):
  """The loss, arrays and other gradients after a step.

  Without a mesh, these are the loss, the arrays before, and the gradients of
  the rows and of all else, on one device.
  """
  kind, shortlist = KINDS[name], jax.tree.map(jnp.asarray, lists())
  sizes = map(jnp.float32, (RATE, DECAY))
  scalars = StepScalars(*sizes, jnp.uint32(0), jnp.int32(STEP))
  with on_mesh(*mesh or (1, 1)):
    head = kind.make(4)
    graphdef, rows, shared = split_head(head)
    rng = np.random.default_rng(3)
    slots = {
      name: jnp.asarray(rng.uniform(0, 0.1, slot.shape), jnp.float32)
      for name, slot in rule.slots(*row_shape(head)).items()
    }

    @jax.jit
    def step(shared, hidden_BTD, rows, slots):
      def total(shared, hidden_BTD, rows):
        head = nnx.merge(graphdef, rows, shared)
        inputs = head.prepare(kind.features(hidden_BTD))
        step = head, inputs, shortlist, jnp.asarray(REAL), loss
        if mesh is None:
          return shortlist_loss(*step), ()
        return any_head_loss(*step, RowUpdate(rule, slots, scalars))

      by = (0, 1) if mesh else (0, 1, 2)
      slopes = jax.value_and_grad(total, by, has_aux=True)
      return slopes(shared, hidden_BTD, rows)

    (value, changed), gradients = step(
      shared, jnp.asarray(hidden_states()), rows, slots
    )
  arrays = nnx.to_pure_dict(rows) | slots
  if mesh:
    arrays = nnx.to_pure_dict(changed[0]) | changed[1]
  *others, d_rows = gradients if mesh is None else (*gradients, None)
  return float(value), jax.tree.map(np.array, (arrays, others, d_rows))


def expected(name, loss, rule):
  """The results of a step, by the plain gradients of all rows."""
  total, (arrays, gradients, d_rows) = run(name, loss, rule)
  ids_BA = lists().ids_BA[REAL]
  used = np.unique(ids_BA[(ids_BA >= 0) & (ids_BA < L)])
  d = {k: x[used] / B for k, x in nnx.to_pure_dict(d_rows).items()}
  d_kernel = np.concatenate([d[name] for name in VECTORS], axis=1)
  gradient = RowGradient(jnp.asarray(d_kernel), jnp.asarray(d['bias']))
  before = {name: jnp.asarray(arrays[name][used]) for name in rule.names}
  after = rule.update_slots(gradient, before)
  towards = rule.direction(gradient, after, jnp.int32(STEP))
  for name, slot in after.items():
    arrays[name][used] = slot
  halves = np.split(np.asarray(towards.kernel_CD), 2, axis=1)
  for name, half in zip(VECTORS, halves):
    arrays[name][used] -= RATE * (half + DECAY * arrays[name][used])
  arrays['bias'][used] -= RATE * np.asarray(towards.bias_C)
  return total, arrays, gradients, used


def assert_same(array, exact):
  """Compares arrays relative to their lengths, if these are above 1."""
  difference = np.linalg.norm(np.asarray(array, np.float64) - exact)
  assert difference <= 1e-6 * max(np.linalg.norm(exact), 1)


@pytest.mark.parametrize(
  ('name', 'loss', 'rule', 'mesh'),
  [
    ('unified', Softmax(), FusedAdam(), (2, 4)),
    thorough('label attention', MEAN, FusedAdam(), (1, 1)),
    thorough('label attention', Softmax(), FusedAdagrad(), (2, 4)),
    thorough('unified', Softmax(), FusedAdam(), (8, 1)),
    thorough('unified', bce, FusedAdam(), (1, 8)),
  ],
)
def test_rows_of_shortlists_change_by_their_rule(name, loss, rule, mesh):
  total, (arrays, gradients, _) = run(name, loss, rule, mesh)
  exact, after, exact_gradients, used = expected(name, loss, rule)
  assert total == pytest.approx(exact, rel=1e-6)
  jax.tree.map(assert_same, gradients, exact_gradients)
  others = np.setdiff1d(np.arange(padded_labels(L)), used)
  assert set(arrays) == {*VECTORS, 'bias', *rule.names}
  for name, array in arrays.items():
    assert_same(array, after[name])
    np.testing.assert_array_equal(array[others], after[name][others])
