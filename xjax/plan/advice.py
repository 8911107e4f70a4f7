"""Advises which settings to change if a run does not fit into memory."""

import copy
import dataclasses
import enum
import functools
from typing import Any

from xjax.core.errors import ConfigError
from xjax.models.contract import Config
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedSGD
from xjax.plan.plan import Plan, Planner
from xjax.train.optimizer_config import NoAverage
from xjax.train.parameters import in_group

MOST_DEVICES = 1 << 14
_LEAST_BOTTLENECK = 64
# What label rows need comes first, since it is most of large runs; a change of
# the model comes last.
_CHANGES = 'rows storage momentum remat batch chunk bottleneck'.split()
_LEAST_SAVING = 0.05  # a change must save at least this share of the bytes

Fields = dict[str, Any]  # values to set, by the path of their field


@dataclasses.dataclass(frozen=True)
class Change:
  text: str  # the flags to use, or the fields to set in the config file
  total: float  # bytes on a device after the change


@dataclasses.dataclass(frozen=True)
class Advice:
  # The total of a change includes the effect of the changes before it. No field
  # is set twice.
  changes: tuple[Change, ...]
  fits: bool  # whether the run fits with all changes
  # The first doubled number of devices on which the run fits, without the
  # changes if `fits` is true, else with all changes; None if there is none up
  # to MOST_DEVICES.
  devices: Change | None


def _possible_changes(config: Config) -> dict[str, Fields]:
  """Returns the next step of each possible change, by name (_CHANGES)."""
  # FusedSGD excludes micro-batches and averages of parameters, so both are
  # turned off.
  train, head, encoder = config.train, config.model.head, config.model.encoder
  one_vs_all, by_optimizer = head.fusable, not train.rows.fused
  globs = [*train.freeze, *(entry.rpartition('=')[0] for entry in train.rates)]
  grouped = any(in_group(f'head/{name}', globs) for name in ('kernel', 'bias'))
  changes: dict[str, Fields] = {}
  if one_vs_all and by_optimizer and not grouped:
    micro = {'train.accumulate': 1} if train.accumulate != 1 else {}
    mean = {'train.average': NoAverage()} if train.average.averages else {}
    changes['rows'] = {'train.rows': FusedSGD(), **micro, **mean}
  storages = [Storage.BFLOAT16, Storage.FLOAT8] * one_vs_all
  for storage in storages * (not by_optimizer):
    if storage.bytes < head.storage.bytes:
      changes.setdefault('storage', {'model.head.storage': storage})
  if train.rows.momentum:
    changes['momentum'] = {'train.rows.momentum': 0.0}
  if encoder.remat is False:
    changes['remat'] = {'model.encoder.remat': True}
  if by_optimizer and train.batch_size % (2 * train.accumulate) == 0:
    changes['batch'] = {'train.accumulate': 2 * train.accumulate}
  elif train.batch_size % 2 == 0:
    changes['batch'] = {'train.batch_size': train.batch_size // 2}
  if head.chunk >= 128:
    changes['chunk'] = {'model.head.chunk': head.chunk // 4}
  if one_vs_all:
    narrow = head.bottleneck // 2 or 4 * _LEAST_BOTTLENECK
    if narrow >= _LEAST_BOTTLENECK:
      changes['bottleneck'] = {'model.head.bottleneck': narrow}
  return changes


def advice(plan: Plan, planner: Planner, stage: str = '') -> Advice:
  """Returns changes that reduce the memory of a plan that does not fit.

  The totals are estimates. If XLA has computed the memory of the plan, they are
  scaled so that the estimate for the plan equals XLA's total. `stage` is the
  path of the plan's stage in the config of the run; '' for the run itself.
  """
  estimate = planner.held(plan.config, plan.devices).total

  def total(config: Config, devices: int = plan.devices) -> float:
    try:
      held = planner.held(config, devices).total
    except ConfigError:  # for example, the batch cannot be divided evenly
      return float('inf')
    return held * plan.held.total / estimate

  config, size, changes = plan.config, plan.held.total, []
  for name in _CHANGES:
    chosen: Fields = {}
    while size > plan.usable:
      fields = _possible_changes(config).get(name, {})
      changed = _with(config, fields)
      less = total(changed)
      if less > (1 - _LEAST_SAVING) * size:
        break
      config, size = changed, less
      chosen |= fields
    if chosen:
      changes.append(Change(_text(chosen, stage), size))
  fits = size <= plan.usable
  base, count = plan.config if fits else config, plan.devices
  while count < MOST_DEVICES:
    count *= 2
    for shape in (
      (count // plan.label, plan.label),
      (plan.data, count // plan.data),
    ):
      mesh = dict(zip(('mesh.data', 'mesh.label'), shape))
      if (size := total(_with(base, mesh), count)) <= plan.usable:
        devices = Change(f'{count} devices, {_text(mesh)}', size)
        return Advice(tuple(changes), fits, devices)
  return Advice(tuple(changes), fits, None)


def _with(config: Config, fields: Fields) -> Config:
  changed = copy.deepcopy(config)
  for path, value in fields.items():
    *parents, name = path.split('.')
    setattr(functools.reduce(getattr, parents, changed), name, value)
  return changed


def _text(fields: Fields, stage: str = '') -> str:
  """Returns the flags that set fields; if a value has none, what to write."""
  texts, for_file = {}, False
  for path, value in fields.items():
    path = f'{stage}.{path}' if stage else path
    texts[path] = value.name if isinstance(value, enum.Enum) else value
    if dataclasses.is_dataclass(value):
      texts[path], for_file = f'{type(value).__name__}()', True
  if for_file:
    pairs = ', '.join(f'{path}={text}' for path, text in texts.items())
    return f'in the config file, {pairs}'
  return ' '.join(f'--config.{path}={text}' for path, text in texts.items())
