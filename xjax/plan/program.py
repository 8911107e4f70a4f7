"""What a traced program computes, moves and holds, before it is compiled.

An estimate from its operations in their order, for compilers that keep it: what
is computed entry by entry is taken to be fused into what reads it, so an array
is one of memory only where a product, a loop, a sort or the like makes or reads
it. Compilers that reorder, as XLA does for CPUs, may hold twice as much.
"""

from collections.abc import Callable, Iterator, Mapping
import dataclasses
import math
from typing import Any, NamedTuple

import jax
from jax.extend import core as jex
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Work:
  """Of one run of a program on one device.

  Attributes:
    operations: of matrix products and convolutions, a multiplication and an
      addition being 2.
    moved: bytes of arrays read and written.
    held: bytes at the peak, what it returns included, what it is given not.
    between: bytes held at the call of the function that is asked about; 0: it
      is not called.
  """

  operations: int = 0
  moved: int = 0
  held: int = 0
  between: int = 0


def work_of(function: Callable, *arguments: Any, between: str = '') -> Work:
  """Traces a function on abstract arguments; nothing is computed.

  Args:
    function: pure; a loop without a fixed length counts as one turn.
    arguments: jax.ShapeDtypeStructs, or trees of them.
    between: the name of a jitted function that it calls; see Work.
  """
  return _work(jax.make_jaxpr(function)(*arguments), between)


class _Value:
  """An array of the program; known by its identity."""

  def __init__(self, aval: Any):
    self.aval = aval

  @property
  def bytes(self) -> int:
    dtype = getattr(self.aval, 'dtype', None)
    if dtype is None or jnp.issubdtype(dtype, jax.dtypes.extended):
      return 0
    return math.prod(self.aval.shape) * dtype.itemsize


class _Step(NamedTuple):
  """An operation of the program, none of them a mere call."""

  name: str
  params: Mapping[str, Any]
  inputs: list[_Value]
  outputs: list[_Value]


# Calls that are what they call.
_CALLS = {
  'checkpoint',
  'closed_call',
  'core_call',
  'custom_jvp_call',
  'custom_vjp_call',
  'jit',
  'pjit',
  'remat2',
  'shard_map',
}
# The first operand itself; or of several, each its own.
_SAME = set(
  """all_gather bitcast_convert_type copy device_put expand_dims
  optimization_barrier pcast psum psum_invariant pvary random_unwrap random_wrap
  reduce_scatter reshape sharding_constraint squeeze stop_gradient""".split()
)
# Entry by entry: made where they are read.
_FUSED = set(
  """abs add add_any and broadcast_in_dim ceil clamp concatenate
  convert_element_type dynamic_slice eq exp2 floor ge gt imag integer_pow iota
  is_finite le lt max min mul ne neg not or pad real rev round select_n
  shift_left shift_right_arithmetic shift_right_logical sign slice square sub
  transpose xor""".split()
)
# The same, but too dear to be computed twice.
_DEAR = set(
  """atan2 cbrt cos div erf erf_inv erfc exp expm1 log log1p logistic pow
  random_bits rem rsqrt sin sqrt tanh threefry2x32""".split()
)
# The first operand is written where it lies.
_IN_PLACE = {'dynamic_update_slice', 'scatter', 'scatter-add'}


def _work(
  closed: jex.ClosedJaxpr, between: str = '', carried: slice = slice(0)
) -> Work:
  """As work_of; what it is given at `carried` may be overwritten."""
  names = {var: _Value(var.aval) for var in closed.jaxpr.invars}
  names |= {var: _Value(var.aval) for var in closed.jaxpr.constvars}
  given = set(names.values())
  free = {names[var] for var in closed.jaxpr.invars[carried]}
  steps = [*_flat(closed.jaxpr, names, between)]
  returned = [_named(names, var) for var in closed.jaxpr.outvars]
  return _Program(steps, given, free, returned, between).work()


def _flat(
  jaxpr: jex.Jaxpr, names: dict[Any, _Value], between: str
) -> Iterator[_Step]:
  """All operations in order, those of called functions in their place."""
  for eqn in jaxpr.eqns:
    inputs = [_named(names, var) for var in eqn.invars]
    asked = between and eqn.params.get('name') == between
    called = None if asked else _called(eqn)
    if called is None:
      outputs = [_Value(var.aval) for var in eqn.outvars]
      yield _Step(eqn.primitive.name, eqn.params, inputs, outputs)
    else:
      inner = dict(zip(called.invars, inputs))
      inner |= {var: _Value(var.aval) for var in called.constvars}
      yield from _flat(called, inner, between)
      outputs = [_named(inner, var) for var in called.outvars]
    names.update(zip(eqn.outvars, outputs))


def _named(names: dict[Any, _Value], var: Any) -> _Value:
  return _Value(var.aval) if isinstance(var, jex.Literal) else names[var]


def _called(eqn: jex.JaxprEqn) -> jex.Jaxpr | None:
  if eqn.primitive.name not in _CALLS:
    return None
  for name in ('jaxpr', 'call_jaxpr'):
    if name in eqn.params:
      found = eqn.params[name]
      return found.jaxpr if isinstance(found, jex.ClosedJaxpr) else found
  return None


class _Program:
  """A flat program, and which of its values are arrays in memory."""

  def __init__(
    self,
    steps: list[_Step],
    given: set[_Value],
    free: set[_Value],
    returned: list[_Value],
    between: str,
  ):
    self._steps, self._returned, self._between = steps, returned, between
    self._given, self._kept = given, given - free
    self._maker = {out: step for step in steps for out in step.outputs}
    self._arrays: set[_Value] = set()
    readers: dict[_Value, int] = {}
    for step in steps:
      for value in set(step.inputs):
        readers[value] = readers.get(value, 0) + 1
    for step in steps:
      if step.name in _DEAR:
        self._arrays |= {out for out in step.outputs if readers.get(out, 0) > 1}
      elif step.name not in _SAME and step.name not in _FUSED:
        self._arrays |= set(step.outputs)
        if not _sums(step):
          whole = step.inputs[: 1 if step.name in _IN_PLACE else None]
          self._arrays |= {self._origin(value) for value in whole}
    self._arrays |= {self._origin(value) for value in returned}

  def _origin(self, value: _Value) -> _Value:
    """What a value is another name or shape of."""
    while (step := self._maker.get(value)) and step.name in _SAME:
      at = step.outputs.index(value)
      value = step.inputs[at if len(step.outputs) > 1 else 0]
    return value

  def _sources(self, values: list[_Value]) -> set[_Value]:
    """The arrays that are read where these values are."""
    found, todo, seen = set(), [*values], set()
    while todo:
      value = self._origin(todo.pop())
      if value in seen:
        continue
      seen.add(value)
      if value in self._given or value in self._arrays:
        found.add(value)
      elif value in self._maker:
        todo += self._maker[value].inputs
    return found

  def _moved(self, step: _Step, made: list[_Value]) -> int:
    """Bytes that a step cannot but read and write.

    What is made entry by entry is taken to be written, and as much to be read;
    sums to be made while what they sum is at hand.
    """
    if step.name in _IN_PLACE:
      update = step.inputs[1 if step.name == 'dynamic_update_slice' else 2]
      return 2 * update.bytes
    if step.name == 'scan' or _sums(step):
      return 0  # a scan's turns have theirs
    written = sum(value.bytes for value in made)
    if step.name in _FUSED | _DEAR | {'gather'}:
      return 2 * written
    return written + sum(value.bytes for value in set(step.inputs))

  def work(self) -> Work:
    """Of all steps, in their order."""
    operations = moved = 0
    inner_held, born, last = [], {}, {}
    for at, step in enumerate(self._steps):
      inner = self._inner(step)
      operations += inner.operations
      moved += inner.moved
      inner_held.append(inner.held)
      made = [out for out in step.outputs if out in self._arrays]
      if made or inner.held or inner.moved:
        moved += self._moved(step, made)
        last |= dict.fromkeys(self._sources(step.inputs), at)
      born |= dict.fromkeys(made, at)
    last |= dict.fromkeys(self._sources(self._returned), len(self._steps))
    held = self._held(born, last)
    peaks = [now + inner for now, inner in zip(held, inner_held)]
    return Work(
      operations, moved, max(peaks, default=0), held[self._at_call(held)]
    )

  def _at_call(self, held: list[int]) -> int:
    for at, step in enumerate(self._steps):
      if self._between and step.params.get('name') == self._between:
        return at
    return len(held) - 1  # where nothing is held

  def _held(
    self, born: dict[_Value, int], last: dict[_Value, int]
  ) -> list[int]:
    """Bytes of arrays that are alive at each step, and 0 after the last."""
    change = [0] * (len(self._steps) + 2)
    taken, given = self._taken(last), set(self._given)
    for value, at in born.items():
      if taken.get(value) in given:
        given.add(value)  # in the caller's memory
        continue
      # In the place of an array that dies with this step.
      change[at + (value in taken)] += value.bytes
      change[last.get(value, at) + 1] -= value.bytes
    held, now = [], 0
    for delta in change[:-2]:
      now += delta
      held.append(now)
    return [*held, 0]

  def _taken(self, last: dict[_Value, int]) -> dict[_Value, _Value]:
    """Arrays that are written in the place of another."""
    taken: dict[_Value, _Value] = {}
    used: set[_Value] = set()
    for at, step in enumerate(self._steps):
      for source, out in _places(step):
        for value in self._sources([source]) - self._kept - used:
          if last.get(value) == at and value.bytes == out.bytes:
            taken[out] = value
            used.add(value)
            break
    return taken

  def _inner(self, step: _Step) -> Work:
    """The work inside an operation."""
    match step.name:
      case 'scan':
        first, count = step.params['num_consts'], step.params['num_carry']
        turn = _work(step.params['jaxpr'], carried=slice(first, first + count))
        turns = step.params['length']
        return Work(turns * turn.operations, turns * turn.moved, turn.held)
      case 'while':
        return _work(step.params['body_jaxpr'])
      case 'cond':
        branches = [_work(one) for one in step.params['branches']]
        return max(branches, key=lambda work: work.held)
      case 'dot_general' | 'conv_general_dilated':
        return Work(_operations(step))
    return Work()


def _sums(step: _Step) -> bool:
  return step.name.startswith(('reduce_', 'arg'))


def _places(step: _Step) -> list[tuple[_Value, _Value]]:
  """(operand, result) of which the second may be written over the first."""
  if step.name in _IN_PLACE:
    return [(step.inputs[0], step.outputs[0])]
  if step.name == 'scan':
    first, count = step.params['num_consts'], step.params['num_carry']
    return [*zip(step.inputs[first : first + count], step.outputs)]
  if step.name in _FUSED | _DEAR:
    return [(value, step.outputs[0]) for value in step.inputs]
  return []


def _operations(step: _Step) -> int:
  """2 for each entry of the result and each product that it sums."""
  out = math.prod(step.outputs[0].aval.shape)
  if step.name == 'dot_general':
    (left, _), _ = step.params['dimension_numbers']
    shape = step.inputs[0].aval.shape
    return 2 * out * math.prod(shape[axis] for axis in left)
  kernel = step.inputs[1].aval.shape
  features = step.params['dimension_numbers'].rhs_spec[0]
  return 2 * out * math.prod(kernel) // kernel[features]
