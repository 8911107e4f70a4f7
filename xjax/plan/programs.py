"""Makes the programs of a run for devices that need not be here.

They are traced with abstract arrays, so nothing is computed, and the corpus is
not read.
"""

from collections.abc import Sequence
import dataclasses
import math
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, NamedSharding
import numpy as np

from xjax.core.mesh import BATCH, DATA, LABEL, make_mesh, padded_labels
from xjax.core.types import AS_LOGITS
from xjax.judge.label_lists import list_length
from xjax.losses.loss import LabelWeights
from xjax.models.contract import Config
from xjax.models.neural.neural_scorer import topk_program
from xjax.models.neural.shortlist_scorer import logits_program
from xjax.networks.batch import Shortlist, TokenBatch
from xjax.networks.heads.chunks import ALL_DEVICES, is_label_row, row_spec
from xjax.networks.text_model import TextModel, build
from xjax.plan.sizes import BatchShape, RunSizes
from xjax.train.batches.packing import possible_rows
from xjax.train.optimizer import FREQUENT, label_row_optimizer, make_optimizer
from xjax.train.state import StatePlan, plan_state
from xjax.train.step import make_train_step

AnyMesh = Mesh | AbstractMesh
ROWS, PARAMETERS = 'label rows', 'other parameters'
_SLICES = 3  # judging makes lists of frequent, few and zero labels
_NO_GOLD = 4  # places for gold labels in a batch to rank


def train_step(
  config: Config,
  sizes: RunSizes,
  shape: BatchShape,
  devices: Sequence[jax.Device],
) -> jax.stages.Traced:
  """Traces the step of a run with a batch of this shape."""
  mesh, train = make_mesh(config.mesh, devices), config.train
  plan, weights = planned_state(config, sizes, mesh), None
  if not train.label_weights.even:
    weights_L = _by_label(config, sizes, mesh, jnp.float32)
    weights = LabelWeights(weights_L, weights_L)
  step = make_train_step(
    plan, make_optimizer(train), train.loss.build(), mesh, train.accumulate
  )
  key = jax.eval_shape(lambda: jax.random.key(0))
  with jax.set_mesh(mesh):
    batch = batch_of(config, shape, mesh)
    return step.trace(plan.abstract, batch, key, weights=weights)


def ranking(
  config: Config, sizes: RunSizes, devices: Sequence[jax.Device]
) -> jax.stages.Traced:
  """Traces the judging of a batch of the longest documents."""
  mesh = make_mesh(config.mesh, devices)
  n = -(-config.eval.batch_size // mesh.shape[DATA]) * mesh.shape[DATA]
  plan = planned_state(config, sizes, mesh)
  shape = dataclasses.replace(
    sizes.longest, documents=n, rows=n, positives=_NO_GOLD, listed=0
  )
  batch, shortlist = batch_of(config, shape, mesh), config.model.shortlist
  with jax.set_mesh(mesh):
    if shortlist.proposes:
      # Otherwise `width` is that of training: all labels.
      listed = shortlist.lists_in_training
      proposed = shortlist.width(sizes.labels) if listed else shortlist.size
      shape_BX = n, (1 + _SLICES) * min(proposed, sizes.labels)
      ids_BX = _array(shape_BX, jnp.int32, NamedSharding(mesh, BATCH))
      program = logits_program(plan.graphdef, mesh)
      return program.trace(plan.abstract.params, batch, ids_BX)
    mask_L = _by_label(config, sizes, mesh, jnp.bool_)
    return topk_program(config, plan.graphdef, mesh).trace(
      plan.abstract.params,
      batch,
      k=list_length(config.eval.depth, sizes.labels),
      weights=None,
      slices=(mask_L,) * _SLICES,
      allowed=None,
      sigmoid=AS_LOGITS,
      measured=None,
    )


def _by_label(
  config: Config, sizes: RunSizes, mesh: AnyMesh, dtype: Any
) -> jax.ShapeDtypeStruct:
  axes = ALL_DEVICES if config.model.head.on_all_devices else (LABEL,)
  sharding = NamedSharding(mesh, row_spec(axes))
  return _array((padded_labels(sizes.labels),), dtype, sharding)


def _array(shape: tuple[int, ...], dtype: Any, sharding: NamedSharding) -> Any:
  return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def planned_state(config: Config, sizes: RunSizes, mesh: AnyMesh) -> StatePlan:
  """Returns a run's abstract training state, without reading its corpus."""
  train = config.train
  # The frequent labels are assumed to be spread evenly over all labels.
  counts = np.zeros(sizes.labels, np.int8)
  counts[:: max(1, sizes.labels // max(1, sizes.frequent))] = FREQUENT

  def make_model(rngs: nnx.Rngs) -> TextModel:
    return build(
      config.model,
      vocab_size=sizes.vocab_size,
      n_labels=sizes.labels,
      architecture=sizes.architecture,
      hierarchy=sizes.hierarchy,
      dtype=train.compute_dtype.on(mesh),
      rngs=rngs,
    )

  optimizer, rows = make_optimizer(train), label_row_optimizer(train, counts)
  return plan_state(
    make_model, optimizer, mesh, train.freeze, train.average, rows
  )


def batch_of(config: Config, shape: BatchShape, mesh: AnyMesh) -> TokenBatch:
  """Returns an abstract batch, with documents divided over the data axis."""
  zones = (shape.zones,) if shape.zones else ()
  rows = shape.rows
  if rows < shape.documents:  # they share rows in groups (see Packing)
    groups = mesh.shape[DATA] * config.train.accumulate
    possible = (n * groups for n in possible_rows(shape.documents // groups))
    rows = next(n for n in possible if n >= rows)
  count, rows, tokens = (shape.documents,), (rows,), (shape.tokens,)
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
    arrays[name] = _array(size, jnp.dtype(dtypes.get(name, 'int32')), sharding)
  if shape.listed:
    arrays['shortlist'] = Shortlist(
      *(_array((*count, shape.listed), x, sharding) for x in ('int32', 'bool'))
    )
  return TokenBatch(**arrays)


def state_parts(
  config: Config, sizes: RunSizes, mesh: AnyMesh
) -> tuple[dict[str, int], int]:
  """Returns the exact bytes, by name, of what a device holds before a step.

  The second result counts arguments and outputs that a step may leave as they
  are: it does not write frozen parameters, and if documents have shortlists, it
  reads and writes only some label rows.
  """
  plan = planned_state(config, sizes, mesh)
  state = plan.abstract
  rows, others = nnx.split_state(state.params, is_label_row, ...)
  arrays = {
    ROWS: rows,
    "label rows' slots": state.row_slots,
    PARAMETERS: others,
    "optimizer's slots": state.opt_state,
    'averages': state.averages,
    'batch': batch_of(config, sizes.longest, mesh),
  }
  if not config.train.label_weights.even:
    weights_L = _by_label(config, sizes, mesh, jnp.float32)
    arrays['label weights'] = weights_L, weights_L
  parts = {name: on_device(tree) for name, tree in arrays.items()}
  unmoved = on_device(state.params) - on_device(plan.split(state.params)[0])
  if sizes.longest.listed:
    unmoved += 2 * on_device((rows, state.row_slots))
  return {name: n for name, n in parts.items() if n}, unmoved


def on_device(tree: Any) -> int:
  """Returns the bytes of one device's part of sharded abstract arrays."""
  return sum(
    math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
    for leaf in jax.tree.leaves(tree)
  )
