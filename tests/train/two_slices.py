"""Compiles training steps for two slices of 4 x 4 TPU v5e chips, without them.

Called with names of STEPS, it prints a line of JSON for each: the collectives
that cross the slices, and the bytes of the gradients that the slices sum.
"""

import dataclasses
import json
import sys

import jax
from jax.experimental import topologies
from jax.sharding import Mesh
import numpy as np

from xjax.configs.chalkidis2019 import eurlex57k_bert, eurlex57k_bigru_lwan
from xjax.configs.xc_networks import amazon_3m_like
from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.data.schema import LabelSpace
from xjax.models.contract import Config
from xjax.models.neural.neural_plan import plan_neural
from xjax.networks.pretrained.architecture import Activation, BertArchitecture
from xjax.plan.costs import Collective, compiled_collectives
from xjax.plan.programs import batch_of, on_device
from xjax.plan.sizes import BatchShape
from xjax.train.optimizer import make_optimizer
from xjax.train.step import make_train_step

BERT = BertArchitecture(
  vocab_size=8000,
  dim=128,
  layers=2,
  heads=2,
  inner=256,
  positions=512,
  token_types=2,
  activation=Activation.GELU,
  norm_eps=1e-12,
  pad_id=0,
  position_offset=0,
)
LABELS, WORDS, POSITIVES = 4271, 8000, 16
# As many documents as tokens: compilers then confuse the two axes of an array
# most easily.
DOCUMENTS = TOKENS = 64


def bert() -> Config:
  config, heads = eurlex57k_bert(), eurlex57k_bigru_lwan().model
  config.model = dataclasses.replace(
    config.model, pooling=heads.pooling, head=heads.head
  )
  return config


STEPS = {
  'bert': bert,
  'bigru': eurlex57k_bigru_lwan,
  'one_vs_all': eurlex57k_bert,
  'fused_rows': amazon_3m_like,
}


def crossing(
  config: Config, mesh: Mesh, of_slice: int
) -> tuple[list[Collective], int]:
  """Compiles a step, and returns what crosses slices, and gradients' bytes."""
  config.train.batch_size = DOCUMENTS
  space = LabelSpace((), np.full(LABELS, 5, np.int32), 45_000, LABELS)
  pretrained = config.model.encoder.pretrained
  sizes = (0, mesh, BERT) if pretrained else (WORDS, mesh)
  plan = plan_neural(config, space, *sizes)
  step = make_train_step(
    plan, make_optimizer(config.train), config.train.loss.build(), mesh
  )
  shape = BatchShape(DOCUMENTS, DOCUMENTS, TOKENS, 0, POSITIVES)
  key = jax.eval_shape(lambda: jax.random.key(0))
  with jax.set_mesh(mesh):
    lowered = step.lower(plan.abstract, batch_of(config, shape, mesh), key)
    slices = {place: place // of_slice for place in range(mesh.size)}
    found = compiled_collectives(lowered.compile().as_text(), slices)
  trained, _ = plan.split(plan.abstract.params)
  summed = on_device(trained)
  if config.model.head.on_all_devices:
    summed -= on_device({k: v for k, v in trained.items() if k == 'head'})
  return [one for one in found if one.nodes > 1], summed


if __name__ == '__main__':
  topology = topologies.get_topology_desc(
    topology_name='v5e:4x4', platform='tpu', num_slices=2
  )
  for name in sys.argv[1:]:
    mesh = make_mesh(MeshConfig(8, 4), topology.devices)
    found, summed = crossing(STEPS[name](), mesh, 16)
    crosses = [dataclasses.asdict(one) for one in found]
    print(json.dumps([crosses, summed]), flush=True)
