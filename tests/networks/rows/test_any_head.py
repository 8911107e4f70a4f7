"""Rows of heads other than OneVsAll, changed on shortlists."""

import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import on_mesh, thorough
from xjax.core.mesh import padded_labels
from xjax.core.types import PAD
from xjax.losses.bce import BCE, bce
from xjax.losses.loss import Reduction
from xjax.losses.softmax import Softmax
from xjax.networks.batch import Shortlist
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.head import HeadInputs, TokenFeatures
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.networks.heads.shortlist import shortlist_loss
from xjax.networks.heads.unified import UnifiedConfig
from xjax.networks.rows.any_head import any_head_loss, row_shape
from xjax.networks.rows.fused import RowUpdate, StepScalars
from xjax.networks.rows.update import AdagradRow, LazyAdam, RowGradient

B, T, D, E, L, A = 8, 5, 6, 4, 83, 9
MASK = np.arange(B) < 7
MEAN = BCE(reduction=Reduction.MEAN_LABELS)
RATE, DECAY, STEP = 0.5, 0.3, 4


def attention():
  return LabelAttentionConfig(chunk=4).build(
    HeadInputs(D, L, bias_L=np.linspace(-1, 1, L)), nnx.Rngs(0)
  )


def unified():
  labels = np.arange(L)
  head = UnifiedConfig(chunk=4, row_dropout=0.0).build(
    HeadInputs(
      D, L, seen_L=labels % 5 != 0, hidden_L=labels % 10 == 5, descriptor_dim=E
    ),
    nnx.Rngs(0),
  )
  normal = jax.random.normal(jax.random.key(9), (padded_labels(L), D))
  head.attention[...], head.output[...] = normal, normal[:, ::-1]
  head.descriptors[...] = normal[:, :E]
  return head


def draw():
  rng = np.random.default_rng(1)
  hidden_BTD = rng.normal(size=(B, T, D)).astype(np.float32)
  few = rng.permutation(L)[:40]
  ids_BA = np.stack([rng.permutation(few)[:A] for _ in range(B)])
  ids_BA = np.where(rng.random((B, A)) < 0.3, PAD, ids_BA).astype(np.int32)
  gold_BA = rng.random((B, A)) < 0.3
  shortlist = Shortlist(*map(jnp.asarray, (ids_BA, gold_BA)))
  features = TokenFeatures(jnp.asarray(hidden_BTD), jnp.full(B, T, jnp.int32))
  return features, shortlist


def start(make, rule):
  """Returns (graphdef, rows, shared) of a head, and slots of later steps."""
  head = make()
  rng = np.random.default_rng(3)
  slots = {
    name: jnp.asarray(rng.uniform(0, 0.1, slot.shape), jnp.float32)
    for name, slot in rule.slots(*row_shape(head)).items()
  }
  return split_head(head), slots


def changed(make, loss, rule, mesh):
  """Returns the loss, the arrays after the step, and the other gradients."""
  features, shortlist = draw()
  scalars = StepScalars(
    *map(jnp.float32, (RATE, DECAY)), jnp.uint32(0), jnp.int32(STEP)
  )
  with on_mesh(*mesh):
    (graphdef, rows, shared), slots = start(make, rule)

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
    def run(shared, hidden_BTD, rows, slots):
      head = nnx.merge(graphdef, rows, shared)
      inputs = features.replace(hidden_BTD=hidden_BTD)
      step = RowUpdate(rule, slots, scalars)
      mask_B = jnp.asarray(MASK)
      return any_head_loss(head, inputs, shortlist, mask_B, loss, step)

    results = run(shared, features.hidden_BTD, rows, slots)
    (loss, (rows, slots)), gradients = jax.block_until_ready(results)
  arrays = nnx.to_pure_dict(rows) | slots
  return float(loss), jax.tree.map(np.asarray, (arrays, gradients))


def expected(make, loss, rule):
  """Returns `changed`, by the plain gradients of all rows."""
  features, shortlist = draw()
  with on_mesh():
    (graphdef, rows, shared), slots = start(make, rule)

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1, 2))
    def run(shared, hidden_BTD, rows):
      head = nnx.merge(graphdef, rows, shared)
      inputs = features.replace(hidden_BTD=hidden_BTD)
      mask_B = jnp.asarray(MASK)
      return shortlist_loss(head, inputs, shortlist, mask_B, loss)

    total, (*gradients, d_rows) = run(shared, features.hidden_BTD, rows)
  used = np.unique(np.asarray(shortlist.ids_BA)[MASK])
  used = used[used != PAD]
  arrays = {k: np.array(x) for k, x in (nnx.to_pure_dict(rows) | slots).items()}
  d = {k: x[used] / B for k, x in nnx.to_pure_dict(d_rows).items()}
  vectors = 'attention', 'output'
  d_kernel = np.concatenate([d[name] for name in vectors], axis=1)
  gradient = RowGradient(jnp.asarray(d_kernel), jnp.asarray(d['bias']))
  before = {name: jnp.asarray(arrays[name][used]) for name in slots}
  after = rule.update_slots(gradient, before)
  towards = rule.direction(gradient, after, jnp.int32(STEP))
  for name, slot in after.items():
    arrays[name][used] = slot
  halves = np.split(np.asarray(towards.kernel_CD), 2, axis=1)
  for name, half in zip(vectors, halves):
    arrays[name][used] -= RATE * (half + DECAY * arrays[name][used])
  arrays['bias'][used] -= RATE * np.asarray(towards.bias_C)
  gradients = jax.tree.map(np.asarray, tuple(gradients))
  return float(total), (arrays, gradients), used


def assert_same(array, exact):
  """Compares arrays relative to their lengths, if these are above 1."""
  difference = np.linalg.norm(np.asarray(array, np.float64) - exact)
  assert difference <= 1e-6 * max(np.linalg.norm(exact), 1)


@pytest.mark.parametrize(
  ('make', 'loss', 'rule', 'mesh'),
  [
    (attention, MEAN, LazyAdam(), (1, 1)),
    thorough(attention, Softmax(), AdagradRow(), (2, 4)),
    (unified, Softmax(), LazyAdam(), (2, 4)),
    thorough(unified, Softmax(), LazyAdam(), (8, 1)),
    thorough(unified, bce, LazyAdam(), (1, 8)),
  ],
)
def test_rows_of_shortlists_change_by_their_rule(make, loss, rule, mesh):
  total, (arrays, gradients) = changed(make, loss, rule, mesh)
  exact, (after, exact_gradients), used = expected(make, loss, rule)
  assert total == pytest.approx(exact, rel=1e-6)
  jax.tree.map(assert_same, gradients, exact_gradients)
  assert set(arrays) == {'attention', 'output', 'bias', *rule.names}
  others = np.setdiff1d(np.arange(padded_labels(L)), used)
  for name, array in arrays.items():
    assert_same(array, after[name])
    np.testing.assert_array_equal(array[others], after[name][others])
