"""Tests that the fused pass makes no whole logits and no whole gradients."""

import re

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import equations, on_mesh, thorough
from xjax.core.mesh import padded_labels
from xjax.losses.bce import bce
from xjax.losses.softmax import Softmax
from xjax.networks.batch import Shortlist
from xjax.networks.heads.head import HeadInputs
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.rows.fused import RowUpdate, StepScalars, fused_loss
from xjax.networks.rows.kahan import kahan_slots
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedAdagrad, FusedSGD

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
