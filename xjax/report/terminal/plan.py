"""A plan as text."""

import datetime
import math

from xjax.plan.advice import Advice, Change
from xjax.plan.chips import Platform
from xjax.plan.plan import Plan

_GIB = 2**30
_UNITS = (
  (1e15, 'P'),
  (1e12, 'T'),
  (1e9, 'G'),
  (1e6, 'M'),
  (1e3, 'k'),
)
# What is known of estimates of what is computed.
_ESTIMATES = {
  Platform.CPU: 'XLA may ask for 4 times as much',
  Platform.GPU: 'not compared with what XLA asks for on GPUs',
  Platform.TPU: 'for some models XLA asked for 0.9 to 1.8 times as much',
}


def plan_text(plan: Plan, advice: Advice | None = None) -> str:
  """What is printed of a plan.

  Args:
    plan: of a run.
    advice: what to change; None: it fits.
  """
  lines = [*_head(plan), '', *_memory(plan), '', *_time(plan)]
  lines += ['', *_notes(plan)]
  if advice is not None:
    lines += ['', *_advice(advice)]
  return '\n'.join(lines)


def _head(plan: Plan) -> list[str]:
  sizes, batch = plan.sizes, plan.sizes.longest
  tokens = f'{batch.tokens:,} tokens'
  if batch.zones:
    tokens = f'{batch.zones} zones of {tokens}'
  return [
    f'{plan.devices} x {plan.chip.name}, mesh.data={plan.data} '
    f'mesh.label={plan.label}',
    f'{sizes.labels:,} labels, {sizes.documents:,} training documents',
    f'longest batch: {batch.documents:,} documents of {tokens}',
  ]


def _memory(plan: Plan) -> list[str]:
  rows = [*plan.held.parts.items(), ('all', plan.held.total)]
  width = max(len(name) for name, _ in rows)
  lines = ['memory of a device at the peak of a step, GiB']
  lines += [f'  {name:<{width}}  {_gib(size):>9}' for name, size in rows]
  share = plan.held.total / plan.chip.memory
  verdict = 'fits' if plan.fits else 'DOES NOT FIT'
  lines.append(
    f'  {share:.0%} of {_gib(plan.chip.memory)} GiB: {verdict} '
    f'(up to {_gib(plan.usable)})'
  )
  return lines


def _time(plan: Plan) -> list[str]:
  step = plan.longest
  rows = (
    ('compute', step.operations, 'operations', step.compute),
    ('memory', step.moved, 'bytes', step.memory),
    ('network', step.sent, 'bytes', step.network),
  )
  lines = ["a step of the longest batch, of a device, at the chip's best"]
  for name, amount, unit, seconds in rows:
    known = name != 'network' or plan.chip.network or not amount
    time = _seconds(seconds) if known else 'not known'
    lines.append(f'  {name:<8} {_scaled(amount):>8} {unit:<10} {time:>10}')
  lines.append(f'  bound by {step.bound_by}')
  length = datetime.timedelta(seconds=math.ceil(plan.epoch))
  lines.append(f'an epoch: {plan.steps:,} steps, {length} at the bound')
  return lines


def _notes(plan: Plan) -> list[str]:
  made = f'an estimate from the traced step: {_ESTIMATES[plan.chip.platform]}'
  if plan.held.compiled:
    made = 'what XLA asks for, of the step compiled here for one device'
  lines = [f'what is computed in a step is {made}']
  if plan.devices > plan.chip.neighbours > 1:
    lines.append(
      f'{plan.chip.neighbours} devices are joined at the rate assumed; beyond '
      'them the network may be slower'
    )
  if plan.chip.platform is Platform.TPU:
    lines.append('TPUs pad arrays to tiles of 8 x 128: that is not counted')
  lines += [f'assumed: {what}' for what in plan.sizes.assumed]
  return lines


def _advice(advice: Advice) -> list[str]:
  lines, devices = [], advice.devices
  if advice.changes:
    lines.append('to make it fit, each with those before it, GiB of a device:')
    lines += map(_change, advice.changes)
  if devices:
    how = 'or as it is,' if advice.fits else 'and'
    if not advice.changes:
      how = 'to make it fit, GiB of a device,'
    lines += [f'{how} on more devices:', _change(devices)]
  elif not advice.changes:
    lines.append('no change makes it fit, nor do more devices: a smaller model')
  elif not advice.fits:
    lines.append('which is not enough, nor are more devices: a smaller model')
  return lines


def _change(change: Change) -> str:
  return f'  {_gib(change.total):>9}  {change.text}'


def _gib(size: float) -> str:
  return f'{size / _GIB:,.2f}'


def _scaled(amount: float) -> str:
  for unit, letter in _UNITS:
    if amount >= unit:
      return f'{amount / unit:,.1f} {letter}'
  return f'{amount:,.0f}'


def _seconds(seconds: float) -> str:
  if seconds >= 1:
    return f'{seconds:,.1f} s'
  return f'{1000 * seconds:,.1f} ms'
