"""Counts what a compiled program does: its products and its collectives."""

import collections
from collections.abc import Mapping, Sequence
import dataclasses
import math
import re
from typing import Any

import jax
from jax.extend import core as jex
from jax.interpreters.partial_eval import dce_jaxpr
import numpy as np


def operations(traced: jex.ClosedJaxpr, platform: str, data: int) -> float:
  """Returns the multiplications and additions of a device in products.

  The count is exact, except for a loop whose length is unknown, of which one
  iteration counts. Products outside shard_map are taken to be of documents. The
  `data` devices of the data axis share them; those of the label axis repeat
  them. So it is too low for a graph of labels, which all devices repeat.
  """
  # Compilers leave out what no result needs.
  used = [True] * len(traced.jaxpr.outvars)
  return _operations(dce_jaxpr(traced.jaxpr, used)[0], platform, data, False)


def _operations(
  jaxpr: jex.Jaxpr, platform: str, data: int, on_device: bool
) -> float:
  total = 0.0
  for eqn in jaxpr.eqns:
    name, params = eqn.primitive.name, eqn.params
    called = [*jax.tree.leaves([*params.values()], is_leaf=_is_jaxpr)]
    called = [getattr(x, 'jaxpr', x) for x in called if _is_jaxpr(x)]
    if only := params.get('branches_platforms'):
      names = {platform, {'gpu': 'cuda'}.get(platform, platform)}
      chosen = [x is None or bool(names & {*x}) for x in only]
      called = [called[chosen.index(True)]]
    # Shapes in shard_map are those of a device.
    inside = on_device or name == 'shard_map'
    counts = [_operations(x, platform, data, inside) for x in called]
    if name == 'cond':
      total += max(counts)
    else:
      total += sum(counts) * (params['length'] if name == 'scan' else 1)
    total += _product(eqn) / (1 if on_device else data)
  return total


def _is_jaxpr(x: Any) -> bool:
  return isinstance(x, jex.Jaxpr | jex.ClosedJaxpr)


def _product(eqn: jex.JaxprEqn) -> int:
  """Returns the operations of a matrix product; 0 of other operations."""
  name, params = eqn.primitive.name, eqn.params
  shapes = [x.aval.shape for x in eqn.invars[:2]]
  if name == 'dot_general':
    summed = math.prod(shapes[0][i] for i in params['dimension_numbers'][0][0])
  elif name == 'conv_general_dilated':
    features = shapes[1][params['dimension_numbers'].rhs_spec[0]]
    summed = math.prod(shapes[1]) // features
  elif name.startswith('dot_product_attention'):  # cuDNN's
    (batch, queries, heads, dim), (_, keys, *_) = shapes
    products = 5 if 'bwd' in name else 2
    return 2 * products * batch * heads * queries * keys * dim
  else:
    return 0
  return 2 * math.prod(eqn.outvars[0].aval.shape) * summed


@dataclasses.dataclass(frozen=True)
class Collective:
  """Describes one collective operation of a program, or one that is written."""

  kind: str  # 'all-gather', 'all-reduce', 'reduce-scatter', ...
  shapes: tuple[tuple[int, ...], ...]  # shapes of its operands on a device
  bytes: int  # bytes of its operands on a device
  looped: bool  # whether it is in a loop
  size: int = 1  # devices of a group
  nodes: int = 1  # slices, or hosts, of these devices
  times: int = 1  # how often a call of the program runs it
  # Whether the number of iterations of a loop is unknown, and counts as 1.
  unknown: bool = False

  @property
  def near(self) -> float:
    """Returns the bytes that a device sends at least in its slice or host."""
    return self._sent(self.size // self.nodes)

  @property
  def far(self) -> float:
    """Returns its part of the bytes that its slice or host sends to others."""
    # The devices of a host first add what they have.
    summed = self.kind in ('all-reduce', 'reduce-scatter')
    return self._sent(self.nodes) * (self.nodes / self.size if summed else 1)

  def _sent(self, n: int) -> float:
    if n == 1:
      return 0
    factors = {
      'all-reduce': 2 / n,
      'reduce-scatter': 1 / n,
      'all-to-all': 1 / n,
    }
    each = 1 if self.kind == 'all-gather' else 1 / (n - 1)
    return factors.get(self.kind, each) * (n - 1) * self.bytes * self.times


KINDS = set(
  """all-gather all-reduce all-to-all collective-broadcast collective-permute
  ragged-all-to-all reduce-scatter""".split()
)
_COMPUTATION = re.compile(r'(ENTRY )?%?([\w.-]+) \(.*\{$')
_INSTRUCTION = re.compile(
  r'\s+(?:ROOT )?%([\w.-]+) = (.*?) ([a-z][\w-]*)\((.*)'
)
_NAME = re.compile(r'%([\w.-]+)')
_ARRAY = re.compile(r'(\w+)\[([\d,]*)\]')
# Three forms of groups: {{0,4},{1,5}}; [4,2]<=[2,4]T(1,0), which numbers the
# devices, transposes them and cuts them into 4 groups of 2; and the sizes of
# mesh axes, perhaps with the order of devices, and the axes of a group.
_LISTED = re.compile(r'(?:replica_groups|source_target_pairs)=\{(\{.*?\})\}')
_IOTA = re.compile(
  r'replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?'
)
_MESH = re.compile(
  r'replica_groups=mesh\[([^\]]*)\]'
  r"(?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))? \{([\w', ]*)\}"
)
# Between slices, TPUs send through their hosts.
_HOSTS = re.compile(r'_xla_megascale_transfer_type="(\w+)"')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_ONE_NODE = collections.defaultdict(int)
_LIMIT = re.compile(r' s32\[\]\S* constant\((\d+)\)')


def _numbers(text: str) -> list[int]:
  return [int(n) for n in text.split(',') if n]


def _device_ids(shape: str, order: str | None) -> np.ndarray:
  """Returns an array of devices, numbered and then transposed."""
  ids = np.arange(math.prod(_numbers(shape))).reshape(_numbers(shape))
  return ids.transpose(_numbers(order)) if order else ids


def _groups(line: str) -> list[list[int]]:
  """Returns the devices of each group of a collective."""
  if match := _LISTED.search(line):
    return [_numbers(group) for group in re.findall(r'\{(.*?)\}', match[1])]
  if match := _IOTA.search(line):
    return _device_ids(match[3], match[4]).reshape(int(match[1]), -1).tolist()
  if match := _MESH.search(line):
    sizes = dict(axis.split('=') for axis in match[1].split(','))
    names = [axis.strip() for axis in sizes]
    chosen = [names.index(axis.strip()) for axis in match[4].split(',')]
    ids = _device_ids(match[2] or ','.join(sizes.values()), match[3])
    ids = ids.reshape([int(n) for n in sizes.values()])
    ids = np.moveaxis(ids, chosen, range(-len(chosen), 0))
    size = math.prod(ids.shape[-len(chosen) :])
    return ids.reshape(-1, size).tolist()
  raise ValueError(f'unknown groups of devices: {line.strip()}')


def make_collective(
  kind: str, arrays: Sequence[tuple[str, Sequence[int]]], **others: Any
) -> Collective:
  """Makes a Collective from its operands, (element type, shape) each."""
  size = 0
  for element, shape in arrays:
    bits = (
      8 if element in ('i1', 'pred') else int(re.search(r'\d+', element)[0])
    )
    size += bits * math.prod(shape) // 8
  shapes = tuple(tuple(shape) for _, shape in arrays)
  return Collective(kind, shapes, size, **others)


def compiled_collectives(
  text: str, nodes: Mapping[int, int] = _ONE_NODE
) -> list[Collective]:
  """Returns the collectives in the text of a jax.stages.Compiled.

  Groups of one device send nothing, and are left out. `nodes` are the slices or
  hosts of devices, by their places in the mesh; the default is one host.
  """
  parts: dict[str, list[str]] = {}
  lines: list[str] = []
  for line in text.splitlines():
    if match := _COMPUTATION.match(line):
      lines = parts.setdefault(match[2], [])
    else:
      lines.append(line)
  runs = _runs(parts)
  collectives = {}
  for name, lines in parts.items():
    times, unknown, looped = runs.get(name, (1, False, False))
    types = {}
    for line in lines:
      if not (match := _INSTRUCTION.match(line)):
        continue
      types[match[1]], kind = match[2], match[3].removesuffix('-start')
      others = {'times': times, 'unknown': unknown, 'looped': looped}
      operands = _NAME.findall(match[4].partition('), ')[0])
      if kind == 'send' and (hosts := _HOSTS.search(line)):
        kind = hosts[1].lower().replace('_', '-')
        operands = operands[:1]  # the other one is a token
        slices = max(2, len({*nodes.values()}))
        others |= {'size': slices, 'nodes': slices}
      elif kind in KINDS and len((groups := _groups(line))[0]) > 1:
        others['size'] = len(groups[0])
        others['nodes'] = max(
          len({nodes[i] for i in group}) for group in groups
        )
      else:
        continue
      arrays = [
        (element, _numbers(sizes))
        for operand in operands
        for element, sizes in _ARRAY.findall(types[operand])
      ]
      # TPUs repeat a collective in each part of the work that hides it.
      chain = re.search(r'chain_id="\d+"', line)
      key = (chain[0], kind) if chain else (name, match[1])
      collectives[key] = make_collective(kind, arrays, **others)
  return [*collectives.values()]


def _runs(parts: dict[str, list[str]]) -> dict[str, tuple[int, bool, bool]]:
  """Returns how often each computation runs, if that is unknown, and if looped.

  A computation comes before those that call it, and the program is the last.
  """
  runs: dict[str, tuple[int, bool, bool]] = {}
  for name in reversed(parts):
    times, unknown, looped = runs.setdefault(name, (1, False, False))
    for line in parts[name]:
      match = _INSTRUCTION.match(line)
      if not match or match[3].endswith(('-done', '-update')):
        continue
      is_loop, n, lost = match[3] == 'while', times, unknown
      called = {*_NAME.findall(match[4].partition('), ')[2])} & parts.keys()
      if is_loop:
        condition = re.search(r'condition=%([\w.-]+)', line)[1]
        limit = _TRIPS.findall(line) or [
          x for row in parts[condition] for x in _LIMIT.findall(row)
        ]
        # JAX's loops count from 0 to a constant.
        lost, n = lost or len(limit) != 1, times * int([*limit, 1][0])
      for part in called:
        before = runs.get(part, (0, False, False))
        runs[part] = (
          before[0] + n,
          before[1] or lost,
          before[2] or is_loop or looped,
        )
  return runs
