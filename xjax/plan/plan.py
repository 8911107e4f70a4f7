"""What a run will need, before anything is made for it: memory and time.

What a device does of a step on a mesh is a step on one device: of its part of
the documents, and of its part of the label rows. That step is traced on arrays
that are not, and compiled where XLA compiles for such devices here.
"""

import dataclasses
import math
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
import numpy as np

from xjax.config.run import Config
from xjax.core.errors import ConfigError
from xjax.core.mesh import BATCH, DATA, LABEL, abstract_mesh, padded_labels
from xjax.core.types import Batch
from xjax.plan.chips import Chip, Platform
from xjax.plan.program import ProgramCost, program_cost
from xjax.plan.sizes import BatchShape, Sizes
from xjax.run.neural_training import check_mesh
from xjax.score.heads.chunks import chunk_size
from xjax.score.heads.contract import is_label_row
from xjax.score.heads.storage import Storage
from xjax.score.text_model import NeuralModel, TextModel, build
from xjax.train.fused_rows import FREQUENT, fused_rows
from xjax.train.optimizer import make_optimizer
from xjax.train.state import StatePlan, plan_state
from xjax.train.step import make_train_step

USABLE = 0.9  # of a device's memory; programs and gaps take the rest
ROWS, GRADIENTS, PASS = 'label rows', 'gradients', 'pass over labels'
ACTIVATIONS = 'activations and what else is computed'
_FLOAT32 = 4


@dataclasses.dataclass(frozen=True)
class Held:
  """Bytes of a device at the peak of a step."""

  parts: dict[str, int]  # by name, those of 0 left out
  compiled: bool  # whether XLA says what is computed; else it is estimated

  @property
  def total(self) -> int:
    return sum(self.parts.values())


@dataclasses.dataclass(frozen=True)
class StepTime:
  """One step of one device."""

  operations: int  # of products
  moved: int  # bytes read from memory and written to it
  sent: float  # bytes sent to other devices
  compute: float  # seconds that these take at the chip's best
  memory: float
  network: float

  @property
  def bound(self) -> float:
    """Seconds at the bound, all else being done meanwhile."""
    return getattr(self, self.bound_by)

  @property
  def bound_by(self) -> str:
    return max(('compute', 'memory', 'network'), key=lambda n: getattr(self, n))


@dataclasses.dataclass(frozen=True)
class Plan:
  """A run on so many chips."""

  config: Config
  sizes: Sizes
  chip: Chip
  devices: int
  data: int  # devices along an axis of the mesh
  label: int
  held: Held  # by a device, with the longest batch
  longest: StepTime  # of that batch
  steps: int  # of an epoch
  epoch: float  # seconds at the bound

  @property
  def usable(self) -> float:
    """Bytes of a device that a run may fill."""
    return USABLE * self.chip.memory

  @property
  def fits(self) -> bool:
    return self.held.total <= self.usable


def planned_mesh(config: Config, devices: int) -> AbstractMesh:
  """The mesh of so many devices; raises ConfigError as Planner.plan."""
  if not isinstance(config.model, NeuralModel):
    raise ConfigError('--plan: nothing is trained by this config')
  mesh = abstract_mesh(config.mesh, devices)
  check_mesh(config, mesh)
  return mesh


class Planner:
  """Plans variants of a run of given sizes; what they share is traced once."""

  def __init__(self, sizes: Sizes, chip: Chip):
    self.sizes, self.chip = sizes, chip
    self._costs: dict[str, ProgramCost] = {}

  def plan(self, config: Config, devices: int, compile_: bool = False) -> Plan:
    """Plans a run on so many devices.

    Args:
      config: of the run.
      devices: how many.
      compile_: whether to ask XLA, where it compiles for such chips here; that
        takes up to minutes.

    Raises:
      ConfigError: batches or the mesh do not fit the devices, the encoder does
        not read so many tokens, or the model takes no steps.
    """
    held = self.held(config, devices, compile_)
    mesh, sizes = planned_mesh(config, devices), _batched(self.sizes, config)
    state = planned_state(config, sizes, mesh)
    times = {at: self._time(config, state, at, mesh) for at in sizes.steps}
    shape, longest = tuple(mesh.shape.values()), times[sizes.longest]
    steps = sum(sizes.steps.values())
    epoch = sum(times[at].bound * n for at, n in sizes.steps.items())
    run = config, sizes, self.chip, devices, *shape
    return Plan(*run, held, longest, steps, epoch)

  def held(self, config: Config, devices: int, compile_: bool = False) -> Held:
    """The memory of a plan."""
    mesh, chip = planned_mesh(config, devices), self.chip
    sizes, tokens = _batched(self.sizes, config), config.data.tokens.max_tokens
    if sizes.architecture and tokens > sizes.architecture.max_tokens:
      raise ConfigError(
        f'config.data.tokens.max_tokens={tokens}: the encoder reads at most '
        f'{sizes.architecture.max_tokens} tokens'
      )
    plan = planned_state(config, sizes, mesh)
    parts = _between_steps(config, sizes, plan, mesh)
    trained, _ = plan.split(plan.abstract.params)
    gradients = [on_device(leaf) for leaf in jax.tree.leaves(trained)]
    compile_ &= jax.default_backend() == chip.platform.value
    if compile_:
      _, traced = traced_step(config, sizes, sizes.longest, mesh)
      asked = traced.lower().compile().memory_analysis()
      left = asked.temp_size_in_bytes
      left += asked.output_size_in_bytes - asked.alias_size_in_bytes
    else:
      left = self._cost(config, sizes.longest, mesh).held
      fused = plan.abstract.row_slots is not None
      if fused and config.model.head.storage is Storage.FLOAT8:
        # Compiled for v5e, arrays of 1-byte floats are not changed in place.
        copied = parts[ROWS] * (chip.platform is Platform.TPU)
        parts['label rows, copied'] = copied
      if chip.platform is Platform.CPU and config.train.accumulate == 1:
        # XLA makes the squares there that the gradient's norm is the sum of;
        # after micro-batches they lie where the last one's gradients lay.
        left += max(gradients, default=0)
    passing = _pass_bytes(config, plan, sizes.longest, mesh)
    for name, size in (GRADIENTS, sum(gradients)), (PASS, passing):
      parts[name] = min(size, left)
      left -= parts[name]
    parts[ACTIVATIONS] = left
    return Held({name: n for name, n in parts.items() if n}, compile_)

  def _cost(
    self, config: Config, shape: BatchShape, mesh: AbstractMesh
  ) -> ProgramCost:
    key = repr((config.model, config.train, shape, mesh.shape))
    if key not in self._costs:
      plan, traced = traced_step(config, self.sizes, shape, mesh)
      state = slice(len(jax.tree.leaves(plan.abstract)))
      self._costs[key] = program_cost(traced.jaxpr, state)
    return self._costs[key]

  def _time(
    self, config: Config, plan: StatePlan, shape: BatchShape, mesh: AbstractMesh
  ) -> StepTime:
    cost, chip = self._cost(config, shape, mesh), self.chip
    sent = _sent(config, plan, shape, mesh)
    compute = cost.operations / chip.peak(_operand_bytes(config))
    network = sent / chip.network if chip.network else 0.0
    seconds = compute, cost.moved / chip.bandwidth, network
    return StepTime(cost.operations, cost.moved, sent, *seconds)


def _between_steps(
  config: Config, sizes: Sizes, plan: StatePlan, mesh: AbstractMesh
) -> dict[str, int]:
  """What a device holds before a step; exact."""
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


def _pass_bytes(
  config: Config, plan: StatePlan, shape: BatchShape, mesh: AbstractMesh
) -> int:
  """A one-vs-all head's features, gold, and a chunk with its gradients."""
  if not _is_one_vs_all(config):
    return 0
  rows = nnx.filter_state(plan.abstract.params['head'], is_label_row)
  labels, dim = max(x.shape for x in jax.tree.leaves(rows) if len(x.shape) == 2)
  chunk = chunk_size(labels // mesh.size, config.model.head.chunk)
  documents = shape.documents // config.train.accumulate
  entry = _FLOAT32 + _operand_bytes(config)
  features = documents * (dim * entry + shape.positives * 4 + 1)
  return chunk * (documents + dim) * entry + features


def _sent(
  config: Config, plan: StatePlan, shape: BatchShape, mesh: AbstractMesh
) -> float:
  """Bytes that a device sends, in rings.

  An all-reduce of n bytes over k devices sends 2 n (k - 1) / k, a
  reduce-scatter half of that, an all-gather n (k - 1). Gradients of parameters
  are summed over devices in each micro-batch.
  """
  data, label = mesh.shape[DATA], mesh.shape[LABEL]
  over_data, over_label = (data - 1) / data, (label - 1) / label
  own, sent = shape.documents // data, 0.0
  trained, _ = plan.split(plan.abstract.params)
  rows = nnx.filter_state(plan.abstract.params['head'], is_label_row)
  dim = max(x.shape[-1] for x in jax.tree.leaves(rows) if len(x.shape) > 1)
  if not _is_one_vs_all(config):
    read = own * (shape.zones or shape.tokens)
  else:
    # Features and gold are gathered, the features' gradient goes back; the loss
    # is summed over all devices, 3 numbers a document if it is normalised.
    trained, read = nnx.filter_state(trained, nnx.Not(is_label_row)), own
    gold = shape.positives * 4 + 1
    sent += (data - 1) * own * (gold + dim * _operand_bytes(config))
    sent += over_data * shape.documents * dim * _FLOAT32
    numbers = 3 * shape.documents * config.train.loss.build().normalised
    numbers += config.train.accumulate
    sent += 2 * numbers * _FLOAT32 * (mesh.size > 1)
  sent += 2 * over_label * read * dim * _FLOAT32  # of what rows read
  return sent + 2 * config.train.accumulate * over_data * on_device(trained)


def _is_one_vs_all(config: Config) -> bool:
  """Whether label rows lie on all devices, and score all documents."""
  return config.model.head.on_all_devices


def _label_shards(config: Config, mesh: AbstractMesh) -> int:
  return mesh.size if _is_one_vs_all(config) else mesh.shape[LABEL]


def _operand_bytes(config: Config) -> int:
  return jnp.dtype(config.train.compute_dtype.value).itemsize


def on_device(tree: Any) -> int:
  """Bytes of one device's part of abstract arrays."""
  return sum(
    math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
    for leaf in jax.tree.leaves(tree)
  )


def _batched(sizes: Sizes, config: Config) -> Sizes:
  """The same with the config's batches, however large those of sizes are."""
  documents, steps = config.train.batch_size, {}
  for shape, n in sizes.steps.items():
    rows = -(-shape.rows * documents // shape.documents)
    batched = dataclasses.replace(shape, documents=documents, rows=rows)
    steps[batched] = -(-n * shape.documents // documents)
  return dataclasses.replace(sizes, steps=steps)


class _Gathered(TextModel):
  """A model whose head reads its own documents' features as those of all."""

  def features(self, batch: Batch, rngs: nnx.Rngs | None = None) -> Any:
    own = super().features(batch, rngs)
    times = len(batch.mask_B) // len(batch.doc_B)
    if times == 1:
      return own
    return jax.tree.map(lambda x: jnp.concatenate([x] * times), own)


def planned_state(
  config: Config, sizes: Sizes, mesh: Mesh | AbstractMesh
) -> StatePlan:
  """The state as plan_neural lays it out, with the sizes alone."""
  train = config.train
  # Frequent labels are taken to be spread evenly over the others.
  counts = np.zeros(sizes.labels, np.int8)
  counts[:: max(1, sizes.labels // max(1, sizes.frequent))] = FREQUENT

  def model(rngs: nnx.Rngs) -> TextModel:
    made = build(
      config.model,
      vocab_size=sizes.vocab_size,
      n_labels=sizes.labels,
      architecture=sizes.architecture,
      dtype=jnp.dtype(train.compute_dtype.value),
      rngs=rngs,
    )
    parts = made.embedding, made.encoder, made.pooling, made.head
    return _Gathered(*parts, dtype=made.dtype)

  optimizer, rows = make_optimizer(train), fused_rows(train, counts)
  return plan_state(model, optimizer, mesh, train.freeze, train.average, rows)


def traced_step(
  config: Config, sizes: Sizes, shape: BatchShape, mesh: AbstractMesh
) -> tuple[StatePlan, jax.stages.Traced]:
  """A device's share of a step of the mesh, as a step of one device here."""
  data, shards = mesh.shape[DATA], _label_shards(config, mesh)
  train, micro = config.train, config.train.accumulate
  labels, frequent = sizes.labels, sizes.frequent // shards
  if shards > 1 or _is_one_vs_all(config):  # it is not known which rows pad
    labels = padded_labels(labels) // shards
  sizes = dataclasses.replace(sizes, labels=labels, frequent=frequent)
  documents, rows = shape.documents // data, -(-shape.rows // (data * micro))
  own = dataclasses.replace(shape, documents=documents, rows=rows * micro)
  auto, here = (AxisType.Auto,) * 2, jax.devices()[:1]
  one = jax.make_mesh((1, 1), (DATA, LABEL), axis_types=auto, devices=here)
  batch = batch_of(config, own, one)
  if _is_one_vs_all(config):
    every = batch_of(config, shape, one)
    gold = {'positives_BP': every.positives_BP, 'mask_B': every.mask_B}
    batch = dataclasses.replace(batch, **gold)
  plan, loss = planned_state(config, sizes, one), train.loss.build()
  step = make_train_step(plan, make_optimizer(train), loss, one, micro)
  key = jax.eval_shape(lambda: jax.random.key(0))
  with jax.set_mesh(one):
    return plan, step.trace(plan.abstract, batch, key)


def batch_of(
  config: Config, shape: BatchShape, mesh: Mesh | AbstractMesh
) -> Batch:
  """An abstract batch, its documents over the mesh's data axis."""
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
  return Batch(**arrays)
