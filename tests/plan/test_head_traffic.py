"""The formula against programs."""

import dataclasses
import math

import jax
from jax.sharding import AbstractMesh, AxisType
import pytest

from xjax.core.mesh import DATA, LABEL
from xjax.losses.bce import bce
from xjax.losses.softmax import Softmax
from xjax.plan.collectives import bytes_by_kind, lowered_collectives
from xjax.plan.head_traffic import HeadPass, head_traffic
from xjax.plan.lowering import lowered_pass
from xjax.score.heads.storage import Storage
from xjax.score.heads.update import SGD, AdagradRow

SMALL = HeadPass(
  documents=48,
  positives=5,
  labels=1536,
  dim=16,
  data=4,
  label=2,
  feature_bytes=2,
  storage=Storage.BFLOAT16,
  rule=SGD(),
  chunk=64,
)
EXACT = {'storage': Storage.FLOAT32, 'feature_bytes': 4}
PASSES = {
  'fused': {},
  'softmax': {'normalised': True},
  'by_optimizer': {'rule': None, **EXACT},
  'by_optimizer_softmax': {'rule': None, 'normalised': True, **EXACT},
  'float8': {'storage': Storage.FLOAT8, 'rule': AdagradRow()},
  'compensated': {
    'storage': Storage.COMPENSATED,
    'rule': SGD(0.9),
    'compensated': 1,
  },
  'data': {'data': 8, 'label': 1},
  'label': {'data': 1, 'label': 8},
  'one': {'data': 1, 'label': 1},
}


def lowered(given):
  mesh = AbstractMesh(
    (given.data, given.label), (DATA, LABEL), axis_types=(AxisType.Auto,) * 2
  )
  loss = Softmax() if given.normalised else bce
  return lowered_pass(given, mesh, loss, 'tpu')


@pytest.mark.parametrize('name', PASSES)
def test_collectives(name):
  given = dataclasses.replace(SMALL, **PASSES[name])
  found = lowered_collectives(lowered(given))
  expected = head_traffic(given).collectives
  assert bytes_by_kind(found) == {
    kind: size
    for kind, size in {
      'all-gather': expected.all_gather,
      'reduce-scatter': expected.reduce_scatter,
      'all-reduce': expected.all_reduce + expected.scalars,
    }.items()
    if size
  }
  assert not any(one.looped for one in found)


@pytest.mark.parametrize('name', ['fused', 'softmax', 'by_optimizer'])
def test_operations(name):
  # In one chunk: a loop's body stands in a program once.
  given = dataclasses.replace(SMALL, **PASSES[name], chunk=8192)
  assert given.n_chunks == 1
  module = lowered(given).compiler_ir('stablehlo')
  assert products(module.operation) == head_traffic(given).operations


def products(operation) -> int:
  """Operations of the matrix products in a program."""
  found = 0
  if operation.name == 'stablehlo.dot_general':
    left, _ = (operand.type.shape for operand in operation.operands)
    numbers = operation.attributes['dot_dimension_numbers']
    contracted = str(numbers).split('lhs_contracting_dimensions = [')[1][0]
    shape = operation.results[0].type.shape
    found = 2 * math.prod(shape) * left[int(contracted)]
  for region in operation.regions:
    for block in region.blocks:
      found += sum(products(inner.operation) for inner in block)
  return found


@pytest.mark.parametrize('name', ['fused', 'float8', 'compensated'])
def test_what_is_held_between_steps(name):
  given = dataclasses.replace(SMALL, **PASSES[name])
  donated = jax.tree.leaves(lowered(given).args_info)
  donated = [x for x in donated if x.donated]
  size = sum(math.prod(x.shape) * x.dtype.itemsize for x in donated)
  held = head_traffic(given).held
  assert held.rows + held.slots == size // 8


def test_bfloat16_rows_move_eight_bytes_a_weight():
  # Without a cache: read by two products and by the step, written once.
  given = dataclasses.replace(SMALL, data=1, label=1)
  moved = head_traffic(given, in_cache=False).moved
  weights = given.labels * given.dim
  assert moved.rows == 8 * weights + 16 * given.labels  # and biases
  assert head_traffic(given).moved.rows == 4 * weights + 8 * given.labels
  assert head_traffic(given).operations == 6 * given.documents * weights


def test_by_the_optimizer():
  given = dataclasses.replace(SMALL, **PASSES['by_optimizer'])
  found = head_traffic(given)
  rows = given.rows * (given.dim + 1) * 4
  assert found.moved.rows == 3 * rows  # read in the pass and by Adam, written
  assert found.moved.slots == 2 * 2 * rows
  assert found.moved.gradient == 3 * rows
  assert found.held.gradient == rows
  assert found.held.slots == 2 * rows


def test_more_chunks_hold_less_and_read_features_again():
  one, many = (
    head_traffic(dataclasses.replace(SMALL, data=1, label=1, chunk=chunk))
    for chunk in (1536, 64)
  )
  assert many.held.chunk * 24 == one.held.chunk
  assert many.moved.features > one.moved.features
  assert many.moved.rows == one.moved.rows
  assert many.held.total < one.held.total
