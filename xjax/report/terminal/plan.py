"""A plan as text."""

import datetime
import math

from xjax.plan.advice import Advice, Change
from xjax.plan.chips import Platform
from xjax.plan.plan import Plan

# What is known of estimates of what is computed.
_ESTIMATES = {
  Platform.CPU: 'XLA may ask for 4 times as much',
  Platform.GPU: 'not compared with what XLA asks for on GPUs',
  Platform.TPU: 'for some models XLA asked for 0.9 to 1.8 times as much',
}


def plan_text(plan: Plan, advice: Advice | None = None) -> str:
  """Says what a plan is, and what to change if there is advice."""
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
    '\nmemory of a device at the peak of a step, GiB',
    *(f'  {name:<{width}}  {_gib(size):>9}' for name, size in rows.items()),
    f'  {share:.0%} of {room} GiB: {verdict} (up to {_gib(plan.usable)})',
    "\na step of the longest batch, of a device, at the chip's best",
    *_rates(plan),
    f'  bound by {plan.longest.bound_by}',
    f'an epoch: {plan.steps:,} steps, {length} at the bound\n',
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
  how = f'an estimate from the traced step: {_ESTIMATES[chip.platform]}'
  if plan.held.compiled:
    how = 'what XLA asks for, of the step compiled here for one device'
  lines = [f'what is computed in a step is {how}']
  if plan.devices > chip.neighbours > 1:
    lines.append(
      f'{chip.neighbours} devices are joined at the rate assumed; beyond them '
      'the network may be slower'
    )
  if chip.platform is Platform.TPU:
    lines.append('TPUs pad arrays to tiles of 8 x 128: that is not counted')
  return lines + [f'assumed: {assumed}' for assumed in plan.sizes.assumed]


def _advice(advice: Advice) -> list[str]:
  lines, devices = [*map(_change, advice.changes)], advice.devices
  if lines:
    lines[:0] = ['to make it fit, each with those before it, GiB of a device:']
  if devices:
    how = 'or as it is,' if advice.fits else 'and'
    if not lines:
      how = 'to make it fit, GiB of a device,'
    return [*lines, f'{how} on more devices:', _change(devices)]
  if not lines:
    return ['no change makes it fit, nor do more devices: a smaller model']
  less = 'which is not enough, nor are more devices: a smaller model'
  return lines if advice.fits else [*lines, less]


def _change(change: Change) -> str:
  return f'  {_gib(change.total):>9}  {change.text}'


def _gib(size: float) -> str:
  return f'{size / 2**30:,.2f}'
