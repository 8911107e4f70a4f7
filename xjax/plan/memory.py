"""What a device holds at the peak of a training step, part by part."""

import dataclasses
import math
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np

from xjax.config.run import Config, EvenWeights
from xjax.core.mesh import DATA, LABEL, LABEL_MULTIPLE
from xjax.plan.chips import Chip, Platform
from xjax.plan.head_traffic import HeadPass, HeadTraffic, head_traffic
from xjax.plan.program import Work
from xjax.plan.sizes import BatchShape, Sizes
from xjax.plan.step import (
  DeviceShare,
  Mesh,
  batch_of,
  is_one_vs_all,
  label_shards,
)
from xjax.score.heads.contract import is_label_row
from xjax.score.heads.storage import Storage
from xjax.train.fused_rows import fused_rows
from xjax.train.state import StatePlan

ROWS, OTHERS, COPY = 'label rows', 'other parameters', 'label rows, copied'
SLOTS, OPTIMIZER = "label rows' slots", "optimizer's slots"
AVERAGES, WEIGHTS = 'averages', 'label weights'
BATCH, GRADIENTS = 'batch', 'gradients'
PASS, ACTIVATIONS = 'pass over labels', 'activations and what else is computed'


@dataclasses.dataclass(frozen=True)
class Held:
  """Bytes of a device at the peak.

  Attributes:
    parts: by name, those of 0 left out.
    compiled: whether what is computed is XLA's figure, of the step compiled for
      devices like those of this machine; else it is estimated.
  """

  parts: dict[str, int]
  compiled: bool

  @property
  def total(self) -> int:
    return sum(self.parts.values())


def held(
  config: Config,
  sizes: Sizes,
  plan: StatePlan,
  mesh: Mesh,
  chip: Chip,
  work: Work,
) -> Held:
  """Of the longest batch; what is computed is estimated.

  Args:
    config, sizes: of the run.
    plan: of its state.
    mesh: of the devices.
    chip: each of them.
    work: of the device's share of that batch (DeviceShare.traced).
  """
  parts = _parts(config, sizes, plan, mesh, chip, work)
  return Held(parts, compiled=False)


def held_compiled(
  config: Config,
  sizes: Sizes,
  plan: StatePlan,
  mesh: Mesh,
  chip: Chip,
  work: Work,
) -> Held:
  """As held, with XLA's figure of what is computed; takes up to minutes."""
  parts = _parts(config, sizes, plan, mesh, chip, work)
  share = DeviceShare.of(config, sizes, sizes.longest, mesh)
  found = share.compiled() + _of_other_documents(config, sizes, plan, mesh)
  for name in (GRADIENTS, PASS):
    parts[name] = min(parts.get(name, 0), found)
    found -= parts[name]
  parts.pop(COPY, None)
  parts[ACTIVATIONS] = found
  return Held({name: size for name, size in parts.items() if size}, True)


def _parts(
  config: Config,
  sizes: Sizes,
  plan: StatePlan,
  mesh: Mesh,
  chip: Chip,
  work: Work,
) -> dict[str, int]:
  state = plan.abstract
  rows, others = nnx.split_state(state.params, is_label_row, ...)
  trained, _ = plan.split(state.params)
  gradients = on_device(trained)
  passing = between = 0
  if is_one_vs_all(config):
    found = traffic_of(config, plan, sizes.longest, mesh).held
    passing, between = found.features + found.chunk, work.between
    trained = nnx.filter_state(trained, lambda *at: not is_label_row(*at))
  # The pass has its peak while all else is held that the gradients need.
  own = on_device(trained)
  peak = max(work.held, between + passing)
  if config.train.accumulate > 1:
    peak += gradients  # the sums, beside those of a micro-batch
  elif chip.platform is Platform.CPU:
    # XLA makes the squares there that the gradient's norm is the sum of; after
    # micro-batches they lie where the gradients of the last one lay.
    sizes_of_all = map(on_device, jax.tree.leaves(plan.split(state.params)[0]))
    peak += max(sizes_of_all, default=0)
  fused = state.row_slots is not None
  copied = fused and config.model.head.storage is Storage.FLOAT8
  weighted = not isinstance(config.train.label_weights, EvenWeights)
  batch = batch_of(config, sizes.longest, mesh)
  parts = {
    ROWS: on_device(rows),
    SLOTS: on_device(state.row_slots),
    OTHERS: on_device(others),
    OPTIMIZER: on_device(state.opt_state),
    AVERAGES: on_device(state.averages),
    WEIGHTS: 8 * weighted * -(-sizes.labels // label_shards(config, mesh)),
    BATCH: on_device(batch),
    GRADIENTS: gradients,
    PASS: min(passing, max(0, peak - own)),
    COPY: on_device(rows) * (copied and not chip.float8),
  }
  parts[ACTIVATIONS] = max(0, peak - own - parts[PASS])
  return {name: size for name, size in parts.items() if size}


def _of_other_documents(
  config: Config, sizes: Sizes, plan: StatePlan, mesh: Mesh
) -> int:
  """What a pass needs more for the documents of other devices."""
  if not is_one_vs_all(config):
    return 0
  shape = sizes.longest
  own = dataclasses.replace(
    shape, documents=shape.documents // mesh.shape[DATA]
  )
  all_, few = (traffic_of(config, plan, one, mesh).held for one in (shape, own))
  return all_.features + all_.chunk - few.features - few.chunk


def traffic_of(
  config: Config,
  plan: StatePlan,
  shape: BatchShape,
  mesh: Mesh,
  in_cache: bool = True,
) -> HeadTraffic:
  """Of a one-vs-all head's pass over a batch; in_cache: as head_traffic."""
  head, train = config.model.head, config.train
  labels, dim = plan.abstract.params['head']['kernel'].shape
  fused = fused_rows(train, np.zeros(0))
  slots = plan.abstract.row_slots
  places = 0
  if slots is not None and 'left_out' in slots:
    places = slots['left_out'].shape[0]
  return head_traffic(
    HeadPass(
      documents=shape.documents,
      positives=shape.positives,
      labels=labels,
      dim=dim,
      data=mesh.shape[DATA],
      label=mesh.shape[LABEL],
      feature_bytes=operand_bytes(config),
      storage=head.storage,
      rule=None if fused is None else fused.rule,
      normalised=train.loss.build().normalised,
      chunk=head.chunk,
      compensated=places // LABEL_MULTIPLE,
      accumulate=train.accumulate,
    ),
    in_cache,
  )


def operand_bytes(config: Config) -> int:
  """Of an entry of activations and operands of products."""
  return jnp.dtype(config.train.compute_dtype.value).itemsize


def on_device(tree: Any) -> int:
  """Bytes of one device's part of abstract arrays."""
  sizes = 0
  for leaf in jax.tree.leaves(tree):
    shape = leaf.sharding.shard_shape(leaf.shape)
    sizes += jnp.dtype(leaf.dtype).itemsize * math.prod(shape)
  return sizes
