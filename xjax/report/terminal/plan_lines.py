"""Shows the plan of a run as text."""

from collections.abc import Iterator
import datetime
import math

import tqdm

from xjax.core.config_part import ConfigPart
from xjax.plan.chips import Platform
from xjax.plan.compiler import INSTALL, Compiled, Refused
from xjax.plan.plan import LONGEST, STATE, Advice, RunPlan

_HINT = (
  'to make the plan fit, use more devices or change fields: for label rows '
  'train.rows and\nmodel.head.storage of OneVsAll, or mesh.label with other '
  'heads; for computed arrays\ntrain.accumulate, model.encoder.remat and '
  'model.head.chunk'
)


def plan_text(plan: RunPlan) -> str:
  """Returns a text that describes a plan."""
  sizes, batch, target = plan.sizes, plan.sizes.longest, plan.target
  zones = f'{batch.zones} zones of ' if batch.zones else ''
  slices = f'{target.slices} slices of ' * (target.slices > 1)
  shape = f' ({slices}{target.topology})' * bool(target.topology)
  axes = ' '.join(f'mesh.{axis}={n}' for axis, n in plan.mesh.shape.items())
  state = {**plan.parts, 'all': plan.state}
  lines = [
    f'{target.devices} x {target.chip.name}{shape}, {axes}',
    f'{sizes.labels:,} labels, {sizes.documents:,} training documents',
    f'longest batch: {batch.documents:,} documents with up to {zones}'
    f'{batch.tokens:,} tokens',
    '\nheld by a device before a step',
    *_table([[f'  {name}', _size(n)] for name, n in state.items()]),
    *(_compiled(plan) if plan.programs else _uncompiled(plan)),
    f'\n{_verdict(plan)}',
    *_notes(plan),
  ]
  return '\n'.join(lines)


def advice_text(advice: Advice | None) -> str:
  """Returns a text that says what to change."""
  if advice is None:
    return _HINT
  how = 'fits' if advice.fits else 'comes nearest, but does not fit'
  size, names = _gib(advice.total), ' and '.join(advice.programs)
  lines = [f'what {how}: {size} GiB for {names} with']
  for path, value in advice.changes:
    if isinstance(value, ConfigPart):  # no flag chooses a class
      text = f'config.{path} = {type(value).__name__}() in the config file'
    else:
      text = f'--config.{path}={getattr(value, "value", value)}'
    lines.append(f'  {text}')
  return '\n'.join(lines)


def _compiled(plan: RunPlan) -> Iterator[str]:
  programs = plan.programs
  done = [x for x in programs.values() if isinstance(x, Compiled)]
  names = [name for name, x in programs.items() if x in done]
  bounds = [plan.bound(name) for name in names]
  for name, program in programs.items():
    if isinstance(program, Refused):
      yield f'\n{name}: {program.reason}'
  if not done:
    return
  yield f'\nmemory of a device by {plan.compiler}'
  yield from _table(
    [
      ['', *names],
      ['  arguments', *(_size(x.arguments) for x in done)],
      ['  outputs', *(_size(x.outputs) for x in done)],
      ['    in place of arguments', *(_size(x.aliases) for x in done)],
      ['  temporaries', *(_size(x.temporaries) for x in done)],
      ['  code', *(_size(x.code) for x in done)],
      ['  all', *(_size(x.total) for x in done)],
      ['  compiled in', *(_time(x.seconds) for x in done)],
    ]
  )
  yield '\nwork of a device, and its time at the peak rates of the chip'
  counts = (tqdm.tqdm.format_sizeof(x.operations) for x in done)
  yield from _table(
    [
      ['', *names],
      ['  operations', *counts],
      ['  compute', *(_time(x.compute) for x in bounds)],
      ['  memory', *(_time(x.memory) for x in bounds)],
      ['  links', *(_time(x.links) for x in bounds)],
      ['  network', *(_time(x.network) for x in bounds)],
      ['  bound by', *(x.by for x in bounds)],
    ]
  )
  if LONGEST in names:
    yield from _collectives(plan, programs[LONGEST])
    length = datetime.timedelta(seconds=math.ceil(plan.epoch))
    in_epoch, steps = sum(plan.sizes.steps.values()), plan.config.train.steps
    yield f'an epoch: {in_epoch:,} steps, {length} or more'
    yield f'the run: {steps:,} steps, {steps / in_epoch:.1f} epochs'


def _collectives(plan: RunPlan, program: Compiled) -> Iterator[str]:
  near, far = 'within a host', 'between hosts'
  if plan.target.chip.platform is Platform.TPU:
    near, far = 'within a slice', 'between slices'
  sums: dict[tuple[str, str], list[float]] = {}
  for x in program.collectives:
    key = x.kind, far if x.nodes > 1 else near
    count, size = sums.get(key, (0, 0))
    sums[key] = [count + x.times, size + x.times * x.bytes]
  if not sums:
    return
  yield '\ncollectives of the longest step, with the bytes that a device gives'
  yield from _table(
    [
      [f'  {kind}', f'{count:,}', tqdm.tqdm.format_sizeof(size, 'B'), where]
      for (kind, where), (count, size) in sorted(sums.items())
    ]
  )
  if any(x.unknown for x in program.collectives):
    yield 'of loops whose length the compiler does not say, one turn is counted'


def _uncompiled(plan: RunPlan) -> Iterator[str]:
  yield (
    '\nthe memory for gradients and activations, the collectives and the time '
    f'are not known: the\ncompiler is not installed ({INSTALL}). A state of '
    f'at most {STATE:.0%} of the usable memory\nis taken to leave enough'
  )


def _verdict(plan: RunPlan) -> str:
  memory = plan.target.chip.memory
  if plan.total == math.inf:
    return 'DOES NOT RUN: the compiler refuses a program'
  verdict = 'fits' if plan.fits else 'DOES NOT FIT'
  return (
    f'{plan.total / memory:.0%} of {_gib(memory)} GiB: {verdict} (at most '
    f'{_gib(plan.usable)} GiB can be used)'
  )


def _notes(plan: RunPlan) -> Iterator[str]:
  other, own = plan.bound(plan.in_other), plan.bound(LONGEST)
  if other and own:
    yield (
      f'products are in {plan.dtype.value}; a step in {plan.other.value} takes '
      f'{other.seconds / own.seconds:.1f} times as long, at the bounds'
    )
  head = plan.config.model.head
  if head.pretraining and head.pretraining.steps:
    yield (
      'before the first step, one device trains the vectors of labels on the '
      'hierarchy (model.head.pretraining); its memory and its time are not '
      'counted'
    )
  yield from (f'assumed: {assumed}' for assumed in plan.sizes.assumed)


def _table(rows: list[list[str]]) -> list[str]:
  """Aligns columns: the first to the left, the others to the right."""
  first, *others = (max(map(len, column)) for column in zip(*rows))
  return [
    f'{row[0]:<{first}}'
    + ''.join(f'  {x:>{n}}' for x, n in zip(row[1:], others))
    for row in rows
  ]


def _gib(size: float) -> str:
  return f'{size / 2**30:,.2f}'


def _size(size: float) -> str:
  return (
    f'{size / 2**30:,.2f} GiB' if size >= 2**30 else f'{size / 2**20:,.2f} MiB'
  )


def _time(seconds: float) -> str:
  if seconds >= 1:
    return f'{seconds:,.1f} s'
  ms = seconds * 1000
  return f'{ms:,.1f} ms' if ms >= 1 else f'{ms * 1000:,.1f} us'
