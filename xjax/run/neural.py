"""Runs of neural models: checked, trained, loaded."""

from collections.abc import Mapping
import dataclasses

from absl import logging
from flax import nnx
import jax

from xjax.config.json import load_config
from xjax.config.parameter_groups import check_groups
from xjax.config.run import Config
from xjax.config.train import Schedule
from xjax.core.distributed import barrier, is_host0
from xjax.core.errors import ConfigError, DataError
from xjax.core.mesh import DATA, LABEL_MULTIPLE, MeshConfig, make_mesh, share_of
from xjax.data.schema import Corpus, LabelSpace
from xjax.data.text.words import Vocabulary
from xjax.run.contract import Fit, Fitted
from xjax.run.judging import Metrics, check_best_metric, saved_calibration
from xjax.run.neural_training import (
  NeuralRun,
  check_label_rows,
  check_mesh,
  hidden_labels,
  label_rows_divide,
  plan_neural,
  scored_labels,
)
from xjax.run.predictor import Predictor
from xjax.score.heads.contract import is_label_row
from xjax.score.pretrained.descriptors import all_words
from xjax.score.text_model import NeuralModel
from xjax.select.model_scorer import ModelScorer
from xjax.train.checkpoint import complete_steps, move_if_damaged, read_params
from xjax.train.initial.encoder import (
  SOME_WORDS,
  check_encoder,
  keep_encoder,
  planned_architecture,
)
from xjax.train.initial.warm_start import (
  best_step,
  chosen_step,
  find_start,
)
from xjax.train.initial.words import check_word_vectors
from xjax.train.inputs import (
  Inputs,
  check_features,
  fit_vocabulary,
)
from xjax.train.parameters import by_path, from_paths
from xjax.train.preemption import Preemption
from xjax.train.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class NeuralFit(Fit):
  """A neural model's run in its workdir."""

  models = (NeuralModel,)

  @staticmethod
  def load(found: Workdir, config: Config) -> Predictor:
    """The best checkpoint of a run (else the newest) on the present devices.

    Raises:
      DataError: a file of the workdir is missing or damaged.
    """
    space = found.label_space()
    if config.data.tokens.dense:
      vocab = None
    elif config.data.tokens.pretrained:
      vocab = found.subwords()
    else:
      vocab = found.vocabulary()
    step = best_step(found)
    if step is None:
      raise DataError(f'{found.checkpoints}: no complete checkpoint')
    mesh = _present_mesh(config)
    inputs = Inputs(config, vocab, share_of(mesh))
    plan = plan_neural(
      config, space, inputs.vocab_size, mesh, found.architecture()
    )
    like = plan.abstract.params
    params = from_paths(like, read_params(found.checkpoints, step, like))
    n_labels = scored_labels(config.model, space)
    kind, method = config.train.loss.score_kind, config.eval.calibration
    scorer = ModelScorer(
      plan.graphdef, params, mesh, n_labels, kind, config.eval.recall
    )
    calibration = saved_calibration(found, method, step, kind)
    return Predictor(config, space, inputs, scorer, step, found, calibration)

  def check_start(self) -> None:
    """Checks that batches fit the mesh, and that the run can begin or go on.

    Raises:
      ConfigError: with the field.
    """
    config = self.config
    check_mesh(config, make_mesh(config.mesh))
    steps = complete_steps(self.workdir.checkpoints)
    if steps and steps[-1]:
      _check_steps(config, self.workdir)
    # Before the first is complete, everything begins anew.
    if not steps:
      check_word_vectors(config.model.embedding)
      check_encoder(config, self.workdir)
      if config.train.init_from:
        find_start(config.train.init_from)

  def check_corpus(self, corpus: Corpus, prior: Mapping[str, Metrics]) -> None:
    """Refuses vectors of another size, and a best_metric without a value.

    And more labels to calibrate by than there are, and groups of parameters
    that are empty.

    Raises:
      ConfigError: that is so.
    """
    check_features(corpus, self.config)
    hidden_labels(self.config, corpus.label_space.train_counts)
    if not self.workdir.config.exists():
      _check_groups(self.config, corpus.label_space)
    if 'dev' in prior:
      check_best_metric(self.config.train.best_metric, prior['dev'])
    elif is_host0():
      logging.info(
        'no dev split: no early stopping, and the last checkpoint is judged'
      )

  def fit(self, corpus: Corpus, preemption: Preemption) -> Fitted:
    """Trains from where the workdir stands to the end.

    Raises:
      UserError: the loss or a gradient is not finite.
      Preempted: asked to stop; the state is saved.
    """
    config, folder = self.config, self.workdir
    if config.data.tokens.dense:
      vocab = None
    elif config.data.tokens.pretrained:
      vocab = keep_encoder(config, corpus.split('train'), folder)
    else:
      vocab = _vocabulary(config, corpus, folder)
    inputs = Inputs(config, vocab, share_of(make_mesh(config.mesh)))
    run = NeuralRun.prepare(config, corpus, inputs, folder)
    scorer = run.scorer()
    at = run.train(scorer, preemption, self.profile)
    best = chosen_step(folder, at.step, at.best_step)

    def model() -> Predictor:
      step, like = best, run.plan.abstract.params
      # The newest was verified when the run began, or is fresh.
      if step != at.step and move_if_damaged(folder.checkpoints, step):
        step = chosen_step(folder, at.step, best)
      params = read_params(folder.checkpoints, step, like, verified=True)
      scorer.params = from_paths(like, params)
      space = corpus.label_space
      return Predictor(config, space, inputs, scorer, step, folder)

    return Fitted(at.step, best, scorer.score_kind, model)


def _check_steps(config: Config, workdir: Workdir) -> None:
  """Refuses another number of steps where the schedule ends with them."""
  begun, train = load_config(workdir.config).train.steps, config.train
  if train.schedule is not Schedule.CONSTANT and train.steps != begun:
    raise ConfigError(
      f'config.train.steps={train.steps}: the {train.schedule.value} schedule '
      f'of this run ends at step {begun}, and with another end its learning '
      f'rate would jump. Set config.train.steps={begun}, or begin a new '
      f'workdir from its parameters: config.train.init_from={workdir.path}'
    )


def _check_groups(config: Config, space: LabelSpace) -> None:
  """Refuses groups of parameters before anything is made for a run."""
  train = config.train
  if train.rates or train.freeze or train.layer_decay != 1:
    mesh, architecture = make_mesh(config.mesh), planned_architecture(config)
    # The paths of parameters do not depend on the number of words.
    plan = plan_neural(config, space, SOME_WORDS, mesh, architecture)
    params = plan.abstract.params
    trained, _ = plan.split(params)
    rows = nnx.filter_state(params, is_label_row) if plan.rows else {}
    check_groups(train, *map(list, map(by_path, (params, trained, rows))))


def _present_mesh(config: Config) -> jax.sharding.Mesh:
  """The run's mesh, or where it does not fit all devices for documents.

  Where label rows, or labels alone, do not divide among all, the last ones are
  left out.

  Raises:
    ConfigError: they would have to be, of several processes.
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
    # The label axis divides whatever the batch is, among so many.
    while jax.process_count() == 1 and LABEL_MULTIPLE % count:
      count -= 1
    mesh = make_mesh(MeshConfig(data=1, label=-1), count)
  return mesh


def _vocabulary(config: Config, corpus: Corpus, folder: Workdir) -> Vocabulary:
  """The run's vocabulary, from its workdir once it is there."""
  if is_host0() and not folder.vocab.exists():
    vocab = first_vocabulary(config, corpus)
    vocab.save(folder.vocab)
    logging.info('vocabulary: %d words', len(vocab.words))
  barrier('xjax:vocabulary')
  vocab = folder.vocabulary()
  folder.record_vocabulary(vocab)
  return vocab


def first_vocabulary(config: Config, corpus: Corpus) -> Vocabulary:
  """The vocabulary that a run begins with: of train, and perhaps of labels."""
  vocab = fit_vocabulary(corpus.split('train'), config.data)
  if config.model.head.describes:
    vocab = vocab.extended(all_words(corpus.label_space.labels))
  return vocab
