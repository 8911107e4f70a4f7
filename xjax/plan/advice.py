"""What to change of a run that does not fit."""

from collections.abc import Callable
import copy
import dataclasses
import enum
import functools
import operator
from typing import Any

from xjax.config.optimizer import NoAverage
from xjax.config.parameter_groups import in_group
from xjax.config.run import Config
from xjax.core.errors import ConfigError
from xjax.plan.plan import Plan, Planner
from xjax.score.heads.storage import Storage
from xjax.score.heads.update import FusedSGD

MOST_DEVICES = 1 << 14
_LEAST_BOTTLENECK = 64
_ENOUGH = 0.05  # of what a device holds; what saves less is not worth a line

Fields = dict[str, Any]  # values to set, by the path of their field


@dataclasses.dataclass(frozen=True)
class Change:
  """What to set."""

  text: str  # the flags, or what to write in the config file
  total: float  # bytes that a device holds then


@dataclasses.dataclass(frozen=True)
class Advice:
  """What makes a run fit."""

  # Each with those before it, no field twice; what helps most first, what makes
  # another model of it last.
  changes: tuple[Change, ...]
  fits: bool  # whether they are enough
  devices: Change | None  # the fewest instead, or with changes not enough


def _moves(config: Config) -> dict[str, Fields]:
  """Returns the changes that are possible, by name.

  Rows that train themselves take one pass and keep no mean. Micro-batches
  change no result, smaller batches do; a bottleneck makes another model.
  """
  train, head, encoder = config.train, config.model.head, config.model.encoder
  one_vs_all, by_optimizer = head.fusable, not train.rows.fused
  globs = [*train.freeze, *(entry.rpartition('=')[0] for entry in train.rates)]
  grouped = any(in_group(f'head/{name}', globs) for name in ('kernel', 'bias'))
  moves: dict[str, Fields] = {}
  if one_vs_all and by_optimizer and not grouped:
    micro = {'train.accumulate': 1} if train.accumulate != 1 else {}
    mean = {'train.average': NoAverage()} if train.average.averages else {}
    moves['rows'] = {'train.rows': FusedSGD(), **micro, **mean}
  storages = [Storage.BFLOAT16, Storage.FLOAT8] * one_vs_all
  for storage in storages * (not by_optimizer):
    if storage.bytes < head.storage.bytes:
      moves.setdefault('storage', {'model.head.storage': storage})
  if train.rows.momentum:
    moves['momentum'] = {'train.rows.momentum': 0.0}
  if encoder.remat is False:
    moves['remat'] = {'model.encoder.remat': True}
  if by_optimizer and train.batch_size % (2 * train.accumulate) == 0:
    moves['batch'] = {'train.accumulate': 2 * train.accumulate}
  elif train.batch_size % 2 == 0:
    moves['batch'] = {'train.batch_size': train.batch_size // 2}
  if head.chunk >= 128:
    moves['chunk'] = {'model.head.chunk': head.chunk // 4}
  if one_vs_all:
    narrow = head.bottleneck // 2 or 4 * _LEAST_BOTTLENECK
    if narrow >= _LEAST_BOTTLENECK:
      moves['bottleneck'] = {'model.head.bottleneck': narrow}
  return moves


def advice(plan: Plan, planner: Planner) -> Advice:
  """Changes of a plan that does not fit.

  Totals are estimates, scaled by what the plan's own estimate was short of.
  """
  estimate = planner.held(plan.config, plan.devices).total

  def total(config: Config, devices: int = plan.devices) -> float:
    """Bytes of a device; infinite where this cannot be."""
    try:
      held = planner.held(config, devices).total
    except ConfigError:  # the batch does not divide, say
      return float('inf')
    return held * plan.held.total / estimate

  now, chosen = _chosen(plan, total, [])
  rows = _moves(plan.config).get('rows')
  if now > plan.usable and rows:
    # Micro-batches may have been in its way: they exclude one another.
    now, chosen = min((now, chosen), _chosen(plan, total, [rows]), key=_first)
  config, changes = plan.config, []
  for fields in chosen:
    fields = {at: to for at, to in fields.items() if _get(config, at) != to}
    config = _with(config, fields)
    changes.append(Change(_text(fields), total(config)))
  fits = now <= plan.usable
  config, count = plan.config if fits else config, plan.devices
  # The fewest, by twos, with documents or else labels among all of them.
  while count < MOST_DEVICES:
    count *= 2
    for shape in (
      (count // plan.label, plan.label),
      (plan.data, count // plan.data),
    ):
      mesh = dict(zip(('mesh.data', 'mesh.label'), shape))
      if (now := total(_with(config, mesh), count)) <= plan.usable:
        devices = Change(f'{count} devices, {_text(mesh)}', now)
        return Advice(tuple(changes), fits, devices)
  return Advice(tuple(changes), fits, None)


def _chosen(
  plan: Plan, total: Callable[[Config], float], chosen: list[Fields]
) -> tuple[float, list[Fields]]:
  """(bytes of a device, what is set): what is chosen, then what saves most.

  Until it fits, or nothing saves any more; a narrower model comes last.
  """
  config, chosen = functools.reduce(_with, chosen, plan.config), [*chosen]
  now = total(config)
  while plan.usable < now < float('inf'):
    moves = _moves(config)
    narrower = [moves.pop('bottleneck')] if 'bottleneck' in moves else []
    for some in [*moves.values()], narrower:
      tried = [(total(_with(config, fields)), fields) for fields in some]
      less, fields = min(tried, key=_first, default=(now, {}))
      if less <= (1 - _ENOUGH) * now:
        break
    else:
      break
    now, config = less, _with(config, fields)
    for one in chosen:  # what is set again stands where it first stood
      if one.keys() == fields.keys():
        one.update(fields)
        break
    else:
      chosen = [one for one in chosen if not one.keys() & fields.keys()]
      chosen.append({**fields})
  return now, chosen


_first = operator.itemgetter(0)


def _get(config: Config, path: str) -> Any:
  return functools.reduce(getattr, path.split('.'), config)


def _with(config: Config, fields: Fields) -> Config:
  """A config with these fields set."""
  changed = copy.deepcopy(config)
  for path, value in fields.items():
    *parents, name = path.split('.')
    setattr(functools.reduce(getattr, parents, changed), name, value)
  return changed


def _text(fields: Fields) -> str:
  """The flags that set fields; what has no flag is for the config file."""
  told, for_file = {}, False
  for path, value in fields.items():
    told[path] = value.name if isinstance(value, enum.Enum) else value
    if dataclasses.is_dataclass(value):
      told[path], for_file = f'{type(value).__name__}()', True
  if for_file:
    pairs = ', '.join(f'{path}={value}' for path, value in told.items())
    return f'in the config file, {pairs}'
  return ' '.join(f'--config.{path}={value}' for path, value in told.items())
