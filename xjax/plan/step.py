"""The training step of one device, traced or compiled on arrays that are not.

What a device does of a step on a mesh is a step on one device: of its part of
the documents, and of its part of the label rows.
"""

import dataclasses
import functools
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
import numpy as np

from xjax.config.run import Config
from xjax.core.mesh import (
  BATCH,
  DATA,
  LABEL,
  MeshConfig,
  abstract_mesh,
  padded_labels,
)
from xjax.core.types import Batch
from xjax.plan.program import Work, work_of
from xjax.plan.sizes import BatchShape, Sizes
from xjax.score.encoders.features import FeaturesConfig
from xjax.score.heads.contract import is_label_row
from xjax.score.heads.ova import OneVsAllConfig
from xjax.score.text_model import build
from xjax.train.fused_rows import FREQUENT, fused_rows
from xjax.train.optimizer import make_optimizer
from xjax.train.state import StatePlan, plan_state
from xjax.train.step import loss_sum, make_train_step

Mesh = jax.sharding.Mesh | jax.sharding.AbstractMesh


def planned_state(config: Config, sizes: Sizes, mesh: Mesh) -> StatePlan:
  """As plan_neural, of sizes alone: values that parameters begin with are none.

  Args:
    config: of the run.
    sizes: of it.
    mesh: of devices that need not be here.
  """
  train = config.train
  # Frequent labels are taken to be spread evenly over the others.
  counts = np.zeros(sizes.labels, np.int8)
  counts[:: max(1, sizes.labels // max(1, sizes.frequent))] = FREQUENT
  return plan_state(
    lambda rngs: build(
      config.model,
      vocab_size=sizes.vocab_size,
      n_labels=sizes.labels,
      architecture=sizes.architecture,
      dtype=jnp.dtype(train.compute_dtype.value),
      rngs=rngs,
    ),
    make_optimizer(train),
    mesh,
    train.freeze,
    train.average,
    fused_rows(train, counts),
  )


def is_one_vs_all(config: Config) -> bool:
  """Whether label rows lie on all devices, and see all documents."""
  return isinstance(config.model.head, OneVsAllConfig)


def label_shards(config: Config, mesh: Mesh) -> int:
  """Devices that label rows are divided among."""
  data = mesh.shape[DATA] if is_one_vs_all(config) else 1
  return data * mesh.shape[LABEL]


@dataclasses.dataclass(frozen=True)
class DeviceShare:
  """What one device has of a step.

  Attributes:
    config: of the run; its batch is the device's.
    sizes: of the run, with the device's labels.
    shape: of the device's batch.
  """

  config: Config
  sizes: Sizes
  shape: BatchShape

  @classmethod
  def of(
    cls, config: Config, sizes: Sizes, shape: BatchShape, mesh: Mesh
  ) -> 'DeviceShare':
    """Of a run on a mesh."""
    shards, data = label_shards(config, mesh), mesh.shape[DATA]
    labels = sizes.labels
    if shards > 1:
      labels = padded_labels(labels) // shards
    documents = shape.documents // data
    return cls(
      config,
      dataclasses.replace(
        sizes, labels=labels, frequent=sizes.frequent // shards
      ),
      dataclasses.replace(
        shape, documents=documents, rows=-(-shape.rows // data)
      ),
    )

  @property
  def traced_key(self) -> str:
    """The same for shares of which `traced` is the same."""
    model, train = self.config.model, self.config.train
    head, labels = model.head, self.sizes.labels
    if is_one_vs_all(self.config):
      head, labels = head.bottleneck, 0
    read = model.embedding, model.encoder, model.pooling, head, labels
    how = train.compute_dtype, train.accumulate, train.freeze, train.loss
    return repr((*read, *how, self.shape))

  def traced(self) -> Work:
    """The forward and the backward pass, but for one-vs-all heads.

    Of these `Work.between` is what is held while label rows are gone through.
    With train.accumulate it is the work of one micro-batch.
    """
    mesh = abstract_mesh(MeshConfig(1, 1), 1)
    plan = planned_state(self.config, self.sizes, mesh)
    micro = self.config.train.accumulate
    documents, rows = self.shape.documents, self.shape.rows
    shape = dataclasses.replace(
      self.shape, documents=documents // micro, rows=-(-rows // micro)
    )
    given = plan.abstract.params, batch_of(self.config, shape, mesh), _key()
    with jax.sharding.use_abstract_mesh(mesh):
      if not is_one_vs_all(self.config):
        loss = self.config.train.loss.build()
        return work_of(functools.partial(_gradients, plan, loss), *given)
      encode = functools.partial(_encoder_gradients, plan)
      return work_of(encode, *given, between=head_pass.__name__)

  def compiled(self) -> int:
    """Bytes beside the state and the batch that XLA asks for, compiled here."""
    mesh = jax.make_mesh(
      (1, 1),
      (DATA, LABEL),
      axis_types=(jax.sharding.AxisType.Auto,) * 2,
      devices=jax.devices()[:1],
    )
    train = self.config.train
    plan = planned_state(self.config, self.sizes, mesh)
    step = make_train_step(
      plan,
      make_optimizer(train),
      train.loss.build(),
      mesh,
      train.accumulate,
    )
    batch = batch_of(self.config, self.shape, mesh)
    with jax.set_mesh(mesh):
      compiled = step.lower(plan.abstract, batch, _key()).compile()
    found = compiled.memory_analysis()
    new = found.output_size_in_bytes - found.alias_size_in_bytes
    return found.temp_size_in_bytes + new


def batch_of(config: Config, shape: BatchShape, mesh: Mesh) -> Batch:
  """An abstract batch, its documents over the mesh's data axis."""
  sharding = NamedSharding(mesh, BATCH)

  def array(dtype: Any, *sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype, sharding=sharding)

  count = shape.documents
  zones = (shape.zones,) if shape.zones else ()
  tokens = segments = first = features = None
  if isinstance(config.model.embedding, FeaturesConfig):
    size = config.model.embedding.dim
    features = array(jnp.float32, count, shape.tokens, size)
  else:
    tokens = array(jnp.int32, shape.rows, *zones, shape.tokens)
  if getattr(config.data.tokens, 'packed', False):
    segments = array(jnp.int32, shape.rows, shape.tokens)
    first = array(jnp.int32, count)
  return Batch(
    tokens_BT=tokens,
    lengths_B=array(jnp.int32, count, *zones),
    positives_BP=array(jnp.int32, count, shape.positives),
    mask_B=array(jnp.bool_, count),
    doc_B=array(jnp.int32, count),
    segments_BT=segments,
    first_B=first,
    features_BTD=features,
  )


def _key() -> jax.ShapeDtypeStruct:
  return jax.eval_shape(lambda: jax.random.key(0))


def _gradients(plan, loss, params, batch, key):
  trained, held = plan.split(params)
  total = functools.partial(loss_sum, plan, loss, held, None, None)
  return jax.value_and_grad(total, has_aux=True)(trained, batch, key)


@jax.jit
def head_pass(features: jax.Array) -> jax.Array:
  """Stands for a one-vs-all head's: features to their gradient."""
  return features * 2


def _encoder_gradients(plan, params, batch, key):
  trained, held = plan.split(params)
  rows, trained = nnx.split_state(trained, is_label_row, ...)
  held = nnx.merge_state(held, rows)

  def features(trained):
    model = nnx.merge(plan.graphdef, trained, held)
    return model.features(batch, nnx.Rngs(dropout=key))

  found, pull = jax.vjp(features, trained)
  return pull(head_pass(found))
