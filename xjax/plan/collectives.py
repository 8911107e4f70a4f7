"""The collectives of a program: what each device gives to them.

Lowered programs have those that are written in shard_map. A partitioner adds
further ones, which compiled programs have, and may make one of several.
"""

from collections.abc import Iterator
import dataclasses
import math
import re
from typing import Any

import jax


@dataclasses.dataclass(frozen=True)
class Collective:
  """One of a program.

  Attributes:
    kind: 'all-gather', 'all-reduce', 'reduce-scatter', ...
    shapes: of its operands on a device.
    bytes: of its operands on a device.
    looped: whether it is in a loop, and so done more than once.
  """

  kind: str
  shapes: tuple[tuple[int, ...], ...]
  bytes: int
  looped: bool


def bytes_by_kind(collectives: list[Collective]) -> dict[str, int]:
  """The operands' bytes on a device, summed by kind."""
  sums: dict[str, int] = {}
  for one in collectives:
    sums[one.kind] = sums.get(one.kind, 0) + one.bytes
  return sums


def lowered_collectives(lowered: jax.stages.Lowered) -> list[Collective]:
  """Those of a lowered program, in order.

  Those among groups of one device send nothing and are left out, here as in
  compiled_collectives.
  """
  functions = {
    function.attributes['sym_name'].value: function.operation
    for function in lowered.compiler_ir('stablehlo').body.operations
    if function.operation.name == 'func.func'
  }
  return [*_of_operation(functions['main'], functions, looped=False)]


def _of_operation(
  operation: Any, functions: dict[str, Any], looped: bool
) -> Iterator[Collective]:
  """Those in an operation of StableHLO, and in what it calls."""
  kind = operation.name.removeprefix('stablehlo.').replace('_', '-')
  if kind in _KINDS:
    groups = operation.attributes[
      'source_target_pairs' if kind == _PERMUTE else 'replica_groups'
    ]
    types = [operand.type for operand in operation.operands]
    arrays = [(str(t.element_type), tuple(t.shape)) for t in types]
    if groups.type.shape[1] > 1:
      yield _collective(kind, arrays, looped)
  looped |= kind == 'while'
  if kind == 'func.call':
    called = functions[operation.attributes['callee'].value]
    yield from _of_operation(called, functions, looped)
  for region in operation.regions:
    for block in region.blocks:
      for inner in block.operations:
        yield from _of_operation(inner.operation, functions, looped)


def compiled_collectives(text: str) -> list[Collective]:
  """Those of a compiled program, in order.

  Args:
    text: jax.stages.Compiled.as_text().

  Raises:
    ValueError: groups of devices are written in a way that is not known.
  """
  parts = _computations(text)
  looped = _looped(parts)
  found = []
  for name, lines in parts.items():
    types = {}
    for line in lines:
      if match := _INSTRUCTION.match(line):
        types[match['name']] = match['type']
        kind = match['kind'].removesuffix('-start')
        if kind in _KINDS and _group(line) > 1:
          operands = _OPERAND.findall(re.split(_ATTRIBUTES, match['rest'])[0])
          arrays = [
            (element, tuple(int(n) for n in sizes.split(',') if n))
            for operand in operands
            for element, sizes in _ARRAY.findall(types[operand])
          ]
          found.append(_collective(kind, arrays, name in looped))
  return found


_PERMUTE = 'collective-permute'
_KINDS = {
  'all-gather',
  'all-reduce',
  'all-to-all',
  'collective-broadcast',
  _PERMUTE,
  'ragged-all-to-all',
  'reduce-scatter',
}
_COMPUTATION = re.compile(r'(?:ENTRY )?%?(?P<name>[\w.-]+) \(.*\{$')
_INSTRUCTION = re.compile(
  r'\s+(?:ROOT )?%(?P<name>[\w.-]+) = (?P<type>.*?) (?P<kind>[a-z][\w-]*)\('
  r'(?P<rest>.*)'
)
_OPERAND = re.compile(r'%([\w.-]+)')
_ATTRIBUTES = r', (?:channel_id|replica_groups|source_target_pairs)='
_ARRAY = re.compile(r'(\w+)\[([\d,]*)\]')
_BODY = re.compile(r' while\(.*body=%([\w.-]+)')

# {{0,4},{1,5}} has two devices a group, [4,2]<=[8] as well, and the last one
# those along the axes that are named in the end.
_LISTED = re.compile(r'(?:replica_groups|source_target_pairs)=\{\{([\d,]*)\}')
_IOTA = re.compile(r'replica_groups=\[\d+,(\d+)\]<=')
_MESH = re.compile(r"replica_groups=mesh\[([^\]]*)\] \{([\w', ]*)\}")


def _group(line: str) -> int:
  """Devices of a group of a collective."""
  if match := _LISTED.search(line):
    return match[1].count(',') + 1
  if match := _IOTA.search(line):
    return int(match[1])
  if match := _MESH.search(line):
    sizes = dict(axis.split('=') for axis in match[1].split(','))
    return math.prod(int(sizes[axis.strip()]) for axis in match[2].split(','))
  raise ValueError(f'unknown groups of devices: {line.strip()}')


def _collective(
  kind: str, arrays: list[tuple[str, tuple[int, ...]]], looped: bool
) -> Collective:
  """Of arrays (element type, shape)."""
  size = sum(_bytes(element) * math.prod(shape) for element, shape in arrays)
  return Collective(kind, tuple(shape for _, shape in arrays), size, looped)


def _bytes(element: str) -> int:
  """Of an element: 'f32', 'bf16', 'f8e4m3fn', 'i1', 'pred', ..."""
  if element in ('i1', 'pred'):
    return 1
  return int(re.search(r'\d+', element)[0]) // 8


def _computations(text: str) -> dict[str, list[str]]:
  """The lines of each computation, by name."""
  parts: dict[str, list[str]] = {}
  lines: list[str] = []
  for line in text.splitlines():
    if match := _COMPUTATION.match(line):
      lines = parts.setdefault(match['name'], [])
    else:
      lines.append(line)
  return parts


def _looped(parts: dict[str, list[str]]) -> set[str]:
  """The computations that are bodies of loops, or called by such."""
  found: set[str] = set()
  left = [
    body
    for lines in parts.values()
    for line in lines
    for body in _BODY.findall(line)
  ]
  while left:
    name = left.pop()
    if name not in found:
      found.add(name)
      called = _OPERAND.findall('\n'.join(parts[name]))
      left.extend(set(called) & set(parts))
  return found
