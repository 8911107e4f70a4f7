"""Shows the plan of a run as text."""

import datetime
import math

import tqdm

from xjax.plan.chips import Platform
from xjax.plan.plan import RunPlan

# These messages compare the estimate with the memory that XLA needs.
_ESTIMATES = {
  Platform.CPU: 'XLA may need 4 times the estimate',
  Platform.GPU: (
    'the estimate was not compared with the memory that XLA needs on GPUs'
  ),
  Platform.TPU: 'for some models XLA needed 0.9 to 1.8 times the estimate',
}


_HINT = (
  'to make the plan fit, use more devices or change fields: train.rows and '
  'model.head.storage\nfor label rows; train.accumulate, model.encoder.remat '
  'and model.head.chunk for computed\narrays; model.head.bottleneck for both'
)


def plan_text(plan: RunPlan) -> str:
  """Returns a text that describes a plan."""
  sizes, batch, held = plan.sizes, plan.sizes.longest, plan.held
  zones = f'{batch.zones} zones of ' if batch.zones else ''
  rows = {**held, 'all': plan.total}
  width = max(map(len, rows))
  share, room = plan.total / plan.chip.memory, _gib(plan.chip.memory)
  verdict = 'fits' if plan.fits else 'DOES NOT FIT'
  length = datetime.timedelta(seconds=math.ceil(plan.epoch))
  lines = [
    f'{plan.devices} x {plan.chip.name}, mesh.data={plan.data} '
    f'mesh.label={plan.label}',
    f'{sizes.labels:,} labels, {sizes.documents:,} training documents',
    f'longest batch: {batch.documents:,} documents with up to {zones}'
    f'{batch.tokens:,} tokens',
    '\npeak memory per device during a step, in GiB',
    *(f'  {name:<{width}}  {_gib(size):>9}' for name, size in rows.items()),
    f'  {share:.0%} of {room} GiB: {verdict} (at most {_gib(plan.usable)} GiB '
    'can be used)',
    '\ntime of a step with the longest batch, on one device, at the peak rates '
    'of the chip',
    *_rates(plan),
    f'  bound by {plan.longest.bound_by}',
    f'an epoch: {plan.steps:,} steps, {length} or more\n',
    *_notes(plan),
  ]
  return '\n'.join(lines + ([] if plan.fits else ['', _HINT]))


def _rates(plan: RunPlan) -> list[str]:
  step, lines = plan.longest, []
  for name, amount, unit, seconds in (
    ('compute', step.operations, 'operations', step.compute),
    ('memory', step.moved, 'bytes', step.memory),
  ):
    time = f'{seconds:,.1f} s' if seconds >= 1 else f'{1000 * seconds:,.1f} ms'
    scaled = tqdm.tqdm.format_sizeof(amount)
    lines.append(f'  {name:<8} {scaled:>8} {unit:<10} {time:>10}')
  return lines


def _notes(plan: RunPlan) -> list[str]:
  chip = plan.chip
  how = f'estimated from the traced step; {_ESTIMATES[chip.platform]}'
  if plan.compiled:
    how = (
      'the amount that XLA computed when it compiled the step for one device'
    )
  lines = [f'temporary memory of a step is {how}']
  if plan.devices > 1:
    lines.append('the time in which devices exchange arrays is not counted')
  if chip.platform is Platform.TPU:
    lines.append(
      'TPUs pad arrays to tiles of 8 x 128; the padding is not counted'
    )
  head = plan.config.model.head
  if head.pretraining and head.pretraining.steps:
    lines.append(
      'before the first step, one device trains the vectors of labels on the '
      'hierarchy (model.head.pretraining); its memory and its time are not '
      'counted'
    )
  return lines + [f'assumed: {assumed}' for assumed in plan.sizes.assumed]


def _gib(size: float) -> str:
  return f'{size / 2**30:,.2f}'
