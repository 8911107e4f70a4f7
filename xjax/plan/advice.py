"""What to change of a run that does not fit."""

from collections.abc import Iterator, Sequence
import copy
import dataclasses
import enum
import functools
from typing import Any

from xjax.config.run import Config
from xjax.core.errors import ConfigError
from xjax.plan.plan import Plan, Planner
from xjax.plan.plan_moves import MOVES, Fields, Move, fused, narrower_features

MOST_DEVICES = 1 << 14
_ENOUGH = 0.05  # of what a device holds; what saves less is not worth a line


@dataclasses.dataclass(frozen=True)
class Change:
  """What to set.

  Attributes:
    text: the flags, or what to write in the config file.
    total: bytes that a device holds then.
  """

  text: str
  total: float


@dataclasses.dataclass(frozen=True)
class Advice:
  """What makes a run fit.

  Attributes:
    changes: each with those before it, no field twice; what helps most first,
      what makes another model of it last.
    fits: whether they are enough.
    devices: instead of them, or where they are not enough with them, the fewest
      devices; None: so many do not help.
  """

  changes: tuple[Change, ...]
  fits: bool
  devices: Change | None


def advice(plan: Plan, planner: Planner) -> Advice:
  """Changes of a plan that does not fit.

  Totals are estimates, scaled by what the plan's own estimate was short of.
  """
  estimate = planner.plan(plan.config, plan.devices)
  trial = _Trial(planner, plan, plan.held.total / estimate.held.total)
  config, chosen = trial.chosen([])
  if not trial.fits(config) and (fields := fused(plan.config)):
    # Micro-batches may have been in its way: they exclude one another.
    other, found = trial.chosen([fields])
    if trial.total(other) < trial.total(config):
      config, chosen = other, found
  fits = trial.fits(config)
  devices = trial.devices(plan.config if fits else config)
  return Advice(tuple(_told(chosen, trial)), fits, devices)


def _choose(chosen: list[Fields], fields: Fields) -> None:
  """Adds what is to be set; what is set again stands where it first stood."""
  for one in chosen:
    if one.keys() == fields.keys():
      one.update(fields)
      return
  chosen[:] = [one for one in chosen if not one.keys() & fields.keys()]
  chosen.append(fields)


def _told(chosen: list[Fields], trial: '_Trial') -> Iterator[Change]:
  """What is left to set, each with those before it."""
  config = trial.plan.config
  for fields in chosen:
    fields = {at: to for at, to in fields.items() if _get(config, at) != to}
    config = _with(config, fields)
    yield Change(_text(fields), trial.total(config))


@dataclasses.dataclass(frozen=True)
class _Trial:
  """Finds what changed configs hold; scale: of their estimates."""

  planner: Planner
  plan: Plan
  scale: float

  def chosen(self, first: list[Fields]) -> tuple[Config, list[Fields]]:
    """(changed config, what is set), after the first what saves most, in turn.

    Until it fits, or nothing saves any more.
    """
    config, chosen = functools.reduce(_with, first, self.plan.config), [*first]
    while not self.fits(config):
      fields = self.best(MOVES, config) or self.best(
        [narrower_features], config
      )
      if fields is None:
        break
      config = _with(config, fields)
      _choose(chosen, fields)
    return config, chosen

  def best(self, moves: Sequence[Move], config: Config) -> Fields | None:
    """What saves most; None: nothing saves what is worth a line."""
    best, most = None, (1 - _ENOUGH) * self.total(config)
    for fields in filter(None, (move(config) for move in moves)):
      less = self.total(_with(config, fields))
      if less is not None and less <= most:
        best, most = fields, less
    return best

  def total(self, config: Config, devices: int = 0) -> float | None:
    """None: this cannot be, with a batch that does not divide, say."""
    try:
      found = self.planner.plan(config, devices or self.plan.devices)
    except ConfigError:
      return None
    return self.scale * found.held.total

  def fits(self, config: Config) -> bool:
    return self.total(config) <= self.plan.usable

  def devices(self, config: Config) -> Change | None:
    """The fewest, by twos, with documents or else labels among all of them."""
    count, data, label = self.plan.devices, self.plan.data, self.plan.label
    while count < MOST_DEVICES:
      count *= 2
      for shape in ((count // label, label), (data, count // data)):
        changed = copy.deepcopy(config)
        changed.mesh.data, changed.mesh.label = shape
        total = self.total(changed, count)
        if total is not None and total <= self.plan.usable:
          mesh = '--config.mesh.data={} --config.mesh.label={}'.format(*shape)
          return Change(f'{count} devices, {mesh}', total)
    return None


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
  if any(map(dataclasses.is_dataclass, fields.values())):
    pairs = (f'{path}={_spelt(value)}' for path, value in fields.items())
    return 'in the config file, ' + ', '.join(pairs)
  return ' '.join(f'--config.{at}={_spelt(to)}' for at, to in fields.items())


def _spelt(value: Any) -> str:
  if isinstance(value, enum.Enum):
    return value.name
  return (
    f'{type(value).__name__}()'
    if dataclasses.is_dataclass(value)
    else f'{value}'
  )
