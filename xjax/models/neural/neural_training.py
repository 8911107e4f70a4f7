"""Assembles the model, mesh, state and training loop of a neural run."""

from collections.abc import Callable
import contextlib
import dataclasses

from absl import logging
from flax import nnx
import grain
import jax
from jax.experimental import multihost_utils
import jax.numpy as jnp
import numpy as np

from xjax.core.distributed import is_host0
from xjax.core.errors import ConfigError
from xjax.core.mesh import DATA, make_mesh
from xjax.core.mesh_config import LABEL_MULTIPLE
from xjax.core.progress import Progress
from xjax.core.rng import host_generator
from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.label_trees.levels import LabelLevels
from xjax.data.labels import draw_labels
from xjax.data.schema import Corpus, LabelSpace
from xjax.losses.loss import LabelWeights
from xjax.models.config import Config
from xjax.models.neural.model_scorer import ModelScorer
from xjax.models.neural.shortlist_scorer import ShortlistScorer
from xjax.models.staged.proposals import Proposals, combination_of, first_rows
from xjax.models.workdir import Workdir
from xjax.networks.pretrained.architecture import Architecture
from xjax.networks.pretrained.descriptors import DescriptorEncoder
from xjax.networks.text_model import (
  NeuralModel,
  build,
  initial_biases,
  smoothed_priors,
)
from xjax.run.judging import dev_judge
from xjax.train.batches.dense import TrainBatches
from xjax.train.batches.inputs import Inputs, label_features
from xjax.train.checkpoint import Checkpoints
from xjax.train.fused_rows import fused_rows
from xjax.train.initial.descriptors import (
  descriptor_word_vectors,
  save_words,
  start_descriptors,
  start_name_encoder,
)
from xjax.train.initial.encoder import start_encoder
from xjax.train.initial.label_vectors import start_label_vectors
from xjax.train.initial.view_names import start_view_names
from xjax.train.initial.warm_start import Taken, warm_start
from xjax.train.initial.words import start_words
from xjax.train.loop import Judge, Loop, Position
from xjax.train.optimizer import make_optimizer, make_schedule
from xjax.train.preemption import Preemption
from xjax.train.state import (
  StatePlan,
  TrainState,
  plan_state,
  with_label_start,
  with_rows,
)
from xjax.train.step import make_train_step, place_weights
from xjax.train.writers import MetricWriter, Profile, TrainingProgress

HIDDEN_RANGE = (1, 20)  # numbers of training documents of hidden labels
_SHOWN = 16  # an error lists at most this many document ids


def check_mesh(config: Config, mesh: jax.sharding.Mesh) -> None:
  """Checks that batches and label rows divide evenly among the devices.

  Raises:
    ConfigError: a batch or the label rows do not divide evenly; the message
      says which sizes are possible.
  """
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
  """Returns whether a run's label rows divide evenly among the devices.

  Args:
    config: config of the run.
    devices: int, number of devices.
  """
  return not config.model.head.on_all_devices or LABEL_MULTIPLE % devices == 0


def check_label_rows(config: Config, devices: int) -> None:
  """Checks that label rows divide evenly among the devices.

  Raises:
    ConfigError: label rows do not divide evenly; the message says which numbers
      of devices are possible.
  """
  if not label_rows_divide(config, devices):
    head = type(config.model.head).__name__
    raise ConfigError(
      f'mesh: label rows of {head}(...) are spread over all {devices} devices, '
      f'so the number of devices must divide {LABEL_MULTIPLE}'
    )


def scored_labels(model: NeuralModel, space: LabelSpace) -> int:
  """Returns n; the model scores the first n labels of the space."""
  if model.head.describes:
    return space.n_inside
  return space.n_trained


def run_hierarchy(model: NeuralModel, space: LabelSpace) -> Hierarchy:
  """Returns the hierarchy of the labels that a model scores.

  The other labels of the label space are concepts, like the other concepts of
  the taxonomy (see Hierarchy.of_space).

  Args:
    model: config of the model.
    space: label space of the run.

  Raises:
    DataError: a label is its own ancestor.
  """
  return Hierarchy.of_space(space, scored_labels(model, space))


def hidden_labels(config: Config, train_counts: np.ndarray) -> np.ndarray:
  """Draws the labels that a unified head treats as unseen, to calibrate scores.

  Only labels with 1 to 20 training documents are drawn, so that training loses
  little. These rare labels are ranked by frequency, and the drawn labels are
  spread evenly over this ranking.

  Returns:
    bool [L], True for hidden labels.

  Raises:
    ConfigError: the corpus has too few labels to hide.
  """
  hidden = np.zeros(len(train_counts), bool)
  head = config.model.head
  if head.hidden_labels:
    rng = host_generator(config.seed, 'hidden_labels')
    n, field = head.hidden_labels, 'model.head.hidden_labels'
    drawn = draw_labels(train_counts, n, HIDDEN_RANGE, rng, field)
    hidden[drawn] = True
  return hidden


def plan_neural(
  config: Config,
  space: LabelSpace,
  vocab_size: int,
  mesh: jax.sharding.Mesh,
  architecture: Architecture | None = None,
  levels: LabelLevels | None = None,
) -> StatePlan:
  """Plans the structure of a run's state, without creating arrays.

  Args:
    config: config of the run.
    space: label space of the run.
    vocab_size: int, number of word ids; 0 if the run reads no words.
    mesh: the devices.
    architecture: sizes of the pretrained encoder; None if there is none.
    levels: the levels of clusters, if the head has levels.

  Raises:
    ConfigError: as in hidden_labels.
    DataError: the model reads parents, and a label is its own ancestor.
  """
  train = config.train
  n_labels = scored_labels(config.model, space)
  counts = space.train_counts[:n_labels]
  unseen = counts == 0
  hidden = hidden_labels(config, counts)

  hierarchy = None
  if config.model.reads_parents:
    hierarchy = run_hierarchy(config.model, space)
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
    fused_rows(train, counts),
  )
  return with_label_start(plan, initial_biases(priors) if row_biases else None)


def make_scorer(
  config: Config,
  space: LabelSpace,
  proposals: Proposals,
  plan: StatePlan,
  params: nnx.State | None,
  mesh: jax.sharding.Mesh,
) -> ModelScorer:
  """Returns the scorer of a run.

  Args:
    config: config of the run.
    space: label space of the run.
    proposals: the shortlists of the run.
    plan: structure of the state.
    params: the parameters, or None if they are set later.
    mesh: the devices.
  """
  n_labels = scored_labels(config.model, space)
  kind, recall = config.train.loss.score_kind, config.eval.recall
  parts = plan.graphdef, params, mesh, n_labels, kind, recall
  if proposals.proposer is None:
    head = nnx.merge(plan.graphdef, plan.abstract.params).head
    return ModelScorer(*parts, head.shortlist_size)
  combination, weight = combination_of(config)
  return ShortlistScorer(
    *parts,
    proposer=proposals.proposer,
    combination=combination,
    weight=weight,
  )


@dataclasses.dataclass(frozen=True, eq=False)
class NeuralRun:
  """Trains a neural model in the workdir of a run.

  Attributes:
    config: config of the run.
    corpus: corpus with a split train.
    inputs: makes batches.
    workdir: folder of the run.
    mesh: the devices.
    plan: structure of the state.
    proposals: the shortlists; by default, all labels are scored.
    levels: the levels of clusters, if the head has levels.
  """

  config: Config
  corpus: Corpus
  inputs: Inputs
  workdir: Workdir
  mesh: jax.sharding.Mesh
  plan: StatePlan
  proposals: Proposals = Proposals()
  levels: LabelLevels | None = None

  @classmethod
  def prepare(
    cls,
    config: Config,
    corpus: Corpus,
    inputs: Inputs,
    workdir: Workdir,
    proposals: Proposals | None = None,
    levels: LabelLevels | None = None,
  ) -> 'NeuralRun':
    """Plans the run on the mesh of its config."""
    mesh = make_mesh(config.mesh)
    check_mesh(config, mesh)
    plan = plan_neural(
      config,
      corpus.label_space,
      inputs.vocab_size,
      mesh,
      workdir.architecture(),
      levels,
    )
    proposals = proposals or Proposals()
    return cls(config, corpus, inputs, workdir, mesh, plan, proposals, levels)

  def scorer(self) -> ModelScorer:
    """Returns a scorer whose parameters are not set yet."""
    parts = self.corpus.label_space, self.proposals, self.plan, None, self.mesh
    return make_scorer(self.config, *parts)

  def train(
    self,
    scorer: ModelScorer,
    preemption: Preemption,
    profile: tuple[int, int] | None = None,
  ) -> Position:
    """Trains to the last step, from the newest checkpoint if there is one.

    Args:
      scorer: scores the dev split; its params are set before the split is
        scored.
      preemption: notices SIGTERM and Ctrl-C; its context has been entered.
      profile: first and last step to trace. The traces are written to profile/
        in the workdir.

    Returns:
      The position at the end of training; its checkpoint is on disk.

    Raises:
      UserError: the loss or a gradient is not finite.
      Preempted: SIGTERM or Ctrl-C came; the state is saved.
    """
    config, corpus = self.config.train, self.corpus
    batches = self.inputs.train_batches(
      corpus.split('train'),
      corpus.label_space.n_trained,
      self.proposals.shortlists,
    )
    iterator = iter(batches.dataset())
    judge: Judge | None = None
    if 'dev' in corpus.splits:
      judge = dev_judge(scorer, self.inputs, corpus)
    with contextlib.ExitStack() as parts:
      # A signal must not end the process before the checkpoints are closed,
      # because saves may not be on disk until then. So the context of
      # preemption is entered first and left last.
      parts.enter_context(preemption.deferred())
      checkpoints = parts.enter_context(
        Checkpoints(self.workdir.checkpoints, config.keep)
      )
      with Progress('building the model'):
        state, position = self._start(checkpoints, iterator, preemption.check)
      preemption.check()
      loop = Loop(
        config=config,
        train_step=make_train_step(
          self.plan,
          make_optimizer(config),
          config.loss.build(),
          self.mesh,
          config.accumulate,
          self._loss_weights(),
        ),
        mesh=self.mesh,
        key=jax.random.key(self.config.seed),
        schedule=make_schedule(config),
        describe=lambda step, doc_B: self._describe(batches, step, doc_B),
        judge=judge,
        checkpoints=checkpoints,
        writer=parts.enter_context(
          MetricWriter(
            self.workdir.path, position.step, position.judged, self.config
          )
        ),
        progress=parts.enter_context(
          TrainingProgress(position.step, config.steps)
        ),
        profile=parts.enter_context(Profile(self.workdir.profile, profile)),
        preemption=preemption,
      )
      _, position = loop.run(state, iterator, position)
      return position

  def _loss_weights(self) -> LabelWeights | None:
    """Returns the weights of the scored labels; None if all are equal."""
    config, space = self.config, self.corpus.label_space
    weights = config.train.label_weights.build(
      space.train_counts[: scored_labels(config.model, space)],
      space.n_train,
      config.eval.propensity,
    )
    model = nnx.merge(self.plan.graphdef, self.plan.abstract.params)
    return place_weights(weights, self.mesh, model.head.axes)

  def _start(
    self,
    checkpoints: Checkpoints,
    iterator: grain.DatasetIterator,
    check: Callable[[], None],
  ) -> tuple[TrainState, Position]:
    """Restores the newest checkpoint, or creates the first state.

    The parameters of the first state are random, pretrained or another run's.

    Args:
      checkpoints: the checkpoints of the run.
      iterator: the batches, which get the position of the checkpoint.
      check: ends the run by an error if it has to stop.
    """
    if checkpoints.steps:
      step = checkpoints.steps[-1]
      state, meta = checkpoints.restore(step, self.plan.abstract, iterator)
      position = Position(**meta)
      if is_host0():
        more = position.step < self.config.train.steps and not position.stopped
        logging.info(
          '%s at step %d of %d',
          'resuming' if more else 'training was finished',
          position.step,
          self.config.train.steps,
        )
      return state, position
    key = jax.random.fold_in(jax.random.key(self.config.seed), 2**31)
    source = self.proposals.start or self.config.train.init_from
    position = Position()
    with jax.set_mesh(self.mesh):
      state = self.plan.init(key)
    embedding, vocab = self.config.model.embedding, self.inputs.vocab
    state, has_vector = start_words(state, embedding, vocab)
    state = start_encoder(state, self.config)
    taken, space = Taken(), self.corpus.label_space
    if source:
      state, taken = warm_start(state, source, space, self.inputs, self.levels)
    # The vectors of labels are trained on the encoder that the run starts with.
    if self.config.model.head.embeds_labels:
      state = start_label_vectors(
        state,
        self.config,
        hierarchy=run_hierarchy(self.config.model, space),
        tokenizer=vocab,
        architecture=self.workdir.architecture(),
        taken=taken,
        check=check,
      )
    if self.proposals.bootstraps:
      rows = first_rows(self.proposals, self.config, self.corpus)
      state = with_rows(state, *rows)
    if self.config.model.head.describes:
      state = self._add_descriptors(state, has_vector, taken.descriptor_run)
    state = start_view_names(state, space, vocab)
    state = self.plan.start_averages(state)
    if source:
      # The state is saved at once. Without this save, a restart would read
      # init_from again, and the best checkpoint of that run may have changed.
      meta = dataclasses.asdict(position)
      checkpoints.save(state, position.step, iterator, meta, position.best_step)
    # On several CPU devices, the first step and the work above share few
    # threads. They would deadlock if they ran at the same time.
    return jax.block_until_ready(state), position

  def _add_descriptors(
    self,
    state: TrainState,
    has_vector: np.ndarray | None,
    descriptor_run: Workdir | None,
  ) -> TrainState:
    """Adds the embedded descriptors of labels and concepts to a first state.

    Args:
      state: first state; its word vectors are random, pretrained, or those of
        another run.
      has_vector: bool [vocabulary], True for words with a pretrained vector;
        from start_words.
      descriptor_run: the run whose descriptors are used; from warm_start.
    """
    model, vocab = self.config.model, self.inputs.vocab
    space = self.corpus.label_space
    n_labels = scored_labels(model, space)
    labels = nodes = space.labels[:n_labels]
    if model.reads_parents:
      nodes = run_hierarchy(model, space).labels
    # Labels are embedded as without a graph, because other names in a batch
    # change the last bits of a vector.
    parts = labels, nodes[n_labels:]
    if vocab is None:
      rows = label_features(nodes, self.config)
      return start_descriptors(state, rows[:n_labels], rows[n_labels:])
    if self.config.data.tokens.pretrained:
      names = start_name_encoder(state, self.workdir, model, descriptor_run)
      return start_descriptors(state, *map(names.encode, parts))
    words = descriptor_word_vectors(state, vocab, has_vector, descriptor_run)
    if is_host0():
      with self.workdir.recording(self.workdir.word_vectors):
        save_words(self.workdir.word_vectors, words)
    encoder = DescriptorEncoder.of(labels, model.head.descriptor, vocab, words)
    return start_descriptors(state, *map(encoder.encode, parts))

  def _describe(
    self, batches: TrainBatches, step: int, doc_B: np.ndarray
  ) -> str:
    """Describes a step in an error message: its epoch, batch and documents.

    All processes must call this method.
    """
    if jax.process_count() > 1:
      doc_B = multihost_utils.process_allgather(doc_B)
    ids = self.corpus.splits['train'].ids
    # Several processes may have read the same documents.
    rows = dict.fromkeys(np.ravel(doc_B).tolist())
    names = [ids[row] for row in rows if row != PAD]
    epoch, batch = divmod(step - 1, batches.steps_per_epoch)
    more = len(names) - _SHOWN
    return (
      f'epoch {epoch}, batch {batch}, documents {", ".join(names[:_SHOWN])}'
      + (f' and {more} more' if more > 0 else '')
    )
