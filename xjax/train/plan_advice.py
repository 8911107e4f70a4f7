"""What to change of a run that does not fit."""

from collections.abc import Callable
import copy
import dataclasses
import functools

from xjax.core.errors import ConfigError
from xjax.heads.storage import Storage
from xjax.models.config import BertConfig, OneVsAllConfig
from xjax.train.average import NoAverage
from xjax.train.config import ByOptimizer, Config, FusedSGD
from xjax.train.plan import Plan, Planner

MOST_DEVICES = 1 << 14
_ENOUGH = 0.05  # of what a device holds; what saves less is not worth a line
_LEAST_BOTTLENECK = 64


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
    changes: each with those before it, what helps most first; what makes
      another model of it last.
    fits: whether they are enough.
    devices: instead of them, or where they are not enough with them, the fewest
      devices; None: so many do not help.
  """

  changes: tuple[Change, ...]
  fits: bool
  devices: Change | None


# Makes (text, config) of a config that can be changed so, else None.
_Move = Callable[[Config], tuple[str, Config] | None]


def advice(plan: Plan, planner: Planner) -> Advice:
  """Changes of a plan that does not fit.

  Totals are estimates, scaled by what the plan's own estimate was short of.
  """
  estimate = planner.plan(plan.config, plan.devices)
  trial = _Trial(planner, plan, plan.held.total / estimate.held.total)
  alone = {move: _alone(move, trial, plan.config) for move in _MOVES}
  config, total, changes = plan.config, float(plan.held.total), []
  for move in (*sorted(_MOVES, key=alone.get), _narrower_features):
    while total > plan.usable and (found := move(config)):
      text, changed = found
      less = trial.total(changed)
      if less is None or less > (1 - _ENOUGH) * total:
        break
      config, total = changed, less
      changes.append(Change(text, total))
  fits = total <= plan.usable
  devices = trial.devices(plan.config if fits else config)
  return Advice(tuple(changes), fits, devices)


def _alone(move: _Move, trial: '_Trial', config: Config) -> float:
  """The total with nothing but this change."""
  found = move(config)
  total = None if found is None else trial.total(found[1])
  return float('inf') if total is None else total


@dataclasses.dataclass(frozen=True)
class _Trial:
  """Finds what changed configs hold; scale: of their estimates."""

  planner: Planner
  plan: Plan
  scale: float

  def total(self, config: Config, devices: int = 0) -> float | None:
    """None: this cannot be, with a batch that does not divide, say."""
    try:
      found = self.planner.plan(config, devices or self.plan.devices)
    except ConfigError:
      return None
    return self.scale * found.held.total

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


def _fused(config: Config) -> tuple[str, Config] | None:
  if not isinstance(config.model.head, OneVsAllConfig):
    return None
  if not isinstance(config.train.rows, ByOptimizer):
    return None
  changed = copy.deepcopy(config)
  train = changed.train
  train.rows, train.accumulate, train.average = FusedSGD(), 1, NoAverage()
  return 'in the config file, train.rows=FusedSGD()', changed


def _narrower_storage(config: Config) -> tuple[str, Config] | None:
  head = config.model.head
  if not isinstance(head, OneVsAllConfig):
    return None
  if isinstance(config.train.rows, ByOptimizer):
    return None
  for storage in (Storage.BFLOAT16, Storage.FLOAT8):
    if storage.bytes < head.storage.bytes:
      _, changed = _set(config, 'model.head.storage', storage)
      return f'--config.model.head.storage={storage.name}', changed
  return None


def _no_momentum(config: Config) -> tuple[str, Config] | None:
  if not getattr(config.train.rows, 'momentum', 0.0):
    return None
  return _set(config, 'train.rows.momentum', 0.0)


def _remat(config: Config) -> tuple[str, Config] | None:
  encoder = config.model.encoder
  if not isinstance(encoder, BertConfig) or encoder.remat:
    return None
  return _set(config, 'model.encoder.remat', True)


def _smaller_batch(config: Config) -> tuple[str, Config] | None:
  """Micro-batches where there may be some, which change no result."""
  batch, micro = config.train.batch_size, config.train.accumulate
  if isinstance(config.train.rows, ByOptimizer) and batch % (2 * micro) == 0:
    return _set(config, 'train.accumulate', 2 * micro)
  if batch % 2:
    return None
  return _set(config, 'train.batch_size', batch // 2)


def _smaller_chunk(config: Config) -> tuple[str, Config] | None:
  chunk = config.model.head.chunk
  if chunk < 128:
    return None
  return _set(config, 'model.head.chunk', chunk // 4)


def _narrower_features(config: Config) -> tuple[str, Config] | None:
  """A head that reads fewer features: another model."""
  head = config.model.head
  if not isinstance(head, OneVsAllConfig):
    return None
  size = head.bottleneck // 2 if head.bottleneck else 4 * _LEAST_BOTTLENECK
  if size < _LEAST_BOTTLENECK:
    return None
  return _set(config, 'model.head.bottleneck', size)


_MOVES: tuple[_Move, ...] = (
  _fused,
  _narrower_storage,
  _no_momentum,
  _remat,
  _smaller_batch,
  _smaller_chunk,
)


def _set(config: Config, path: str, value: object) -> tuple[str, Config]:
  """The flag that sets a field, and a config with it."""
  changed = copy.deepcopy(config)
  *parents, name = path.split('.')
  setattr(functools.reduce(getattr, parents, changed), name, value)
  return f'--config.{path}={value}', changed
