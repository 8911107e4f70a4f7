"""Plans a neural run: its memory, its time, and how to make it fit."""

from collections.abc import Iterator
import copy
import dataclasses
import functools
import math
from typing import Any

from jax.sharding import AbstractMesh
import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.mesh import DATA, LABEL, abstract_mesh
from xjax.models.config_check import check_config
from xjax.models.contract import Config
from xjax.models.neural.neural_plan import check_mesh
from xjax.networks.encoders.encoder import Remat
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedAdam
from xjax.plan.chips import Chip
from xjax.plan.compiler import (
  Compiled,
  Program,
  Refused,
  Target,
  compiled,
  compiler_of,
)
from xjax.plan.programs import ranking, state_parts, train_step
from xjax.plan.sizes import BatchShape, RunSizes
from xjax.train.initial.pretrained_encoder import check_lengths
from xjax.train.neural_train import Dtype

# A run can use this share of a device's memory. Gaps between arrays need the
# remaining memory.
USABLE = 0.9
# Without a compiler, the state may take this share of the usable memory. The
# rest is left for gradients and activations.
STATE = 0.5
LONGEST, COMMONEST, RANKING = 'longest step', 'commonest step', 'top-k'
_TRIES = 5


@dataclasses.dataclass(frozen=True)
class Bound:
  """Holds the shortest seconds of a program, if all work overlaps."""

  compute: float  # for the operations in matrix products
  memory: float  # for the bytes that are read or written at least
  links: float  # for the bytes that are sent at least in a slice or host
  network: float  # for those that are sent at least to others

  @property
  def seconds(self) -> float:
    return max(dataclasses.astuple(self))

  @property
  def by(self) -> str:
    names = [field.name for field in dataclasses.fields(self)]
    return max(names, key=lambda name: getattr(self, name))


@dataclasses.dataclass(frozen=True)
class RunPlan:
  config: Config
  sizes: RunSizes
  target: Target
  mesh: AbstractMesh
  dtype: Dtype  # of products
  other: Dtype | None  # the longest step is compiled with it, too
  parts: dict[str, int]  # exact bytes of a device before a step, by name
  unmoved: int  # bytes of a step's arguments and outputs that it does not move
  compiler: str  # '' if there is none
  programs: dict[str, Compiled | Refused]  # empty without a compiler

  @property
  def state(self) -> int:
    return sum(self.parts.values())

  @property
  def total(self) -> float:
    """Returns the bytes of the largest program, or of the state."""
    needed = [x for name, x in self.programs.items() if name != self.in_other]
    return max((x.total for x in needed), default=self.state)

  @property
  def usable(self) -> float:
    share = USABLE if self.programs else USABLE * STATE
    return share * self.target.chip.memory

  @property
  def fits(self) -> bool:
    return self.total <= self.usable

  @property
  def in_other(self) -> str:
    return f'{LONGEST} in {self.other.value}' if self.other else ''

  def bound(self, name: str) -> Bound | None:
    """Returns the bound of a program; None if it is not compiled."""
    program, chip = self.programs.get(name), self.target.chip
    if not isinstance(program, Compiled):
      return None
    dtype = self.other if name == self.in_other else self.dtype
    moved = program.arguments + program.outputs + 2 * program.temporaries
    if name != RANKING:
      moved -= self.unmoved
    elif self.sizes.longest.listed:
      moved -= program.arguments  # only some label rows are read
    near = sum(x.near for x in program.collectives) / chip.link
    far = sum(x.far for x in program.collectives) / chip.network
    return Bound(
      program.operations / chip.peak(4 if dtype is Dtype.FLOAT32 else 2),
      moved / chip.bandwidth,
      near,
      far,
    )

  @property
  def epoch(self) -> float:
    """Returns the seconds of an epoch at the bounds of compiled steps."""
    longest = self.bound(LONGEST).seconds
    common = self.bound(COMMONEST)
    # Steps between the two that are compiled are interpolated. Shorter steps
    # count like the commonest.
    each = np.interp(
      [shape.volume for shape in self.sizes.steps],
      [_commonest(self.sizes).volume, self.sizes.longest.volume],
      [common.seconds if common else longest, longest],
    )
    return float(np.dot(each, [*self.sizes.steps.values()]))


def _commonest(sizes: RunSizes) -> BatchShape:
  return max(sizes.steps, key=lambda x: (sizes.steps[x], x.volume))


def planned_mesh(config: Config, devices: int, slices: int = 1) -> AbstractMesh:
  """Returns the mesh of a run; a ConfigError if it does not fit devices."""
  mesh = abstract_mesh(config.mesh, devices, slices)
  check_mesh(config, mesh)
  return mesh


def make_plan(config: Config, sizes: RunSizes, target: Target) -> RunPlan:
  """Plans a run; a ConfigError if it does not fit devices or encoder.

  If the chip's compiler is installed, the programs of the run are compiled,
  which takes seconds or minutes.
  """
  mesh = planned_mesh(config, target.devices, target.slices)
  if sizes.architecture is not None:
    longest = sizes.architecture.max_tokens
    check_lengths(config.model, config.data, longest, 'the encoder')
  dtype, other = _dtypes(config, target.chip)
  plan = RunPlan(
    *(config, sizes, target, mesh, dtype, other),
    *state_parts(config, sizes, mesh),
    compiler_of(target.chip.platform),
    {},
  )
  if not plan.compiler:
    return plan
  names = [LONGEST, COMMONEST, RANKING]
  if _commonest(sizes) == sizes.longest:
    names.remove(COMMONEST)
  programs = {name: _program(name, config, sizes) for name in names}
  if other:
    changed = _with(config, 'train.compute_dtype', other)
    programs[plan.in_other] = _program(LONGEST, changed, sizes)
  return dataclasses.replace(plan, programs=compiled(target, programs))


def _program(name: str, config: Config, sizes: RunSizes) -> Program:
  if name == RANKING:
    return functools.partial(ranking, config, sizes)
  shape = _commonest(sizes) if name == COMMONEST else sizes.longest
  return functools.partial(train_step, config, sizes, shape)


def _dtypes(config: Config, chip: Chip) -> tuple[Dtype, Dtype | None]:
  """Returns the dtype of a run, and the other one if its speed differs."""
  dtype, fast = config.train.compute_dtype, chip.bfloat16 > chip.float32
  if dtype is Dtype.AUTO:
    dtype = Dtype.BFLOAT16 if fast else Dtype.FLOAT32
  others = {Dtype.FLOAT32: Dtype.BFLOAT16, Dtype.BFLOAT16: Dtype.FLOAT32}
  return dtype, others[dtype] if fast else None


def _with(config: Config, path: str, value: Any) -> Config:
  config = copy.deepcopy(config)
  *holders, name = path.split('.')
  setattr(functools.reduce(getattr, holders, config), name, value)
  return config


@dataclasses.dataclass(frozen=True)
class Advice:
  changes: tuple[tuple[str, Any], ...]  # fields and their values
  programs: list[str]  # those that did not fit
  total: float  # bytes of the larger of them
  fits: bool


def advice(plan: RunPlan) -> Advice | None:
  """Returns the changes of a config that make its programs fit.

  At most five configs are compiled, the cheapest change first, and each with
  the changes before it. If none fits, the one that needs least is returned;
  None if no change takes less memory, or if there is no compiler.
  """
  if not (names := _too_large(plan)):
    return None
  sizes = [plan.programs[name].total for name in names]
  best, least = Advice((), names, math.inf, False), sum(sizes)
  config, tries = plan.config, 0
  for change in _changes(plan):
    for base, kept in ((config, best.changes), (plan.config, ())):
      changed = _changed(base, change, plan)
      if changed and tries < _TRIES:
        tries += 1
        programs = {x: _program(x, changed, plan.sizes) for x in names}
        found = compiled(plan.target, programs).values()
        sizes = [program.total for program in found]
        if sum(sizes) < least:
          most, config, least = max(sizes), changed, sum(sizes)
          best = Advice((*kept, *change), names, most, most <= plan.usable)
        break
    if best.fits:
      break
  return best if best.changes else None


def _too_large(plan: RunPlan) -> list[str]:
  """Returns the programs that do not fit, of those that changes are for."""
  programs = [(x, plan.programs.get(x)) for x in (LONGEST, RANKING)]
  return [name for name, x in programs if x and x.total > plan.usable]


def _changes(plan: RunPlan) -> Iterator[tuple[tuple[str, Any], ...]]:
  """Yields changes of fields, the cheapest first."""
  config, names = plan.config, _too_large(plan)
  if plan.state <= plan.usable:  # otherwise activations are not the reason
    if LONGEST in names:
      if config.model.encoder.remat is Remat.NONE:
        yield (('model.encoder.remat', Remat.EVERYTHING),)
      yield (('train.accumulate', 4 * config.train.accumulate),)
    if RANKING in names and config.eval.batch_size >= 4:
      yield (('eval.batch_size', config.eval.batch_size // 4),)
    if (chunk := getattr(config.model.head, 'chunk', 0)) >= 2048:
      yield (('model.head.chunk', chunk // 4),)
  if getattr(config.model.head, 'storage', None) is Storage.FLOAT32:
    storage = 'model.head.storage', Storage.BFLOAT16
    rows = (('train.rows', FusedAdam()),) * (not config.train.rows.fused)
    yield (*rows, storage)
  data, label = plan.mesh.shape[DATA], plan.mesh.shape[LABEL]
  # OneVsAll divides its rows among all devices, whatever the mesh.
  if data % 2 == 0 and not config.model.head.on_all_devices:
    yield ('mesh.data', data // 2), ('mesh.label', label * 2)


def _changed(
  config: Config, change: tuple[tuple[str, Any], ...], plan: RunPlan
) -> Config | None:
  """Returns a changed config; None if its fields do not fit together."""
  for path, value in change:
    config = _with(config, path, value)
  try:
    check_config(config)
    planned_mesh(config, plan.target.devices, plan.target.slices)
  except ConfigError:
    return None
  return config
