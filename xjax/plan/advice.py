"""What to change of a run that does not fit."""

from collections.abc import Callable, Iterator, Sequence
import copy
import dataclasses
import enum
import functools
from typing import Any

from xjax.config.optimizer import NoAverage
from xjax.config.parameter_groups import in_group
from xjax.config.run import Config, NeuralTrain
from xjax.core.errors import ConfigError
from xjax.plan.plan import Plan, Planner
from xjax.score.encoders.bert import BertConfig
from xjax.score.heads.ova import OneVsAllConfig
from xjax.score.heads.storage import Storage
from xjax.score.heads.update import ByOptimizer, FusedSGD

_LEAST_BOTTLENECK = 64

Fields = dict[str, Any]  # values to set, by the path of their field
# Of a config that can be changed so, what is set; else nothing.
Move = Callable[[Config], Fields]


def fused(config: Config) -> Fields:
  """Rows that train themselves, which takes one pass and keeps no mean."""
  train = config.train
  if not isinstance(config.model.head, OneVsAllConfig):
    return {}
  if not isinstance(train.rows, ByOptimizer) or _groups_rows(train):
    return {}
  fields = {'train.rows': FusedSGD()}
  if train.accumulate != 1:
    fields['train.accumulate'] = 1
  if train.average.averages:
    fields['train.average'] = NoAverage()
  return fields


def _groups_rows(train: NeuralTrain) -> bool:
  """Whether a group of the optimizer's parameters has label rows."""
  globs = [*train.freeze, *(entry.rpartition('=')[0] for entry in train.rates)]
  return any(in_group(f'head/{name}', globs) for name in ('kernel', 'bias'))


def _narrower_storage(config: Config) -> Fields:
  head = config.model.head
  if not isinstance(head, OneVsAllConfig):
    return {}
  if isinstance(config.train.rows, ByOptimizer):
    return {}
  for storage in (Storage.BFLOAT16, Storage.FLOAT8):
    if storage.bytes < head.storage.bytes:
      return {'model.head.storage': storage}
  return {}


def _no_momentum(config: Config) -> Fields:
  if not getattr(config.train.rows, 'momentum', 0.0):
    return {}
  return {'train.rows.momentum': 0.0}


def _remat(config: Config) -> Fields:
  encoder = config.model.encoder
  if not isinstance(encoder, BertConfig) or encoder.remat:
    return {}
  return {'model.encoder.remat': True}


def _smaller_batch(config: Config) -> Fields:
  """Micro-batches where there may be some, which change no result."""
  batch, micro = config.train.batch_size, config.train.accumulate
  if isinstance(config.train.rows, ByOptimizer) and batch % (2 * micro) == 0:
    return {'train.accumulate': 2 * micro}
  if batch % 2:
    return {}
  return {'train.batch_size': batch // 2}


def _smaller_chunk(config: Config) -> Fields:
  chunk = config.model.head.chunk
  return {'model.head.chunk': chunk // 4} if chunk >= 128 else {}


def narrower_features(config: Config) -> Fields:
  """A head that reads fewer features: another model."""
  head = config.model.head
  if not isinstance(head, OneVsAllConfig):
    return {}
  size = head.bottleneck // 2 if head.bottleneck else 4 * _LEAST_BOTTLENECK
  return {'model.head.bottleneck': size} if size >= _LEAST_BOTTLENECK else {}


MOVES: tuple[Move, ...] = (
  fused,
  _narrower_storage,
  _no_momentum,
  _remat,
  _smaller_batch,
  _smaller_chunk,
)


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
