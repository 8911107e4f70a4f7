"""The fused pass against plain gradients, on any mesh, in chunks, and small."""

import dataclasses
import re

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.fused_rows import REAL, Step, labels_and_mask, program
from tests.fixtures.networks import equations, on_mesh, thorough
from xjax.core.mesh import padded_labels
from xjax.core.types import PAD
from xjax.losses.bce import BCE, bce
from xjax.losses.focal import Focal
from xjax.losses.loss import Reduction
from xjax.losses.softmax import Softmax
from xjax.losses.squared_hinge import squared_hinge
from xjax.networks.batch import Shortlist
from xjax.networks.heads.head import HeadInputs
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.rows.fused import RowUpdate, StepScalars, fused_loss
from xjax.networks.rows.kahan import LEFT_OUT, PLACE, kahan_slots
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


B, P, D, L, CHUNK = 16, 5, 32, 60_001, 512
ROWS = padded_labels(L)
# These primitives may return arrays as large as all rows: they write a chunk in
# place, or run other primitives that do so.
IN_PLACE = {'dynamic_update_slice', 'scan', 'while', 'jit'}


def arguments(storage, rule, chunk=CHUNK):
  """Returns (graphdef, abstract (params, slots, documents, gold labels))."""
  head = nnx.eval_shape(
    lambda: OneVsAllConfig(chunk=chunk, storage=storage).build(
      HeadInputs(D, L), nnx.Rngs(0)
    )
  )
  graphdef, params = nnx.split(head)
  slots = jax.eval_shape(lambda: rule.slots(ROWS, D))
  if storage is Storage.COMPENSATED:
    slots |= jax.eval_shape(lambda: kahan_slots(np.arange(L) % 9 == 0, D))
  documents = jax.ShapeDtypeStruct((B, D), jnp.float32)
  gold = jax.ShapeDtypeStruct((B, P), jnp.int32)
  return graphdef, (params, slots, documents, gold)


def fused(graphdef, rule, loss):
  """Returns a step; `gold` are gold labels, or shortlists."""

  def run(params, slots, document_BD, gold):
    def total(document_BD):
      scalars = StepScalars(jnp.float32(0.1), jnp.float32(0.1), jnp.uint32(1))
      head, step = nnx.merge(graphdef, params), RowUpdate(rule, slots, scalars)
      mask_B = jnp.ones(B, bool)
      return fused_loss(head, document_BD, gold, mask_B, loss, step)

    return jax.value_and_grad(total, has_aux=True)(document_BD)

  return run


def large(run, inputs):
  """Returns (has documents x labels, primitives that return all rows).

  Only the program of a device counts. Outside of this program there are zeros
  for the gradient by the new rows, which is not asked for.
  """
  both, makers = False, set()
  whole = equations(jax.make_jaxpr(run)(*inputs).jaxpr)
  (shard,) = (e for e in whole if e.primitive.name == 'shard_map')
  for equation in equations(shard.params['jaxpr']):
    for variable in equation.outvars:
      shape = variable.aval.shape
      both |= B in shape and bool({L, ROWS} & set(shape))
      if len(shape) == 2 and shape[0] in (L, ROWS):
        makers.add(equation.primitive.name)
  return both, makers


@pytest.mark.parametrize('storage', Storage)
def test_no_array_is_as_large_as_the_rows(storage):
  rule = FusedSGD(momentum=0.9)
  with on_mesh():
    graphdef, inputs = arguments(storage, rule)
    both, makers = large(fused(graphdef, rule, Softmax()), inputs)
  assert not both
  assert 'dynamic_update_slice' in makers
  assert makers <= IN_PLACE


RULES = {
  Storage.FLOAT32: FusedSGD(momentum=0.9),
  Storage.BFLOAT16: FusedAdagrad(),
  Storage.COMPENSATED: FusedSGD(momentum=0.9),
  Storage.FLOAT8: FusedAdagrad(),
}


@pytest.mark.parametrize(
  'storage',
  [
    thorough(x) if x in (Storage.FLOAT32, Storage.BFLOAT16) else x
    for x in RULES
  ],
)
def test_rows_are_overwritten_where_they_lie(storage):
  rule = RULES[storage]
  with on_mesh():
    graphdef, inputs = arguments(storage, rule)
    run = jax.jit(fused(graphdef, rule, bce), donate_argnums=(0, 1))
    compiled = run.lower(*inputs).compile()
  used = compiled.memory_analysis()
  rows = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(inputs[:2]))
  assert used.alias_size_in_bytes >= rows
  # Two chunks of weights and logits, and a copy of the exponents, are held.
  chunk, exponents = 4 * CHUNK * (D + B), ROWS
  assert used.temp_size_in_bytes < 2.1 * chunk + exponents
  assert 2.1 * chunk + exponents < 0.2 * min(4 * B * ROWS, D * ROWS)
  # The loop has no copy either: it would copy once for each chunk.
  body = compiled.as_text().partition('ENTRY')[0]
  assert 'dynamic-update-slice' in body
  assert not re.findall(rf' = \S+\[(?:{ROWS}|\d+,{D})\]\S* copy\(', body)


@pytest.mark.parametrize(
  'storage', [x if x is Storage.BFLOAT16 else thorough(x) for x in Storage]
)
def test_rows_of_shortlists_are_overwritten_where_they_lie(storage):
  rule = FusedAdagrad() if storage is Storage.FLOAT8 else FusedSGD(momentum=0.9)
  with on_mesh():
    graphdef, (*state, documents, _) = arguments(storage, rule, chunk=64)
    lists = jax.ShapeDtypeStruct((B, 11), jnp.int32)
    gold = jax.ShapeDtypeStruct((B, 11), bool)
    run = fused(graphdef, rule, bce)
    given = *state, documents, Shortlist(lists, gold)
    compiled = jax.jit(run, donate_argnums=(0, 1)).lower(*given).compile()
  used = compiled.memory_analysis()
  whole = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
  assert used.alias_size_in_bytes >= whole
  # Some chunks of weights and logits and a copy of the exponents are held.
  assert used.temp_size_in_bytes < 0.1 * ROWS * D + ROWS
  copies = rf' = \S+\[(?:{ROWS}|\d+,{D})\]\S* copy\(\S*\[{ROWS}'
  assert not re.findall(copies, compiled.as_text())
