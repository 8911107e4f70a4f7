"""Checks, trains and loads the runs of neural models."""

from collections.abc import Mapping
import dataclasses
import functools
import time

from absl import logging
from flax import nnx
import jax

from xjax.core.distributed import barrier, is_host0
from xjax.core.errors import ConfigError, DataError
from xjax.core.mesh import (
  DATA,
  make_mesh,
  share_of,
)
from xjax.core.mesh_config import (
  LABEL_MULTIPLE,
  MeshConfig,
)
from xjax.core.processes.lock import is_locked
from xjax.core.types import Ragged
from xjax.data.label_trees.levels import LabelLevels
from xjax.data.schema import Corpus, LabelSpace
from xjax.data.text.words import Vocabulary, split_words
from xjax.models.config import Config
from xjax.models.config_json import load_config
from xjax.models.fit_contract import Fit, Fitted
from xjax.models.load import JUDGED, load_calibration
from xjax.models.neural.neural_training import (
  NeuralRun,
  check_label_rows,
  check_mesh,
  hidden_labels,
  label_rows_divide,
  make_scorer,
  plan_neural,
  run_hierarchy,
  scored_labels,
)
from xjax.models.predictor import Predictor
from xjax.models.staged.level_stages import RunLevels, saved_levels
from xjax.models.staged.proposals import (
  check_proposals,
  check_shortlist,
  combination_of,
  new_proposals,
  proposing_stage,
  saved_proposals,
)
from xjax.models.staged.stage import Stage
from xjax.models.workdir import Workdir
from xjax.networks.heads.head import DescriptorHeadConfig, is_label_row
from xjax.networks.pretrained.descriptors import all_words
from xjax.networks.text_model import NeuralModel
from xjax.run.judging import Metrics, check_best_metric
from xjax.train.batches.inputs import (
  Inputs,
  check_features,
  fit_vocabulary,
)
from xjax.train.checkpoint import (
  complete_steps,
  intact_steps,
  move_if_damaged,
  read_params,
  record_best,
)
from xjax.train.initial.encoder import (
  SOME_WORDS,
  check_encoder,
  keep_encoder,
  planned_architecture,
)
from xjax.train.initial.view_names import encoded_labels
from xjax.train.initial.warm_start import (
  best_step,
  check_checkpoint,
  chosen_step,
  find_start,
)
from xjax.train.initial.words import check_word_vectors
from xjax.train.neural_train import Schedule
from xjax.train.parameter_groups import check_groups
from xjax.train.parameters import by_path, from_paths
from xjax.train.preemption import Preemption

_LARGE_BATCH = 1024  # a smaller batch may be larger than the split train
_TRIES = 5  # a second apart


@dataclasses.dataclass(frozen=True)
class NeuralFit(Fit):
  """Fits a neural model in the workdir of a run.

  Attributes:
    costs: how much each gold label of the split train counts in the loss; None
      if all count equally.
    levels: the levels of a run whose levels are known; None if the run builds
      its levels.
  """

  models = (NeuralModel,)

  costs: Ragged | None = None
  levels: LabelLevels | None = None

  @staticmethod
  def load(
    folder: Workdir, config: Config, step: int | None = None
  ) -> Predictor:
    """Loads a checkpoint of a run.

    Args:
      folder: folder of the run.
      config: config of the run.
      step: int, step of the checkpoint. None stands for the best checkpoint, or
        for the newest if no step has been judged yet.

    Raises:
      DataError: a file of the workdir is missing or damaged.
    """
    space = folder.label_space()
    if config.data.tokens.dense:
      vocab = None
    elif config.data.tokens.pretrained:
      vocab = folder.subwords()
    else:
      vocab = folder.vocabulary()
    mesh = _present_mesh(config)
    proposals = saved_proposals(config, folder)
    inputs = proposals.inputs(Inputs(config, vocab, share_of(mesh)))
    levels = saved_levels(folder) if config.model.head.levels else None
    plan = plan_neural(
      config, space, inputs.vocab_size, mesh, folder.architecture(), levels
    )
    step, params = _read_best(folder, plan.abstract.params, step)
    scorer = make_scorer(config, space, proposals, plan, params, mesh)
    kind, method = scorer.score_kind, config.eval.calibration
    calibration = load_calibration(folder, method, step, kind)
    return Predictor(config, space, inputs, scorer, step, folder, calibration)

  def check_start(self) -> None:
    """Checks that batches fit the mesh and that the run can start or resume.

    Raises:
      ConfigError: batches do not fit the mesh, or the run cannot start or
        resume; the message names the field.
    """
    config = self.config
    check_mesh(config, make_mesh(config.mesh))
    check_shortlist(config, self.workdir, self._stage)
    steps = complete_steps(self.workdir.checkpoints)
    if steps and steps[-1]:
      _check_steps(config, self.workdir, steps[-1])
    # Without a complete checkpoint the run starts from the beginning.
    if not steps:
      check_word_vectors(config.model.embedding)
      check_encoder(config, self.workdir)
      if config.train.init_from:
        find_start(config.train.init_from)

  def check_corpus(self, corpus: Corpus, prior: Mapping[str, Metrics]) -> None:
    """Checks a corpus against the config.

    These conditions are checked:
    - A batch for training is not far larger than the training split.
    - A model that reads parents has labels with parents.
    - Vectors of documents have the size that the model reads. Labels have
      vectors if the head needs them.
    - train.best_metric has a value on dev.
    - The corpus has enough rare labels for model.head.hidden_labels, and a
      number of labels and a hierarchy that suit the head.
    - All gold labels of a document, or their clusters, can be kept in training.
      What proposes labels fits the corpus.
    - Before the first start of the run: the sizes of the parts of the model
      suit each other, each pattern for parameter names in the config has an
      effect, and at least one parameter is trained.

    Raises:
      ConfigError: one of these conditions is not met.
      DataError: the file of label vectors has a fault, or lacks a label; or the
        model reads parents, and a label is its own ancestor.
    """
    _check_batch(self.config.train.batch_size, len(corpus.split('train')))
    check_features(corpus, self.config)
    hidden_labels(self.config, corpus.label_space.train_counts)
    model = self.config.model
    model.head.check_labels(scored_labels(model, corpus.label_space))
    if model.reads_parents:
      check_hierarchy(model, corpus.label_space)
    levels = self._levels and self._levels.of(corpus)
    parts = self.config, self.workdir, self._stage
    check_proposals(*parts, corpus, levels)
    if model.head.levels is not None:
      split = corpus.split('train')
      model.head.check_gold(levels, corpus.trained_gold, split.ids)
    if not self.workdir.config.exists():
      levels = levels if model.head.levels else None
      _check_model(self.config, corpus.label_space, levels)
    if 'dev' in prior:
      check_best_metric(self.config.train.best_metric, prior['dev'])
    elif is_host0():
      logging.info(
        'no dev split: training does not stop early, and the last checkpoint '
        'is judged'
      )

  def fit(self, corpus: Corpus, preemption: Preemption) -> Fitted:
    """Trains to the last step, from the newest checkpoint if there is one.

    Raises:
      UserError: the loss or a gradient is not finite.
      Preempted: SIGTERM or Ctrl-C came; the state is saved.
    """
    config, folder = self.config, self.workdir
    if config.data.tokens.dense:
      vocab = None
    elif config.data.tokens.pretrained:
      vocab = keep_encoder(config, corpus.split('train'), folder)
    else:
      vocab = _vocabulary(config, corpus, folder)
    inputs = Inputs(config, vocab, share_of(make_mesh(config.mesh)))
    levels = self._levels and self._levels.keep(corpus)
    proposals = new_proposals(
      config, folder, corpus, preemption, self._stage, self.costs
    )
    inputs = proposals.inputs(inputs)
    if proposals.proposer is not None:
      combination, weight = combination_of(config)
      search = {'combination': combination.value, 'prior': weight}
      folder.record_search(search, JUDGED)
    levels = levels if config.model.head.levels else None
    run = NeuralRun.prepare(config, corpus, inputs, folder, proposals, levels)
    scorer = run.scorer()
    end = run.train(scorer, preemption, self.profile)
    best = chosen_step(folder, end.step, end.best_step)
    if end.best_step not in (None, best):
      record_best(folder.checkpoints, end.step, best)

    def model() -> Predictor:
      step, like = best, run.plan.abstract.params
      # The newest checkpoint needs no check here. It was verified when the run
      # started, or it was written later.
      if step != end.step and move_if_damaged(folder.checkpoints, step):
        step = chosen_step(folder, end.step, best)
        record_best(folder.checkpoints, end.step, step)
      params = read_params(folder.checkpoints, step, like, verified=True)
      scorer.params = from_paths(like, params)
      space = corpus.label_space
      return Predictor(config, space, inputs, scorer, step, folder)

    params = jax.tree.leaves(run.plan.abstract.params)
    size = sum(array.size * array.dtype.itemsize for array in params)
    return Fitted(end.step, best, scorer.score_kind, size, model)

  @functools.cached_property
  def _levels(self) -> RunLevels | None:
    """Returns the levels of the head or of the shortlists; None if absent."""
    for part in ('head', 'shortlist'):
      levels = getattr(getattr(self.config.model, part), 'levels', None)
      if levels:
        path = f'config.model.{part}.levels'
        parts = self.config, self.workdir, path
        return RunLevels(levels, *parts, built=self.levels)
    return None

  @functools.cached_property
  def _stage(self) -> Stage | None:
    """Returns the stage that proposes labels; None if there is none."""
    return proposing_stage(self.config, self.workdir)


def check_hierarchy(model: NeuralModel, space: LabelSpace) -> None:
  """Checks that a model that reads parents suits the hierarchy of labels.

  Args:
    model: config of the model.
    space: label space of the run.

  Raises:
    ConfigError: no label that the model scores has a parent (for a graph: nor a
      child), or the hierarchy does not suit the head or the views.
    DataError: a label is its own ancestor.
  """
  hierarchy, head = run_hierarchy(model, space), model.head
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


def _check_batch(size: int, documents: int) -> None:
  """Checks that a batch for training is not mostly padding.

  Raises:
    ConfigError: the batch is large, and twice as large as the split or larger.
  """
  if size > max(_LARGE_BATCH, 2 * documents):
    raise ConfigError(
      f'config.train.batch_size={size}: the split train has only {documents} '
      'documents; choose a smaller batch'
    )


def _read_best(
  folder: Workdir, like: nnx.State, step: int | None
) -> tuple[int, nnx.State]:
  """Reads the parameters of the best checkpoint, or of a given step.

  While the run trains, a better checkpoint may replace the one that is read. If
  so, the function reads again.

  Returns:
    The step of the checkpoint, and its parameters.

  Raises:
    DataError: there is no intact checkpoint, or the best one is damaged.
  """
  # All processes must read equally often, so several processes read once.
  trains = jax.process_count() == 1 and is_locked(folder.path)
  for left in reversed(range(_TRIES if trains else 1)):
    try:
      if step is not None:
        check_checkpoint(folder, step)
      chosen = best_step(folder) if step is None else step
      if chosen is None:
        raise DataError(f'{folder.checkpoints}: no complete checkpoint')
      params = read_params(folder.checkpoints, chosen, like, verified=True)
      return chosen, from_paths(like, params)
    except Exception:  # Orbax raises any type if a file vanishes
      if not left:
        raise
      time.sleep(1)
  raise AssertionError  # the last try returns or raises


def _check_steps(config: Config, workdir: Workdir, taken: int) -> None:
  """Checks that train.steps suits a run that has taken some steps.

  train.steps must be at least the number of steps taken. If the schedule is not
  constant, train.steps must be the same as when the run was started.
  """
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


def _check_model(
  config: Config, space: LabelSpace, levels: LabelLevels | None
) -> None:
  """Checks that a model can be built, without creating arrays.

  Patterns for parameter names are checked too (see check_groups).

  Raises:
    ConfigError: the sizes of the parts of the model do not suit each other, or
      as in check_groups.
  """
  train = config.train
  mesh, architecture = make_mesh(config.mesh), planned_architecture(config)
  # Neither checks of sizes nor the paths of parameters depend on the number of
  # words.
  plan = plan_neural(config, space, SOME_WORDS, mesh, architecture, levels)
  if train.rates or train.freeze or train.layer_decay != 1:
    params = plan.abstract.params
    trained, _ = plan.split(params)
    rows = nnx.filter_state(params, is_label_row) if plan.rows else {}
    check_groups(train, *map(list, map(by_path, (params, trained, rows))))


def _present_mesh(config: Config) -> jax.sharding.Mesh:
  """Returns a mesh of this machine's devices for a loaded model.

  - The mesh of the run is used if the devices fit it.
  - Otherwise all devices share the documents of a batch.
  - If batches do not divide evenly among the devices, the devices share the
    labels instead.
  - If label rows do not divide evenly among the devices, the last devices are
    left out.

  Raises:
    ConfigError: label rows do not divide evenly among the devices of several
      processes.
  """
  count = jax.device_count()
  if jax.process_count() > 1:
    check_label_rows(config, count)
  while not label_rows_divide(config, count):
    count -= 1
  try:
    mesh = make_mesh(config.mesh, count)
  except ConfigError:
    mesh = make_mesh(MeshConfig(), count)
  if config.eval.batch_size % mesh.shape[DATA]:
    # A label axis works with any batch size; its size must divide
    # LABEL_MULTIPLE.
    while jax.process_count() == 1 and LABEL_MULTIPLE % count:
      count -= 1
    mesh = make_mesh(MeshConfig(data=1, label=-1), count)
  return mesh


def _vocabulary(config: Config, corpus: Corpus, folder: Workdir) -> Vocabulary:
  """Reads the vocabulary of a workdir; builds and saves it first if absent."""
  if is_host0() and not folder.vocab.exists():
    vocab = first_vocabulary(config, corpus)
    vocab.save(folder.vocab)
    logging.info('vocabulary: %d words', len(vocab.words))
  barrier('xjax:vocabulary')
  vocab = folder.vocabulary()
  folder.record_vocabulary(vocab)
  return vocab


def first_vocabulary(config: Config, corpus: Corpus) -> Vocabulary:
  """Builds the vocabulary of a new run from the train split.

  If the head knows labels by descriptors, the words of all label names are
  added. If it reads parents too, so are the words of the other concepts. If the
  model has views that read names, the words of these names are added.
  """
  vocab = fit_vocabulary(corpus.split('train'), config.data)
  space, model = corpus.label_space, config.model
  if model.head.describes:
    vocab = vocab.with_words(all_words(space.labels))
  if model.head.describes and model.reads_parents:
    vocab = vocab.with_words(all_words(run_hierarchy(model, space).labels))
  if model.views.reads_parents:
    names = (label.name for label in encoded_labels(space))
    vocab = vocab.with_words(w for name in names for w in split_words(name))
  return vocab
