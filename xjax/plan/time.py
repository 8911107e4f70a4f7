"""How long a training step takes at least, and what bounds it."""

import dataclasses
from typing import Any

from flax import nnx
import jax

from xjax.config.run import Config
from xjax.core.mesh import DATA, LABEL
from xjax.plan.chips import Chip, Platform
from xjax.plan.memory import on_device, operand_bytes, traffic_of
from xjax.plan.program import Work
from xjax.plan.sizes import BatchShape
from xjax.plan.step import Mesh, is_one_vs_all
from xjax.score.heads.contract import is_label_row
from xjax.train.state import StatePlan

_FLOAT32 = 4


@dataclasses.dataclass(frozen=True)
class StepTime:
  """Of one device and one step.

  Attributes:
    operations: of products.
    moved: bytes read from memory and written to it.
    sent: bytes sent to other devices.
    compute, memory, network: seconds that these take at the chip's best.
  """

  operations: int
  moved: int
  sent: float
  compute: float
  memory: float
  network: float

  @property
  def bound(self) -> float:
    """Seconds at the bound, all else being done meanwhile."""
    return max(self.compute, self.memory, self.network)

  @property
  def bound_by(self) -> str:
    """compute, memory or network."""
    return max(('compute', 'memory', 'network'), key=lambda n: getattr(self, n))


def step_time(
  config: Config,
  plan: StatePlan,
  shape: BatchShape,
  mesh: Mesh,
  chip: Chip,
  work: Work,
) -> StepTime:
  """Of a batch of that shape.

  Args:
    config: of the run.
    plan: of its state.
    shape: of the batch.
    mesh: of the devices.
    chip: each of them.
    work: of the device's share of the batch (DeviceShare.traced).
  """
  micro = config.train.accumulate
  operations, moved = micro * work.operations, micro * work.moved
  if is_one_vs_all(config):
    in_cache = chip.platform is Platform.CPU
    head = traffic_of(config, plan, shape, mesh, in_cache)
    operations += head.operations
    moved += head.moved.total
  moved += _update(config, plan)
  sent = _sent(config, plan, shape, mesh)
  peak = chip.peak(operand_bytes(config))
  return StepTime(
    operations,
    moved,
    sent,
    operations / peak,
    moved / chip.bandwidth,
    sent / chip.network if chip.network else 0.0,
  )


def _update(config: Config, plan: StatePlan) -> int:
  """Bytes that the optimizer reads and writes, but of one-vs-all rows.

  Gradients are read for their norm and for the update; parameters, slots and
  averages are read and written. Before that, those of a micro-batch are read
  and added to sums, which are read and written.
  """
  trained, _ = plan.split(plan.abstract.params)
  changed = [trained, plan.abstract.opt_state, plan.abstract.averages]
  if is_one_vs_all(config):
    trained, *changed = map(_no_rows, (trained, *changed))
  micro = config.train.accumulate
  sums = 3 * micro if micro > 1 else 0
  return (2 + sums) * on_device(trained) + 2 * sum(map(on_device, changed))


def _no_rows(tree: Any) -> list[nnx.Variable]:
  """The parameters of a tree, or its slots, but those of label rows."""

  def is_variable(leaf: Any) -> bool:
    return isinstance(leaf, nnx.Variable)

  leaves = filter(is_variable, jax.tree.leaves(tree, is_leaf=is_variable))
  return [leaf for leaf in leaves if not is_label_row((), leaf)]


def _sent(
  config: Config, plan: StatePlan, shape: BatchShape, mesh: Mesh
) -> float:
  """Bytes that a device sends, in rings.

  An all-reduce of n bytes over k devices sends 2 n (k - 1) / k, a
  reduce-scatter half of that, an all-gather n (k - 1). Gradients of parameters
  are summed over devices in each micro-batch.
  """
  data, label = mesh.shape[DATA], mesh.shape[LABEL]
  over_data, over_label = (data - 1) / data, (label - 1) / label
  trained, _ = plan.split(plan.abstract.params)
  summed = 2 * config.train.accumulate * over_data
  if is_one_vs_all(config):
    found = traffic_of(config, plan, shape, mesh).collectives
    return (
      summed * on_device(_no_rows(trained))
      + (data - 1) * found.all_gather
      + over_data * found.reduce_scatter
      + 2 * over_label * found.all_reduce
      + 2 * found.scalars
    )
  # Of rows that lie on the label axis the gradient is summed over data, that
  # of what they read over labels.
  rows = nnx.filter_state(plan.abstract.params['head'], is_label_row)
  sizes = [x.shape[-1] for x in jax.tree.leaves(rows) if len(x.shape) > 1]
  tokens = shape.documents // data * (shape.zones or shape.tokens)
  return (
    summed * on_device(trained)
    + 2 * over_label * tokens * max(sizes) * _FLOAT32
  )
