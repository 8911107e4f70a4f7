"""Estimates the cost of a traced program on any chip, without compiling it.

XLA reports the cost of a program only for the platform for which it compiles,
and counts the body of a loop only once. So this module goes through the
operations of a trace in order. It assumes that an element-wise operation is
fused into the operations that read its result. Under this assumption, an array
is stored in memory only if a product, a loop, a sort or a similar operation
writes or reads the array.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import itertools
import math
from typing import Any

from jax import dtypes
from jax.extend import core as jex
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class ProgramCost:
  operations: int = 0  # exact: multiplications and additions in products
  moved: int = 0  # estimated bytes of arrays that are read or written
  held: int = 0  # estimated peak bytes of the arrays that the program makes


class _Value:
  """Stands for an array of the program; arrays are compared by identity."""

  def __init__(self, aval: Any):
    dtype = getattr(aval, 'dtype', None)
    has_size = dtype and not jnp.issubdtype(dtype, dtypes.extended)
    self.bytes = math.prod(aval.shape) * dtype.itemsize if has_size else 0


# An operation, its inputs and its outputs.
_Step = tuple[jex.JaxprEqn, list[_Value], list[_Value]]
_CALLS = set(
  """checkpoint closed_call core_call custom_jvp_call custom_vjp_call jit pjit
  remat2 shard_map""".split()
)
# Operations that return their operands, perhaps in another shape or dtype.
_SAME = set(
  """all_gather bitcast_convert_type copy device_put expand_dims
  optimization_barrier pcast psum psum_invariant pvary random_unwrap random_wrap
  reduce_scatter reshape sharding_constraint squeeze stop_gradient""".split()
)
# Operations that write their whole output to memory. All other operations,
# except sums and the operations in _IN_PLACE, are element-wise.
_WHOLE = set(
  """cond conv_general_dilated cumsum custom_call dot_general gather pallas_call
  scan sort top_k while""".split()
)
# Element-wise operations that are too expensive to be computed twice.
_EXPENSIVE = set(
  """atan2 cbrt cos div erf erf_inv erfc exp expm1 log log1p logistic pow
  random_bits rem rsqrt sin sqrt tanh threefry2x32""".split()
)
# Operation that changes its first operand in place -> index of the operand that
# has the new values.
_IN_PLACE = {'dynamic_update_slice': 1, 'scatter': 2, 'scatter-add': 2}
_UNFUSED = _WHOLE | _IN_PLACE.keys()


def program_cost(
  program: jex.ClosedJaxpr, donated: slice = slice(0)
) -> ProgramCost:
  """Estimates the cost of a traced program (jax.stages.Traced.jaxpr).

  The program may overwrite its `donated` arguments. Of a loop of unknown
  length, one iteration is counted. The field `held` leaves out the arguments.
  """
  jaxpr = program.jaxpr
  values = {var: _Value(var.aval) for var in [*jaxpr.invars, *jaxpr.constvars]}
  arguments = set(values.values())
  overwritable = {values[var] for var in jaxpr.invars[donated]}
  steps = [*_flatten(jaxpr, values)]
  returned = {_value_of(values, var) for var in jaxpr.outvars}
  arrays = _in_memory(steps) | returned | overwritable
  # sources: value -> the arrays from which the value is computed.
  # last: array -> the last step that reads or writes the array.
  sources, last = {value: {value} for value in arguments}, {}
  for at, (eqn, inputs, outputs) in enumerate(steps):
    read = set().union(*(sources.get(value, ()) for value in inputs))
    for value in outputs:
      sources[value] = {value} if value in arrays else read
    if not _is_fused(eqn) or arrays.intersection(outputs):
      last |= dict.fromkeys({*read, *outputs}, at)
  # The step that writes an array and the last one that reads it are fused, and
  # the array needs no memory, if no product or loop is between them.
  whole = [*itertools.accumulate(_name(eqn) in _WHOLE for eqn, _, _ in steps)]
  temporary = {
    value
    for at, (eqn, _, outputs) in enumerate(steps)
    for value in outputs
    if _is_fused(eqn) and value not in returned
    if value in arrays and whole[last[value]] == whole[at]
  }
  freed_after = [0] * len(steps)
  for value in (arrays - (arguments - overwritable) - returned) & last.keys():
    freed_after[last[value]] += value.bytes
  operations = moved = held = peak = 0
  written = arrays - temporary
  for step, freed in zip(steps, freed_after):
    eqn, _, outputs = step
    inner = _inner_cost(eqn)
    operations += inner.operations
    moved += inner.moved + _moved_bytes(step, written)
    size = sum(value.bytes for value in outputs if value in arrays)
    # Some operations can write their outputs over inputs that are freed here.
    overwrites = _is_fused(eqn) or _name(eqn) in (*_IN_PLACE, 'scan')
    peak = max(peak, held + inner.held + max(0, size - freed * overwrites))
    held += size - freed
  return ProgramCost(operations, moved, peak)


def _flatten(jaxpr: jex.Jaxpr, values: dict[Any, _Value]) -> Iterator[_Step]:
  """Yields all operations in order, also those of called functions."""
  by_platform = set()
  for eqn in jaxpr.eqns:
    inputs, called = [_value_of(values, var) for var in eqn.invars], None
    name, params = _name(eqn), eqn.params
    if name == 'platform_index':
      by_platform.update(eqn.outvars)
    if name in _CALLS:
      called = params.get('jaxpr', params.get('call_jaxpr'))
    elif name == 'cond' and not by_platform.isdisjoint(eqn.invars[:1]):
      # The last branch is the default branch, which most platforms use.
      called, inputs = params['branches'][-1], inputs[1:]
    if called is not None:
      called = getattr(called, 'jaxpr', called)
      inner = dict(zip(called.invars, inputs))
      inner |= {var: _Value(var.aval) for var in called.constvars}
      yield from _flatten(called, inner)
      outputs = [_value_of(inner, var) for var in called.outvars]
    elif name in _SAME:
      outputs = inputs[: len(eqn.outvars)]
    else:
      outputs = [_Value(var.aval) for var in eqn.outvars]
      yield eqn, inputs, outputs
    values.update(zip(eqn.outvars, outputs))


def _value_of(values: dict[Any, _Value], var: Any) -> _Value:
  return _Value(var.aval) if isinstance(var, jex.Literal) else values[var]


def _name(eqn: jex.JaxprEqn) -> str:
  return eqn.primitive.name


def _sums(eqn: jex.JaxprEqn) -> bool:
  return _name(eqn).startswith(('reduce_', 'arg'))


def _is_fused(eqn: jex.JaxprEqn) -> bool:
  return not _sums(eqn) and _name(eqn) not in _UNFUSED


def _in_memory(steps: list[_Step]) -> set[_Value]:
  """Returns the values that are stored; others are fused into their readers."""
  stored, readers = set(), {}
  for _, inputs, _ in steps:
    for value in set(inputs):
      readers[value] = readers.get(value, 0) + 1
  for eqn, inputs, outputs in steps:
    if _name(eqn) in _EXPENSIVE:
      stored |= {value for value in outputs if readers.get(value, 0) > 1}
    elif not _is_fused(eqn):
      stored |= set(outputs)
      if not _sums(eqn):
        stored |= set(inputs[: 1 if _name(eqn) in _IN_PLACE else None])
  return stored


def _moved_bytes(step: _Step, arrays: set[_Value]) -> int:
  """Returns the bytes that an operation, without loops, reads and writes."""
  # A sum is assumed to be fused with its operands, a slice to be read in place,
  # and an update to be written in place.
  (eqn, inputs, outputs), name = step, _name(step[0])
  written = sum(value.bytes for value in outputs if value in arrays)
  if name in _IN_PLACE:
    update = inputs[_IN_PLACE[name]]
    return 0 if update in arrays else 2 * update.bytes
  if name in ('scan', 'dynamic_slice', 'slice') or _sums(eqn):
    return 0
  if name == 'broadcast_in_dim':
    return written  # the operand is small, for example one number
  if _is_fused(eqn) or name == 'gather':
    return 2 * written
  return written + sum(value.bytes for value in set(inputs))


def _count_unsliced(outer: Sequence[Any], inner: Sequence[Any]) -> int:
  """Returns how many arrays a scan's body has whole, not a slice at a time."""
  return sum(x.aval.ndim == y.aval.ndim for x, y in zip(outer, inner))


def _inner_cost(eqn: jex.JaxprEqn) -> ProgramCost:
  """Returns the cost of a loop's or branch's body, or of a product; else 0."""
  params = eqn.params
  match _name(eqn):
    case 'scan':
      n, inner = params['length'], params['jaxpr']
      # The carry lies between constants and slices: the names of the parameters
      # that say where are not the same in all releases of JAX.
      end = _count_unsliced(eqn.invars, inner.jaxpr.invars)
      carry = _count_unsliced(eqn.outvars, inner.jaxpr.outvars)
      body = program_cost(inner, slice(end - carry, end))
      return ProgramCost(n * body.operations, n * body.moved, body.held)
    case 'while':
      return program_cost(params['body_jaxpr'])
    case 'cond':
      return max(
        map(program_cost, params['branches']), key=lambda cost: cost.held
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
