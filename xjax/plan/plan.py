"""What a run will need, before anything is made for it: memory and time."""

import dataclasses

import jax

from xjax.config.run import Config
from xjax.core.errors import ConfigError
from xjax.core.mesh import DATA, LABEL, abstract_mesh
from xjax.plan.chips import Chip
from xjax.plan.memory import Held, held, held_compiled
from xjax.plan.program import Work
from xjax.plan.sizes import BatchShape, Sizes, check_sizes
from xjax.plan.step import DeviceShare, Mesh, planned_state
from xjax.plan.time import StepTime, step_time
from xjax.run.neural_training import check_mesh
from xjax.score.text_model import NeuralModel
from xjax.train.state import StatePlan

USABLE = 0.9  # of a device's memory; the rest is programs, and what falls apart


@dataclasses.dataclass(frozen=True)
class Plan:
  """Of a run on so many chips.

  Attributes:
    config, sizes: of the run.
    chip: each device.
    devices: how many.
    data, label: of them along each axis of the mesh.
    held: by a device, at the peak of the longest batch.
    longest: what a step of that batch takes.
    steps: of an epoch.
    epoch: seconds of an epoch at the bound.
  """

  config: Config
  sizes: Sizes
  chip: Chip
  devices: int
  data: int
  label: int
  held: Held
  longest: StepTime
  steps: int
  epoch: float

  @property
  def usable(self) -> float:
    """Bytes of a device that a run may fill."""
    return USABLE * self.chip.memory

  @property
  def fits(self) -> bool:
    """Whether there is room."""
    return self.held.total <= self.usable


def planned_mesh(config: Config, devices: int) -> jax.sharding.AbstractMesh:
  """The mesh of so many devices.

  Raises:
    ConfigError: as Planner.plan.
  """
  if not isinstance(config.model, NeuralModel):
    raise ConfigError('--plan: nothing is trained by this config')
  mesh = abstract_mesh(config.mesh, devices)
  check_mesh(config, mesh)
  return mesh


class Planner:
  """Plans of variants of a run; what they share is traced once.

  Attributes:
    sizes: of the run.
    chip: each device.
  """

  def __init__(self, sizes: Sizes, chip: Chip):
    self.sizes, self.chip = sizes, chip
    self._works: dict[str, Work] = {}
    self._states: dict[str, StatePlan] = {}

  def plan(self, config: Config, devices: int, compile_: bool = False) -> Plan:
    """Of a run on so many devices.

    Args:
      config: of the run.
      devices: how many.
      compile_: whether to ask XLA, where it compiles for such chips here.

    Raises:
      ConfigError: batches or the mesh do not fit the devices, or the model
        takes no steps.
    """
    mesh = planned_mesh(config, devices)
    check_sizes(config, self.sizes)
    sizes = _batched(self.sizes, config)
    compile_ &= jax.default_backend() == self.chip.platform.value
    longest = sizes.longest
    state = self._state(config, sizes, mesh)
    find = held_compiled if compile_ else held
    work = self._work(config, sizes, longest, mesh)
    times = {
      shape: step_time(
        config,
        state,
        shape,
        mesh,
        self.chip,
        self._work(config, sizes, shape, mesh),
      )
      for shape in sizes.steps
    }
    return Plan(
      config,
      sizes,
      self.chip,
      devices,
      mesh.shape[DATA],
      mesh.shape[LABEL],
      find(config, sizes, state, mesh, self.chip, work),
      times[longest],
      sum(sizes.steps.values()),
      sum(times[shape].bound * n for shape, n in sizes.steps.items()),
    )

  def _state(self, config: Config, sizes: Sizes, mesh: Mesh) -> StatePlan:
    # Of what else is in a config, only what is held while it is computed.
    key = repr((config.model, config.train, sizes.labels, mesh))
    if key not in self._states:
      self._states[key] = planned_state(config, sizes, mesh)
    return self._states[key]

  def _work(
    self, config: Config, sizes: Sizes, shape: BatchShape, mesh: Mesh
  ) -> Work:
    share = DeviceShare.of(config, sizes, shape, mesh)
    key = share.traced_key
    if key not in self._works:
      self._works[key] = share.traced()
    return self._works[key]


def _batched(sizes: Sizes, config: Config) -> Sizes:
  """The same with the config's batches, however large those of sizes are."""

  def batched(shape: BatchShape) -> BatchShape:
    documents = config.train.batch_size
    rows = -(-shape.rows * documents // shape.documents)
    return dataclasses.replace(shape, documents=documents, rows=rows)

  return dataclasses.replace(
    sizes,
    steps={
      batched(shape): -(-n * shape.documents // config.train.batch_size)
      for shape, n in sizes.steps.items()
    },
  )
