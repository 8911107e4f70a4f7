"""Shows the plan of a run as text."""

import datetime
import math

from xjax.plan.advice import Advice, Change
from xjax.plan.chips import Platform
from xjax.plan.plan import Plan

# These messages compare the estimate with the memory that XLA needs.
_ESTIMATES = {
  Platform.CPU: 'XLA may need 4 times as much',
  Platform.GPU: (
    'the estimate was not compared with the memory that XLA needs on GPUs'
  ),
  Platform.TPU: 'for some models XLA needed 0.9 to 1.8 times as much',
}


def plan_text(plan: Plan, advice: Advice | None = None) -> str:
  """Describes a plan, and lists changes if there is advice."""
  sizes, batch, held = plan.sizes, plan.sizes.longest, plan.held
  zones = f'{batch.zones} zones of ' if batch.zones else ''
  rows = {**held.parts, 'all': held.total}
  width = max(map(len, rows))
  share, room = held.total / plan.chip.memory, _gib(plan.chip.memory)
  verdict = 'fits' if plan.fits else 'DOES NOT FIT'
  length = datetime.timedelta(seconds=math.ceil(plan.epoch))
  lines = [
    f'{plan.devices} x {plan.chip.name}, mesh.data={plan.data} '
    f'mesh.label={plan.label}',
    f'{sizes.labels:,} labels, {sizes.documents:,} training documents',
    f'longest batch: {batch.documents:,} documents of {zones}'
    f'{batch.tokens:,} tokens',
    '\nmemory per device at the peak of a step, GiB',
    *(f'  {name:<{width}}  {_gib(size):>9}' for name, size in rows.items()),
    f'  {share:.0%} of {room} GiB: {verdict} (up to {_gib(plan.usable)})',
    "\na step of the longest batch, on one device, at the chip's peak rates",
    *_rates(plan),
    f'  bound by {plan.longest.bound_by}',
    f'an epoch: {plan.steps:,} steps, {length} or more\n',
    *_notes(plan),
  ]
  return '\n'.join(lines + ([] if advice is None else ['', *_advice(advice)]))


def _rates(plan: Plan) -> list[str]:
  step, lines = plan.longest, []
  for name, amount, unit, seconds in (
    ('compute', step.operations, 'operations', step.compute),
    ('memory', step.moved, 'bytes', step.memory),
    ('network', step.sent, 'bytes', step.network),
  ):
    time = f'{seconds:,.1f} s' if seconds >= 1 else f'{1000 * seconds:,.1f} ms'
    if name == 'network' and amount and not plan.chip.network:
      time = 'not known'
    power = min(5, max(0, math.floor(math.log10(max(1, amount)) / 3)))
    scaled = f'{amount / 1000**power:,.{int(power > 0)}f} {" kMGTP"[power]}'
    lines.append(f'  {name:<8} {scaled.strip():>8} {unit:<10} {time:>10}')
  return lines


def _notes(plan: Plan) -> list[str]:
  chip = plan.chip
  how = f'estimated from the traced step: {_ESTIMATES[chip.platform]}'
  if plan.held.compiled:
    how = 'the amount that XLA needs for the step, compiled here for one device'
  lines = [f'temporary memory of a step is {how}']
  if plan.devices > chip.neighbours > 1:
    lines.append(
      f'{chip.neighbours} devices are connected at the assumed rate; between '
      'more devices the network may be slower'
    )
  if chip.platform is Platform.TPU:
    lines.append(
      'TPUs pad arrays to tiles of 8 x 128; the padding is not counted'
    )
  return lines + [f'assumed: {assumed}' for assumed in plan.sizes.assumed]


def _advice(advice: Advice) -> list[str]:
  lines, devices = [*map(_change, advice.changes)], advice.devices
  if lines:
    lines[:0] = [
      'to make it fit, change in order, line by line (GiB per device after '
      'each change):'
    ]
  if devices:
    how = 'or without changes,' if advice.fits else 'and'
    if not lines:
      how = 'to make it fit (GiB per device),'
    return [*lines, f'{how} use more devices:', _change(devices)]
  if not lines:
    return ['neither changes nor more devices make it fit: use a smaller model']
  failed = 'this is not enough, even with more devices: use a smaller model'
  return lines if advice.fits else [*lines, failed]


def _change(change: Change) -> str:
  return f'  {_gib(change.total):>9}  {change.text}'


def _gib(size: float) -> str:
  return f'{size / 2**30:,.2f}'
