"""Row updates on shortlists: against the fused pass, and against gradients."""

import dataclasses
import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import thorough
from xjax.core.mesh import padded_labels
from xjax.core.types import PAD
from xjax.losses.bce import BCE, bce
from xjax.losses.loss import Reduction
from xjax.losses.softmax import Softmax
from xjax.networks.batch import Shortlist
from xjax.networks.heads.shortlist import shortlist_loss
from xjax.networks.rows.fused import RowUpdate, StepScalars, fused_loss
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import SGD, AdagradRow

B, L, A = 16, 307, 11
MEAN = BCE(reduction=Reduction.MEAN_LABELS)
FEW = np.random.default_rng(8).permutation(L)[:60]  # labels of all shortlists


def all_labels(step):
  """Returns shortlists of all labels, each in an order of its own."""
  rng = np.random.default_rng(2)
  return marked(step, np.stack([rng.permutation(L) for _ in range(B)]))


def some_labels(step):
  """Returns shortlists of unequal lengths, one of them empty."""
  rng = np.random.default_rng(1)
  ids_BA = np.stack([rng.permutation(FEW)[:A] for _ in range(B)])
  ids_BA = np.where(rng.random((B, A)) < 0.3, PAD, ids_BA)
  ids_BA[3], ids_BA[step.real :, 0] = PAD, L - 1  # real documents have no L - 1
  ids_BA[: step.real][ids_BA[: step.real] == L - 1] = PAD
  lists = marked(step, ids_BA)
  gold_BA = jnp.asarray(rng.random(ids_BA.shape) < 0.2)
  return Shortlist(lists.ids_BA, gold_BA)


def marked(step, ids_BA):
  positives_BP = step.draw()[1]
  gold_BA = (ids_BA[:, :, None] == positives_BP[:, None]).any(axis=2)
  ids_BA = ids_BA.astype(np.int32)
  return Shortlist(*map(jnp.asarray, (ids_BA, gold_BA)))


def program(step, **more):
  """Returns the function of one step, to be jitted."""
  graphdef = nnx.graphdef(step.start()[0])

  def run(params, slots, document_BD, mask_B, shortlist):
    def total(document_BD):
      head = nnx.merge(graphdef, params)
      scalars = StepScalars(
        *map(jnp.float32, (step.rate, step.decay)), jnp.uint32(5)
      )
      taken = RowUpdate(step.rule, slots, scalars)
      return fused_loss(
        head, document_BD, shortlist, mask_B, step.loss, taken, **more
      )

    return jax.value_and_grad(total, has_aux=True)(document_BD)

  return run


def taken(step, shortlist, **more):
  """Returns (loss, d_document_BD, arrays after the step, by name)."""
  document_BD, _, mask_B = map(jnp.asarray, step.draw())
  with step.on_mesh():
    head, slots = step.start()
    run = jax.jit(program(step, **more))
    results = run(nnx.state(head), slots, document_BD, mask_B, shortlist)
    (loss, (rows, slots)), d_document_BD = jax.block_until_ready(results)
  arrays = nnx.to_pure_dict(rows) | slots
  arrays = {name: np.asarray(x) for name, x in arrays.items()}
  return float(loss), np.asarray(d_document_BD), arrays


def before(step):
  with step.at(mesh=(1, 1)).on_mesh():
    head, slots = step.start()
  arrays = nnx.to_pure_dict(nnx.state(head)) | slots
  return {name: np.asarray(x) for name, x in arrays.items()}


@pytest.mark.parametrize(
  ('fields', 'mesh'),
  [
    ({'storage': Storage.FLOAT32}, (1, 1)),
    ({'storage': Storage.BFLOAT16}, (2, 4)),
    thorough({'storage': Storage.BFLOAT16}, (1, 1)),
    thorough({'storage': Storage.COMPENSATED}, (1, 1)),
    ({'storage': Storage.FLOAT8}, (2, 4)),
    thorough({'storage': Storage.FLOAT8}, (1, 1)),
    thorough({'storage': Storage.FLOAT32, 'chunk': 4000}, (1, 1)),
    thorough({'storage': Storage.BFLOAT16, 'chunk': 4000}, (1, 1)),
    thorough({'storage': Storage.COMPENSATED, 'chunk': 4000}, (1, 1)),
    ({'storage': Storage.FLOAT8, 'chunk': 4000}, (1, 1)),
    ({'loss': Softmax(), 'rule': AdagradRow()}, (1, 1)),
    ({'loss': MEAN, 'rule': AdagradRow()}, (1, 1)),
  ],
)
def test_all_labels_change_as_in_the_fused_pass(step_trial, fields, mesh):
  """On any mesh, rows are exactly those of the fused pass on one device."""
  step = step_trial(**{'rule': SGD(0.9), 'key': 5} | fields)
  lists = all_labels(step)
  expected = step.fused()
  loss, d_document_BD, arrays = taken(step.at(mesh=mesh), lists)
  assert loss == pytest.approx(expected.loss, rel=1e-6)
  off = d_document_BD.astype(np.float64) - expected.d_document_BD
  length = np.linalg.norm(expected.d_document_BD)
  assert np.linalg.norm(off) <= 1e-6 * length
  for name, after in (expected.rows | expected.slots).items():
    # Sums are fused in other ways, so the last digit of a float32 may differ,
    # and with it the bfloat16 that stores what is left of this float32.
    if step.storage is Storage.FLOAT32 or name.endswith('momentum'):
      np.testing.assert_allclose(arrays[name][:L], after, 1e-6, 1e-6)
    elif name == 'left_out':
      both = arrays[name][: len(after)], after
      ours, theirs = (x.view(jnp.bfloat16).astype(float) for x in both)
      largest = np.abs(expected.rows['kernel'].astype(float)).max()
      last_bit = {'rtol': 2**-7, 'atol': 1e-6 * largest}
      np.testing.assert_allclose(ours, theirs, **last_bit)
    else:
      np.testing.assert_array_equal(arrays[name][:L], after, err_msg=name)


def expected_rows(step, lists, **more):
  """Returns (loss, d_document_BD, rows after SGD), by the plain gradients."""
  document_BD, _, mask_B = map(jnp.asarray, step.draw())
  with step.on_mesh():
    graphdef, params = nnx.split(step.start()[0])

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1))
    def run(params, document_BD):
      head = nnx.merge(graphdef, params)
      return shortlist_loss(head, document_BD, lists, mask_B, step.loss, **more)

    loss, (d_rows, d_document_BD) = run(params, document_BD)
  d_rows, rows = nnx.to_pure_dict(d_rows), before(step)
  used = np.unique(np.asarray(lists.ids_BA)[: step.real])
  used = used[used != PAD]
  decay = {'kernel': step.decay, 'bias': 0}
  for name in decay:
    d = np.asarray(d_rows[name])[used] / B + decay[name] * rows[name][used]
    rows[name] = rows[name].copy()
    rows[name][used] -= step.rate * d
  return float(loss), np.asarray(d_document_BD), rows, used


@pytest.mark.parametrize(
  ('loss', 'mesh'),
  [
    (MEAN, (1, 1)),
    (Softmax(), (2, 4)),
    thorough(MEAN, (1, 8)),
    thorough(bce, (8, 1)),
  ],
)
def test_other_rows_stay(step_trial, loss, mesh):
  """Entries and labels have weights."""
  step = step_trial(loss, chunk=7, mesh=mesh)
  lists, rng = some_labels(step), np.random.default_rng(4)
  slots_BA = rng.uniform(0, 3, lists.ids_BA.shape).astype(np.float32)
  lists = dataclasses.replace(lists, weights_BA=jnp.asarray(slots_BA))
  shortlisted = taken(step, lists)
  expected = expected_rows(step.at(mesh=(1, 1)), lists)
  assert shortlisted[0] == pytest.approx(expected[0], rel=1e-6)
  np.testing.assert_allclose(shortlisted[1], expected[1], 1e-5, 1e-6)
  np.testing.assert_array_equal(shortlisted[1][step.real :], 0)
  first, used = before(step), expected[3]
  others = np.setdiff1d(np.arange(padded_labels(L)), used)
  assert 20 < len(used) < 60 and L - 1 in others
  for name in ('kernel', 'bias'):
    after = shortlisted[2][name]
    np.testing.assert_allclose(after, expected[2][name], 1e-5, 1e-5)
    np.testing.assert_array_equal(after[others], first[name][others])
  kernel_YD = shortlisted[2]['kernel'][used]
  assert (kernel_YD != first['kernel'][used]).any(axis=1).all()


@pytest.mark.parametrize(
  'storage',
  [
    thorough(Storage.FLOAT32),
    thorough(Storage.BFLOAT16),
    Storage.COMPENSATED,
    Storage.FLOAT8,
  ],
)
def test_rows_and_slots_of_other_labels_rest(step_trial, storage):
  step = step_trial(rule=SGD(0.9), storage=storage, chunk=7)
  first, (_, _, after) = before(step), taken(step, some_labels(step))
  used = np.unique(np.asarray(some_labels(step).ids_BA)[: step.real])
  others = np.setdiff1d(np.arange(padded_labels(L)), used)
  assert first.keys() == after.keys()
  for name in after.keys() - {'left_out'}:
    np.testing.assert_array_equal(after[name][others], first[name][others])
  assert (
    after['bias_momentum'][used[1:]] != first['bias_momentum'][used[1:]]
  ).all()
  if storage is Storage.COMPENSATED:
    kept = first['place'] != PAD
    np.testing.assert_array_equal(after['place'], first['place'])
    changed = after['left_out'][: len(kept)].any(axis=1)
    assert not changed[others].any() and changed[used[1:]].any()


def test_one_trace_serves_any_number_of_distinct_labels(step_trial):
  step, traces = step_trial(), []
  document_BD, _, mask_B = map(jnp.asarray, step.draw())
  few = some_labels(step)
  none = Shortlist(jnp.full_like(few.ids_BA, PAD), few.gold_BA)
  with step.on_mesh():
    head, slots = step.start()
    params, inner = nnx.state(head), program(step)

    @jax.jit
    def run(*arguments):
      traces.append(arguments)
      return inner(*arguments)

    run(params, slots, document_BD, mask_B, few)
    results = run(params, slots, document_BD, mask_B, none)
  (loss, (rows, _)), d_document_BD = results
  assert len(traces) == 1 and float(loss) == 0 and not d_document_BD.any()
  for name, row in nnx.to_pure_dict(rows).items():
    np.testing.assert_array_equal(row, before(step)[name])
