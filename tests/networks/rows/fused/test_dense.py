"""The fused pass against plain gradients, on any mesh and in any chunks."""

import dataclasses

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.fused_rows import REAL, Step, labels_and_mask, program
from tests.fixtures.networks import thorough
from xjax.core.types import PAD
from xjax.losses.bce import BCE, bce
from xjax.losses.focal import Focal
from xjax.losses.loss import Reduction
from xjax.losses.softmax import Softmax
from xjax.losses.squared_hinge import squared_hinge
from xjax.networks.rows.kahan import LEFT_OUT, PLACE
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedAdagrad, FusedAdam, FusedSGD


def off(actual, expected):
  """The length of the difference, relative to that of what is expected."""
  difference = np.asarray(actual, np.float64) - expected
  return np.linalg.norm(difference) / np.linalg.norm(expected)


MEAN = BCE(reduction=Reduction.MEAN_LABELS)
MOMENTUM, ADAM = FusedSGD(momentum=0.9), FusedAdam(b1=0.8, b2=0.9)
SOME = {'lists': 'some', 'weighted': True, 'chunk': 7}


@pytest.mark.parametrize(
  'fields',
  [
    {'loss': bce, 'weighted': True, 'rule': MOMENTUM, 'chunk': 1},
    {'loss': squared_hinge, 'weighted': True, 'chunk': 7, 'mesh': (8, 1)},
    {'loss': Softmax(), 'rule': FusedAdagrad(), 'mesh': (2, 4)},
    {'loss': Focal(2.0, 0.25), 'rule': ADAM, 'chunk': 4000},
    {'loss': MEAN, 'rule': MOMENTUM, 'weighted': True},
    SOME | {'loss': Softmax(), 'mesh': (2, 4)},
    SOME | {'loss': MEAN, 'rule': ADAM},
    # With weights in fewer bytes, the rest is as exact as ever.
    *(
      {'storage': storage, 'rule': FusedAdagrad()}
      for storage in (Storage.COMPENSATED, Storage.FLOAT8)
    ),
    SOME | {'storage': Storage.COMPENSATED, 'rule': MOMENTUM},
    *map(
      thorough,
      (
        {'chunk': 307},
        {'storage': Storage.BFLOAT16, 'rule': FusedAdagrad()},
        {'loss': Softmax(), 'weighted': True, 'mesh': (1, 8)},
        SOME | {'mesh': (8, 1)},
        SOME | {'loss': MEAN, 'mesh': (1, 8)},
        SOME | {'storage': Storage.FLOAT8, 'rule': MOMENTUM},
        {'lists': 'all', 'loss': Softmax(), 'rule': FusedAdagrad()},
        {'lists': 'all', 'loss': MEAN, 'rule': FusedAdagrad()},
      ),
    ),
  ],
  ids=str,
)
def test_a_step_is_the_dense_one(fields):
  """Labels on no shortlist rest, bit for bit."""
  step = Step(**fields)
  result, expected, first = step.fused(), step.dense(), step.before()
  assert result.loss == pytest.approx(expected.loss, rel=1e-6)
  assert off(result.d_document_BD, expected.d_document_BD) <= 1e-6
  np.testing.assert_array_equal(result.d_document_BD[REAL:], 0)
  used_L = step.used()
  exact = ['bias'] if step.storage is not Storage.FLOAT32 else first.rows
  for name in exact:
    new, after, old = (x.rows[name] for x in (result, expected, first))
    assert off(new.astype(np.float64) - old, after - old) <= 1e-6, name
  for name in result.slots.keys() - {PLACE, LEFT_OUT}:
    assert off(result.slots[name], expected.slots[name]) <= 1e-6, name
  for name, row in (result.rows | result.slots).items():
    if name != LEFT_OUT:
      old = (first.rows | first.slots)[name]
      np.testing.assert_array_equal(row[~used_L], old[~used_L], name)
      changed = (row != old).reshape(len(row), -1).any(axis=1)
      assert name in (PLACE, 'exponent') or changed[used_L].mean() > 0.5, name


@pytest.mark.parametrize(
  ('storage', 'chunk', 'mesh'),
  [
    (Storage.FLOAT8, 48, (2, 4)),
    thorough(Storage.BFLOAT16, 4000, (2, 4)),
    thorough(Storage.COMPENSATED, 48, (1, 1)),
    thorough(Storage.COMPENSATED, 4000, (1, 1)),
    thorough(Storage.FLOAT8, 4000, (1, 1)),
  ],
)
def test_shortlists_of_all_labels_round_as_the_pass_over_all_labels(
  storage, chunk, mesh
):
  """Rows are bit for bit those of one device."""
  step = Step(rule=MOMENTUM, storage=storage, chunk=chunk)
  expected = step.fused()
  result = step.at(mesh=mesh, lists='all').fused()
  assert result.loss == pytest.approx(expected.loss, rel=1e-6)
  for name, after in (expected.rows | expected.slots).items():
    row = (result.rows | result.slots)[name]
    # Sums are fused in other ways, so the last digit of a float32 may differ,
    # and with it the bfloat16 that stores what is left of this float32.
    if name.endswith('momentum'):
      np.testing.assert_allclose(row, after, 1e-6, 1e-6)
    elif name == LEFT_OUT:
      row, after = (x.view(jnp.bfloat16).astype(float) for x in (row, after))
      largest = np.abs(expected.rows['kernel'].astype(float)).max()
      np.testing.assert_allclose(row, after, 2**-7, 1e-6 * largest)
    else:
      np.testing.assert_array_equal(row, after, err_msg=name)


def test_one_trace_serves_any_number_of_distinct_labels():
  step = Step(lists='some')
  few, mask_B = labels_and_mask(step)
  none = dataclasses.replace(few, ids_BA=jnp.full_like(few.ids_BA, PAD))
  with step.on_mesh():
    head, slots = step.start()
    run, params = program(step), nnx.state(head)
    run(jnp.uint32(5), params, slots, (few, mask_B))
    results = run(jnp.uint32(5), params, slots, (none, mask_B))
  (loss, (rows, _)), d_document_BD = results
  assert run._cache_size() == 1 and float(loss) == 0
  assert not d_document_BD.any()
  before = nnx.to_pure_dict(params)
  jax.tree.map(np.testing.assert_array_equal, nnx.to_pure_dict(rows), before)


def test_documents_in_bfloat16():
  step = Step(storage=Storage.FLOAT8, mesh=(2, 4), dtype='bfloat16')
  result, expected = step.fused(), step.dense()
  assert result.d_document_BD.dtype == jnp.bfloat16
  assert result.loss == pytest.approx(expected.loss, rel=1e-2)
  assert off(result.d_document_BD, expected.d_document_BD) < 1e-2
  assert off(result.rows['bias'], expected.rows['bias']) < 1e-2
