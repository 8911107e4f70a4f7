"""Plans the state of a neural run, and checks its config and corpus."""

import dataclasses

from flax import nnx
import jax

from xjax.core.errors import ConfigError
from xjax.core.mesh import DATA, make_mesh
from xjax.core.mesh_config import LABEL_MULTIPLE
from xjax.data.label_trees.levels import LabelLevels
from xjax.data.schema import Corpus, LabelSpace
from xjax.judge.judge import NOTES, PROTOCOL, Metrics, judge
from xjax.judge.make_predictions import popularity
from xjax.models.contract import DEV, Config, Run, load_config
from xjax.networks.heads.chunks import is_label_row
from xjax.networks.heads.head import DescriptorHeadConfig
from xjax.networks.pretrained.architecture import Architecture
from xjax.networks.text_model import (
  TextModelConfig,
  build,
  initial_biases,
  smoothed_priors,
)
from xjax.train.batches.inputs import check_vector_size, read_label_vectors
from xjax.train.initial.pretrained_encoder import (
  SOME_WORDS,
  check_encoder,
  planned_architecture,
)
from xjax.train.initial.start_words import check_word_vectors
from xjax.train.initial.warm_start import find_start
from xjax.train.neural_train import Schedule
from xjax.train.optimizer import label_row_optimizer, make_optimizer
from xjax.train.parameters import by_path, check_groups, parts_of
from xjax.train.saved_steps import complete_steps, intact_steps
from xjax.train.state import StatePlan, plan_state, with_label_start
from xjax.train.workdir import Workdir


def check_mesh(config: Config, mesh: jax.sharding.Mesh) -> None:
  """Checks that batches and label rows divide evenly among the devices."""
  check_label_rows(config, mesh.size)
  devices = mesh.shape[DATA]
  size, micro = config.train.batch_size, config.train.accumulate
  if size % (devices * micro):
    raise ConfigError(
      f'train.batch_size={size} must be a multiple of {devices * micro}: '
      f'mesh.data is {devices}'
      + (f', train.accumulate is {micro}' if micro > 1 else '')
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
      dtype=train.compute_dtype.on(mesh),
      rngs=rngs,
    ),
    make_optimizer(train),
    mesh,
    train.freeze,
    train.average,
    label_row_optimizer(train, counts),
  )
  return with_label_start(plan, initial_biases(priors) if row_biases else None)


def check_start(run: Run) -> None:
  """Checks that the files of a run allow it to start or resume."""
  config, folder = run.config, run.folder
  steps = complete_steps(folder.checkpoints)
  if steps and steps[-1]:
    _check_steps(config, folder, steps[-1])
  # Without a complete checkpoint the run starts from the beginning.
  if not steps:
    check_word_vectors(config.model.embedding)
    check_encoder(config.model, config.data)
    if config.train.init_from:
      find_start(config.train.init_from)


def _check_steps(config: Config, workdir: Workdir, taken: int) -> None:
  planned, train = load_config(workdir.config).train.steps, config.train
  if train.schedule is not Schedule.CONSTANT and train.steps != planned:
    raise ConfigError(
      f'config.train.steps={train.steps}: the {train.schedule.value} schedule '
      f'of this run ends at step {planned}; with another last step its learning'
      f' rate would jump. Set config.train.steps={planned}, or start a new '
      'workdir from the parameters of this run: '
      f'config.train.init_from={workdir.path}'
    )
  if train.steps < taken:
    # Training goes back behind damaged checkpoints. All files of a checkpoint
    # must be read to verify it, so this is done only here.
    (taken,) = intact_steps(workdir.checkpoints, newest=1) or (0,)
  if train.steps < taken:
    raise ConfigError(
      f'config.train.steps={train.steps}: the run in {workdir.path} has '
      f'already taken {taken} steps. Set config.train.steps='
      f'{max(planned, taken)}, or use another workdir'
    )


def check_vectors(
  model: TextModelConfig, corpus: Corpus, config: Config
) -> None:
  """Checks the vectors of documents and labels from an outside encoder."""
  dim = model.embedding.dim
  for split in corpus.splits.values():
    if split.features is not None:
      check_vector_size(split.features, dim)
  if model.head.describes:
    space = corpus.label_space
    nodes = space.labels[: space.n_inside]
    if model.reads_parents:
      nodes = model.hierarchy(space).labels
    read_label_vectors(nodes, config.data, dim, model.reads_parents)


def check_hierarchy(model: TextModelConfig, space: LabelSpace) -> None:
  """Checks that a model that reads parents suits the hierarchy of labels."""
  hierarchy, head = model.hierarchy(space), model.head
  n = hierarchy.n_labels
  is_flat = not hierarchy.parents.lengths[:n].any()
  parts = [('views', model.views, 'NoViews()', is_flat)]
  if isinstance(head, DescriptorHeadConfig):
    # A graph also reads children, which may be concepts.
    is_flat = is_flat and not hierarchy.children.lengths[:n].any()
    parts.append(('head.graph', head.graph, 'NoGraph()', is_flat))
  else:
    parts.append(('head', head, 'another head', is_flat))
  for part, config, advice, is_flat in parts:
    if config.reads_parents and is_flat:
      path = f'config.model.{part}'
      raise ConfigError(
        f'{path}={type(config).__name__}(...): reads the parents of labels, '
        'but no label that the model scores has a parent; give "parents" to '
        f'the labels, or set {path} to {advice}'
      )
  head.check_hierarchy(hierarchy)
  model.views.check_hierarchy(hierarchy)


def check_model(
  config: Config, space: LabelSpace, levels: LabelLevels | None
) -> None:
  """Checks sizes and patterns of parameter names, without creating arrays."""
  train = config.train
  mesh, architecture = (
    make_mesh(config.mesh),
    planned_architecture(config.model, config.data),
  )
  # Neither checks of sizes nor the paths of parameters depend on the number of
  # words.
  plan = plan_neural(config, space, SOME_WORDS, mesh, architecture, levels)
  if train.rates or train.freeze or train.layer_decay != 1:
    params = plan.abstract.params
    trained, others = plan.split(params)
    # The label rows that train.rows trains cannot be frozen.
    is_row = is_label_row if plan.rows else nnx.Nothing()
    others = nnx.filter_state(others, nnx.Not(is_row))
    check_groups(train, *(parts_of(by_path(x)) for x in (trained, others)))
    if not by_path(trained) and not plan.rows:
      raise ConfigError(
        f'config.train.freeze={train.freeze}: nothing would be left to train; '
        'remove a glob'
      )


def check_dev_metric(corpus: Corpus, config: Config) -> None:
  # Which metrics have a value depends on the labels of dev and not on the
  # model, so lists of the most frequent labels show it before training.
  """Checks that train.best_metric has a value on dev."""
  prior = popularity(corpus.label_space, corpus.splits[DEV], config.eval.depth)
  describes = config.model.head.describes
  prior = dataclasses.replace(prior, ranks_unseen=describes)
  dev = judge(prior, config.eval.criteria())
  check_best_metric(config.train.best_metric, dev)


def check_best_metric(metric: str, dev: Metrics) -> None:
  """Raises a ConfigError if a metric, 'slice/metric', has no value on dev."""
  values = {
    f'{slice_name}/{name}': value
    for slice_name, slices in dev[PROTOCOL].items()
    for name, value in slices.items()
  }
  if values.get(metric) is None:
    slice_name, _, name = metric.partition('/')
    reason = dev.get(NOTES, {}).get(slice_name, {}).get(name)
    usable = ', '.join(
      name
      for name, value in values.items()
      if value is not None and '/n_' not in name
    )
    raise ConfigError(
      f'config.train.best_metric={metric} has no value on dev'
      + f' ({reason})' * bool(reason)
      + f'; metrics with a value: {usable}'
    )
