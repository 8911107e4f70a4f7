"""Plans the state of a neural run, and checks that it fits the devices."""

import jax
import jax.numpy as jnp

from xjax.core.errors import ConfigError
from xjax.core.mesh import DATA
from xjax.core.mesh_config import LABEL_MULTIPLE
from xjax.data.label_trees.levels import LabelLevels
from xjax.data.schema import LabelSpace
from xjax.models.contract import Config
from xjax.networks.pretrained.architecture import Architecture
from xjax.networks.text_model import build, initial_biases, smoothed_priors
from xjax.train.optimizer import label_row_optimizer, make_optimizer
from xjax.train.state import StatePlan, plan_state, with_label_start


def check_mesh(config: Config, mesh: jax.sharding.Mesh) -> None:
  """Checks that batches and label rows divide evenly among the devices."""
  check_label_rows(config, mesh.size)
  devices = mesh.shape[DATA]
  batches = {
    'train.batch_size': (config.train.batch_size, config.train.accumulate),
    'eval.batch_size': (config.eval.batch_size, 1),
  }
  for name, (size, micro) in batches.items():
    if size % (devices * micro):
      raise ConfigError(
        f'{name}={size} must be a multiple of {devices * micro}: mesh.data is '
        f'{devices}' + (f', train.accumulate is {micro}' if micro > 1 else '')
      )


def label_rows_divide(config: Config, devices: int) -> bool:
  """Returns whether a run's label rows divide evenly among the devices."""
  return not config.model.head.on_all_devices or LABEL_MULTIPLE % devices == 0


def check_label_rows(config: Config, devices: int) -> None:
  """Checks that label rows divide evenly among the devices."""
  if not label_rows_divide(config, devices):
    head = type(config.model.head).__name__
    raise ConfigError(
      f'mesh: label rows of {head}(...) are spread over all {devices} devices, '
      f'so the number of devices must divide {LABEL_MULTIPLE}'
    )


def plan_neural(
  config: Config,
  space: LabelSpace,
  vocab_size: int,  # number of word ids; 0 if the run reads no words
  mesh: jax.sharding.Mesh,
  architecture: Architecture | None = None,  # of the pretrained encoder, if any
  levels: LabelLevels | None = None,  # of clusters, if the head has levels
) -> StatePlan:
  """Plans the structure of a run's state, without creating arrays."""
  train = config.train
  n_labels = config.model.scored_labels(space)
  counts = space.train_counts[:n_labels]
  unseen = counts == 0
  hidden = config.model.head.draw_hidden(counts, config.seed)

  hierarchy = None
  if config.model.reads_parents:
    hierarchy = config.model.hierarchy(space)
  priors = train.loss.first_priors(smoothed_priors(counts, space.n_train))
  row_biases = config.model.head.row_biases
  plan = plan_state(
    lambda rngs: build(
      config.model,
      vocab_size=vocab_size,
      n_labels=n_labels,
      architecture=architecture,
      # If the run does not set the first biases, the head decides how they
      # start, and may compute them from the priors.
      label_priors=None if row_biases else priors,
      unseen=unseen,
      hidden=hidden,
      train_counts=counts,
      levels=levels,
      hierarchy=hierarchy,
      dtype=jnp.dtype(train.compute_dtype.value),
      rngs=rngs,
    ),
    make_optimizer(train),
    mesh,
    train.freeze,
    train.average,
    label_row_optimizer(train, counts),
  )
  return with_label_start(plan, initial_biases(priors) if row_biases else None)
