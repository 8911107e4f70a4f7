"""What a traced program computes, moves and holds, for chips that are not here.

XLA's own figures are of the machine that it compiles for, and its
cost_analysis() counts the body of a loop once, however long the loop is. So
this walks over the operations of a trace in their order. What is computed
entry by entry is taken to be fused into what reads it: an array lies in memory
only where a product, a loop, a sort or the like makes or reads it.
"""

from collections.abc import Iterator
import dataclasses
import itertools
import math
from typing import Any

from jax import dtypes
from jax.extend import core as jex
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class ProgramCost:
  """One run of a program on one device."""

  operations: int = 0  # of products, 2 a multiplication and addition; exact
  moved: int = 0  # bytes of arrays read and written; an estimate
  held: int = 0  # bytes of arrays that it makes, at the peak; an estimate


class _Value:
  """An array of the program, known by its identity."""

  def __init__(self, aval: Any):
    dtype = getattr(aval, 'dtype', None)
    known = dtype and not jnp.issubdtype(dtype, dtypes.extended)
    self.bytes = math.prod(aval.shape) * dtype.itemsize if known else 0


_Step = tuple[jex.JaxprEqn, list[_Value], list[_Value]]  # inputs, outputs
_CALLS = set(
  """checkpoint closed_call core_call custom_jvp_call custom_vjp_call jit pjit
  remat2 shard_map""".split()
)
# Another name or shape of the operand; of several, each of its own.
_SAME = set(
  """all_gather bitcast_convert_type copy device_put expand_dims
  optimization_barrier pcast psum psum_invariant pvary random_unwrap random_wrap
  reduce_scatter reshape sharding_constraint squeeze stop_gradient""".split()
)
# Computed entry by entry where it is read: all but these, sums and _IN_PLACE.
_WHOLE = set(
  """cond conv_general_dilated cumsum custom_call dot_general gather pallas_call
  scan sort top_k while""".split()
)
# Of the former, it costs too much to compute these twice.
_DEAR = set(
  """atan2 cbrt cos div erf erf_inv erfc exp expm1 log log1p logistic pow
  random_bits rem rsqrt sin sqrt tanh threefry2x32""".split()
)
# The first operand is written where it lies; the update's place.
_IN_PLACE = {'dynamic_update_slice': 1, 'scatter': 2, 'scatter-add': 2}
_SOLID = _WHOLE | _IN_PLACE.keys()


def program_cost(
  program: jex.ClosedJaxpr, donated: slice = slice(0)
) -> ProgramCost:
  """Estimates the cost of a traced program.

  Args:
    program: as jax.stages.Traced.jaxpr has it. A loop whose length is not known
      counts as one turn.
    donated: the arguments that it may write over; `held` is beside them.
  """
  jaxpr = program.jaxpr
  names = {var: _Value(var.aval) for var in [*jaxpr.invars, *jaxpr.constvars]}
  given = set(names.values())
  begin = {names[var] for var in jaxpr.invars[donated]}
  steps = [*_flat(jaxpr, names)]
  returned = {_named(names, var) for var in jaxpr.outvars}
  arrays = _in_memory(steps) | returned | begin
  sources, last = {value: {value} for value in given}, {}
  for at, (eqn, inputs, outputs) in enumerate(steps):
    read = set().union(*(sources.get(value, ()) for value in inputs))
    for value in outputs:
      sources[value] = {value} if value in arrays else read
    if not _is_fused(eqn) or arrays.intersection(outputs):
      last |= dict.fromkeys({*read, *outputs}, at)
  # What no product or loop outlives is made and read in one pass.
  whole = [*itertools.accumulate(_name(eqn) in _WHOLE for eqn, _, _ in steps)]
  passing = {
    value
    for at, (eqn, _, outputs) in enumerate(steps)
    for value in outputs
    if _is_fused(eqn) and value not in returned
    if value in arrays and whole[last[value]] == whole[at]
  }
  ending = [0] * len(steps)
  for value in (arrays - (given - begin) - returned) & last.keys():
    ending[last[value]] += value.bytes
  operations = moved = now = peak = 0
  written = arrays - passing
  for step, ended in zip(steps, ending):
    eqn, _, outputs = step
    inner = _inner(eqn)
    operations += inner.operations
    moved += inner.moved + _moved(step, written)
    size = sum(value.bytes for value in outputs if value in arrays)
    # Written over what is read here the last time, where that can be.
    over = _is_fused(eqn) or _name(eqn) in (*_IN_PLACE, 'scan')
    peak = max(peak, now + inner.held + max(0, size - ended * over))
    now += size - ended
  return ProgramCost(operations, moved, peak)


def _flat(jaxpr: jex.Jaxpr, names: dict[Any, _Value]) -> Iterator[_Step]:
  """All operations in order, those of called functions in their place."""
  by_platform = set()
  for eqn in jaxpr.eqns:
    inputs, called = [_named(names, var) for var in eqn.invars], None
    name, params = _name(eqn), eqn.params
    if name == 'platform_index':
      by_platform.update(eqn.outvars)
    if name in _CALLS:
      called = params.get('jaxpr', params.get('call_jaxpr'))
    elif name == 'cond' and not by_platform.isdisjoint(eqn.invars[:1]):
      # The last branch is that of most platforms.
      called, inputs = params['branches'][-1], inputs[1:]
    if called is not None:
      called = getattr(called, 'jaxpr', called)
      inner = dict(zip(called.invars, inputs))
      inner |= {var: _Value(var.aval) for var in called.constvars}
      yield from _flat(called, inner)
      outputs = [_named(inner, var) for var in called.outvars]
    elif name in _SAME:
      outputs = inputs[: len(eqn.outvars)]
    else:
      outputs = [_Value(var.aval) for var in eqn.outvars]
      yield eqn, inputs, outputs
    names.update(zip(eqn.outvars, outputs))


def _named(names: dict[Any, _Value], var: Any) -> _Value:
  return _Value(var.aval) if isinstance(var, jex.Literal) else names[var]


def _name(eqn: jex.JaxprEqn) -> str:
  return eqn.primitive.name


def _sums(eqn: jex.JaxprEqn) -> bool:
  return _name(eqn).startswith(('reduce_', 'arg'))


def _is_fused(eqn: jex.JaxprEqn) -> bool:
  return not _sums(eqn) and _name(eqn) not in _SOLID


def _in_memory(steps: list[_Step]) -> set[_Value]:
  """The values that are no mere terms of what reads them."""
  found, readers = set(), {}
  for _, inputs, _ in steps:
    for value in set(inputs):
      readers[value] = readers.get(value, 0) + 1
  for eqn, inputs, outputs in steps:
    if _name(eqn) in _DEAR:
      found |= {value for value in outputs if readers.get(value, 0) > 1}
    elif not _is_fused(eqn):
      found |= set(outputs)
      if not _sums(eqn):
        found |= set(inputs[: 1 if _name(eqn) in _IN_PLACE else None])
  return found


def _moved(step: _Step, arrays: set[_Value]) -> int:
  """Bytes that an operation cannot but read and write, its turns' left out.

  Sums are made while their operands are at hand, a slice is read where it lies,
  and a product is written into its place.
  """
  (eqn, inputs, outputs), name = step, _name(step[0])
  written = sum(value.bytes for value in outputs if value in arrays)
  if name in _IN_PLACE:
    update = inputs[_IN_PLACE[name]]
    return 0 if update in arrays else 2 * update.bytes
  if name in ('scan', 'dynamic_slice', 'slice') or _sums(eqn):
    return 0
  if name == 'broadcast_in_dim':
    return written  # a number, as often as need be
  if _is_fused(eqn) or name == 'gather':
    return 2 * written
  return written + sum(value.bytes for value in set(inputs))


def _inner(eqn: jex.JaxprEqn) -> ProgramCost:
  """The cost of what is inside an operation."""
  params = eqn.params
  match _name(eqn):
    case 'scan':
      n, first = params['length'], params['num_consts']
      turn = program_cost(
        params['jaxpr'], slice(first, first + params['num_carry'])
      )
      return ProgramCost(n * turn.operations, n * turn.moved, turn.held)
    case 'while':
      return program_cost(params['body_jaxpr'])
    case 'cond':
      return max(
        map(program_cost, params['branches']), key=lambda one: one.held
      )
    case 'dot_general':
      shape = eqn.invars[0].aval.shape
      summed = math.prod(shape[i] for i in params['dimension_numbers'][0][0])
    case 'conv_general_dilated':
      shape = eqn.invars[1].aval.shape
      features = shape[params['dimension_numbers'].rhs_spec[0]]
      summed = math.prod(shape) // features
    case _:
      return ProgramCost()
  return ProgramCost(2 * math.prod(eqn.outvars[0].aval.shape) * summed)
