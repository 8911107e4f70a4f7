"""Plans the training of a neural model: its memory and its time.

On a mesh, each device works on a part of the documents and of the label rows.
This module traces the work of one device in a step. The trace uses abstract
arrays, which need no memory.
"""

import dataclasses
import math
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
import numpy as np

from xjax.core.mesh import BATCH, DATA, LABEL, abstract_mesh, padded_labels
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label, Labels
from xjax.models.contract import Config
from xjax.models.neural.neural_plan import check_mesh
from xjax.networks.batch import Shortlist, TokenBatch
from xjax.networks.heads.chunks import is_label_row
from xjax.networks.rows.storage import Storage
from xjax.networks.text_model import TextModel, build
from xjax.plan.chips import Chip, Platform
from xjax.plan.program import ProgramCost, program_cost
from xjax.plan.sizes import BatchShape, RunSizes
from xjax.train.initial.pretrained_encoder import check_lengths
from xjax.train.optimizer import FREQUENT, label_row_optimizer, make_optimizer
from xjax.train.state import StatePlan, plan_state
from xjax.train.step import make_train_step

# A run can use this share of a device's memory. Programs, and gaps between
# arrays, need the remaining memory.
USABLE = 0.9
ROWS, GRADIENTS = 'label rows', 'gradients'
ACTIVATIONS = 'activations and other computed arrays'
_FLOAT32 = 4


@dataclasses.dataclass(frozen=True)
class StepTime:
  """Holds the shortest time of a step on one device, at peak rates."""

  operations: int  # multiplications and additions in matrix products
  moved: int  # bytes read from memory and written to it
  compute: float  # seconds for the operations
  memory: float  # seconds for the bytes moved

  @classmethod
  def of(cls, cost: ProgramCost, config: Config, chip: Chip) -> 'StepTime':
    operand = jnp.dtype(config.train.compute_dtype.value).itemsize
    compute = cost.operations / chip.peak(operand)
    memory = cost.moved / chip.bandwidth
    return cls(cost.operations, cost.moved, compute, memory)

  @property
  def bound(self) -> float:
    """Returns the seconds of a step at peak rates, if all work overlaps."""
    return max(self.compute, self.memory)

  @property
  def bound_by(self) -> str:
    """Returns the slowest work: 'compute' or 'memory'."""
    return 'compute' if self.compute >= self.memory else 'memory'


@dataclasses.dataclass(frozen=True)
class RunPlan:
  config: Config
  sizes: RunSizes
  chip: Chip
  devices: int
  data: int  # devices along the mesh's data axis
  label: int  # devices along the mesh's label axis
  # Bytes of a device, by name, in a step with the largest batch; without parts
  # of 0 bytes.
  held: dict[str, int]
  # Whether XLA has compiled the step. If so, the bytes of computed arrays are
  # known; otherwise, they are estimated.
  compiled: bool
  longest: StepTime  # time of a step with the largest batch
  steps: int  # number of steps of an epoch
  epoch: float  # seconds of an epoch, as the sum of StepTime.bound over steps

  @property
  def total(self) -> int:
    return sum(self.held.values())

  @property
  def usable(self) -> float:
    return USABLE * self.chip.memory

  @property
  def fits(self) -> bool:
    return self.total <= self.usable


def planned_mesh(config: Config, devices: int) -> AbstractMesh:
  """Returns the mesh of a run; a ConfigError if it does not fit devices."""
  mesh = abstract_mesh(config.mesh, devices)
  check_mesh(config, mesh)
  return mesh


def make_plan(
  config: Config,
  sizes: RunSizes,
  chip: Chip,
  devices: int,
  compile_: bool = False,
) -> RunPlan:
  """Plans a run; a ConfigError if it does not fit devices or encoder.

  With `compile_`, the step is compiled if this machine has devices of the
  chip's platform. Then the memory is known more exactly, but it can take
  minutes.
  """
  mesh = planned_mesh(config, devices)
  if sizes.architecture is not None:
    longest = sizes.architecture.max_tokens
    check_lengths(config.model, config.data, longest, 'the encoder')
  state = planned_state(config, sizes, mesh)
  traces, costs, times = {}, {}, {}
  for shape in sizes.steps:
    local, traces[shape] = traced_step(config, sizes, shape, mesh)
    donated = slice(len(jax.tree.leaves(local.abstract)))
    costs[shape] = program_cost(traces[shape].jaxpr, donated)
    times[shape] = StepTime.of(costs[shape], config, chip)
  compile_ &= jax.default_backend() == chip.platform.value
  temporary = costs[sizes.longest].held
  if compile_:
    memory = traces[sizes.longest].lower().compile().memory_analysis()
    new = memory.output_size_in_bytes - memory.alias_size_in_bytes
    temporary = memory.temp_size_in_bytes + new
  held = _memory(config, sizes, chip, state, mesh, temporary, compile_)
  return RunPlan(
    *(config, sizes, chip, devices, mesh.shape[DATA], mesh.shape[LABEL]),
    *(held, compile_, times[sizes.longest]),
    steps=sum(sizes.steps.values()),
    epoch=sum(times[shape].bound * n for shape, n in sizes.steps.items()),
  )


def _memory(
  config: Config,
  sizes: RunSizes,
  chip: Chip,
  plan: StatePlan,
  mesh: AbstractMesh,
  temporary: int,
  compiled: bool,
) -> dict[str, int]:
  """Returns a device's bytes by name, with the temporary bytes of a step."""
  parts = _between_steps(config, sizes, plan, mesh)
  trained, _ = plan.split(plan.abstract.params)
  gradients = [on_device(leaf) for leaf in jax.tree.leaves(trained)]
  if not compiled:
    fused = plan.abstract.row_slots is not None
    if fused and config.model.head.storage is Storage.FLOAT8:
      # Programs that are compiled for v5e do not change arrays of 1-byte
      # floats in place; they copy the arrays.
      copied = parts[ROWS] * (chip.platform is Platform.TPU)
      parts['label rows, copied'] = copied
    if chip.platform is Platform.CPU and config.train.accumulate == 1:
      # On CPUs, XLA stores the squares of a gradient to compute its norm; with
      # micro-batches, over the gradients of the last micro-batch.
      temporary += max(gradients, default=0)
  parts[GRADIENTS] = min(sum(gradients), temporary)
  parts[ACTIVATIONS] = temporary - parts[GRADIENTS]
  return {name: n for name, n in parts.items() if n}


def _between_steps(
  config: Config, sizes: RunSizes, plan: StatePlan, mesh: AbstractMesh
) -> dict[str, int]:
  """Returns the exact bytes, by name, of what a device holds before a step."""
  state = plan.abstract
  rows, others = nnx.split_state(state.params, is_label_row, ...)
  weighted = not config.train.label_weights.even
  arrays = {
    ROWS: rows,
    "label rows' slots": state.row_slots,
    'other parameters': others,
    "optimizer's slots": state.opt_state,
    'averages': state.averages,
    'batch': batch_of(config, sizes.longest, mesh),
  }
  parts = {name: on_device(tree) for name, tree in arrays.items()}
  labels = -(-sizes.labels // _label_shards(config, mesh))
  return parts | {'label weights': 2 * _FLOAT32 * labels * weighted}


def _label_shards(config: Config, mesh: AbstractMesh) -> int:
  on_all = config.model.head.on_all_devices
  return mesh.size if on_all else mesh.shape[LABEL]


def on_device(tree: Any) -> int:
  """Returns the bytes of one device's part of sharded abstract arrays."""
  return sum(
    math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
    for leaf in jax.tree.leaves(tree)
  )


class _Gathered(TextModel):
  """Repeats a model's features, as if each device had computed a copy."""

  # A one-vs-all head gathers features; the planned step has one device.

  def _kept(self, batch: TokenBatch, rngs: nnx.Rngs | None) -> jax.Array:
    own = batch.positives_BP[: len(batch.doc_B)]
    return super()._kept(dataclasses.replace(batch, positives_BP=own), rngs)

  def _gathered(self, features: Any, batch: TokenBatch) -> Any:
    times = len(batch.mask_B) // len(batch.doc_B)
    if times == 1:
      return features
    return jax.tree.map(lambda x: jnp.concatenate([x] * times), features)


def planned_state(
  config: Config, sizes: RunSizes, mesh: Mesh | AbstractMesh
) -> StatePlan:
  """Returns a run's abstract training state, without reading its corpus."""
  train = config.train
  # The frequent labels are assumed to be spread evenly over all labels.
  counts = np.zeros(sizes.labels, np.int8)
  counts[:: max(1, sizes.labels // max(1, sizes.frequent))] = FREQUENT

  def make_model(rngs: nnx.Rngs) -> TextModel:
    model = build(
      config.model,
      vocab_size=sizes.vocab_size,
      n_labels=sizes.labels,
      architecture=sizes.architecture,
      hierarchy=sizes.hierarchy,
      dtype=jnp.dtype(train.compute_dtype.value),
      rngs=rngs,
    )
    parts = model.embedding, model.encoder, model.pooling, model.head
    return _Gathered(*parts, dtype=model.dtype, views=model.views)

  optimizer, rows = make_optimizer(train), label_row_optimizer(train, counts)
  return plan_state(
    make_model, optimizer, mesh, train.freeze, train.average, rows
  )


def traced_step(
  config: Config, sizes: RunSizes, shape: BatchShape, mesh: AbstractMesh
) -> tuple[StatePlan, jax.stages.Traced]:
  """Traces what one device of a mesh does in a step, on one device here."""
  # The shape is that of a batch over all devices.
  data, shards = mesh.shape[DATA], _label_shards(config, mesh)
  train, micro = config.train, config.train.accumulate
  labels, frequent = sizes.labels, sizes.frequent // shards
  one_vs_all = config.model.head.on_all_devices
  if shards > 1 or one_vs_all:
    # The program treats padding rows like other rows.
    labels = padded_labels(labels) // shards
  hierarchy = sizes.hierarchy
  # Each device reads all labels for its views.
  if hierarchy is not None and not config.model.views.reads_parents:
    hierarchy = _part_of(hierarchy, labels)
  sizes = dataclasses.replace(
    sizes, labels=labels, frequent=frequent, hierarchy=hierarchy
  )
  documents, rows = shape.documents // data, -(-shape.rows // (data * micro))
  local = dataclasses.replace(shape, documents=documents, rows=rows * micro)
  auto, first_device = (AxisType.Auto,) * 2, jax.devices()[:1]
  single = jax.make_mesh(
    (1, 1), (DATA, LABEL), axis_types=auto, devices=first_device
  )
  batch = batch_of(config, local, single)
  if one_vs_all:
    global_batch = batch_of(config, shape, single)
    gold = {
      'positives_BP': global_batch.positives_BP,
      'mask_B': global_batch.mask_B,
      'shortlist': global_batch.shortlist,
    }
    batch = dataclasses.replace(batch, **gold)
  plan = planned_state(config, sizes, single)
  loss = train.loss.build()
  step = make_train_step(plan, make_optimizer(train), loss, single, micro)
  key = jax.eval_shape(lambda: jax.random.key(0))
  with jax.set_mesh(single):
    return plan, step.trace(plan.abstract, batch, key)


def _part_of(hierarchy: Hierarchy, n_labels: int) -> Hierarchy:
  """Returns the hierarchy that stands for a device's part of the labels."""
  # Only some nodes are labels, of all levels if possible, because a head has as
  # many levels on each device.
  n = hierarchy.n_labels
  if n_labels == n:
    return hierarchy
  _, first = np.unique(hierarchy.levels[:n], return_index=True)
  rows = np.concatenate([first, np.setdiff1d(np.arange(n), first)])
  nodes = hierarchy.labels
  own = nodes[rows[:n_labels]]
  padding = [Label(f'padding {i}') for i in range(n_labels - len(own))]
  return Hierarchy.of(Labels.join(own, padding), nodes)


def batch_of(
  config: Config, shape: BatchShape, mesh: Mesh | AbstractMesh
) -> TokenBatch:
  """Returns an abstract batch, with documents divided over the data axis."""
  zones = (shape.zones,) if shape.zones else ()
  count, rows, tokens = (shape.documents,), (shape.rows,), (shape.tokens,)
  shapes = {'lengths_B': count + zones, 'mask_B': count, 'doc_B': count}
  shapes['positives_BP'] = (*count, shape.positives)
  if config.data.tokens.dense:
    shapes['features_BTD'] = count + tokens + (config.model.embedding.dim,)
  else:
    shapes['tokens_BT'] = rows + zones + tokens
  if config.data.tokens.packed:
    shapes |= {'segments_BT': rows + tokens, 'first_B': count}
  dtypes = {'mask_B': 'bool', 'features_BTD': 'float32'}
  sharding, arrays = NamedSharding(mesh, BATCH), {'tokens_BT': None}
  for name, size in shapes.items():
    dtype = jnp.dtype(dtypes.get(name, 'int32'))
    arrays[name] = jax.ShapeDtypeStruct(size, dtype, sharding=sharding)
  if shape.listed:
    entries = [
      jax.ShapeDtypeStruct((*count, shape.listed), dtype, sharding=sharding)
      for dtype in (jnp.int32, jnp.bool_)
    ]
    arrays['shortlist'] = Shortlist(*entries)
  return TokenBatch(**arrays)
