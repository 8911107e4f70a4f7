"""A neural run put together: model, optimizer, mesh, loop, restored state."""

import contextlib
import dataclasses

from absl import logging
from flax import nnx
import grain
import jax
from jax.experimental import multihost_utils
import jax.numpy as jnp
import numpy as np

from xjax.config.run import Config
from xjax.core.distributed import is_host0
from xjax.core.errors import ConfigError
from xjax.core.mesh import DATA, LABEL_MULTIPLE, make_mesh
from xjax.core.rng import host_generator
from xjax.core.types import PAD
from xjax.data.batches.dense import TrainBatches
from xjax.data.labels import draw_labels
from xjax.data.schema import Corpus, LabelSpace
from xjax.losses.contract import LabelWeights
from xjax.run.judging import dev_judge
from xjax.score.pretrained.architecture import Architecture
from xjax.score.pretrained.descriptors import DescriptorEncoder
from xjax.score.text_model import (
  NeuralModel,
  build,
  first_biases,
  smoothed_priors,
)
from xjax.select.model_scorer import ModelScorer
from xjax.train.checkpoint import Checkpoints
from xjax.train.fused_rows import fused_rows
from xjax.train.initial.descriptors import (
  descriptor_words,
  save_words,
  start_descriptors,
  start_name_encoder,
)
from xjax.train.initial.encoder import start_encoder
from xjax.train.initial.warm_start import warm_start
from xjax.train.initial.words import start_words
from xjax.train.inputs import Inputs, label_features
from xjax.train.loop import Judge, Loop, Position
from xjax.train.optimizer import make_optimizer, make_schedule
from xjax.train.preemption import Preemption
from xjax.train.state import StatePlan, TrainState, plan_state, with_label_start
from xjax.train.step import make_train_step, place_weights
from xjax.train.workdir import Workdir
from xjax.train.writers import MetricWriter, Profile, TrainingProgress

HIDDEN_RANGE = (1, 20)  # training documents of a label to calibrate by
_SHOWN = 16  # document ids that an error names


def check_mesh(config: Config, mesh: jax.sharding.Mesh) -> None:
  """Refuses batches and label rows that do not divide among the devices.

  Raises:
    ConfigError: with the multiple that they must be.
  """
  check_label_rows(config, mesh.size)
  devices = mesh.shape[DATA]
  needs = {
    'train.batch_size': (config.train.batch_size, config.train.accumulate),
    'eval.batch_size': (config.eval.batch_size, 1),
  }
  for name, (size, micro) in needs.items():
    if size % (devices * micro):
      raise ConfigError(
        f'{name}={size} must be a multiple of {devices * micro}: mesh.data is '
        f'{devices}' + (f', train.accumulate is {micro}' if micro > 1 else '')
      )


def label_rows_divide(config: Config, devices: int) -> bool:
  """Whether label rows that lie on all devices divide among so many."""
  return not config.model.head.on_all_devices or LABEL_MULTIPLE % devices == 0


def check_label_rows(config: Config, devices: int) -> None:
  """Refuses devices among which label rows do not divide.

  Raises:
    ConfigError: with the number that theirs must divide.
  """
  if not label_rows_divide(config, devices):
    head = type(config.model.head).__name__
    raise ConfigError(
      f'mesh: label rows of {head}(...) lie on all {devices} devices, whose '
      f'number must divide {LABEL_MULTIPLE}'
    )


def scored_labels(model: NeuralModel, space: LabelSpace) -> int:
  """How many labels, the first ones of the space, a model scores."""
  if model.head.describes:
    return space.n_inside
  return space.n_trained


def hidden_labels(config: Config, train_counts: np.ndarray) -> np.ndarray:
  """The labels that a unified head calibrates by, bool [L].

  Drawn evenly over the frequencies of those with 1 to 20 training documents:
  what is not learnt of them costs little.

  Raises:
    ConfigError: there are not so many.
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
) -> StatePlan:
  """The structure of a run's state; no array is made.

  Args:
    config: of the run.
    space: its labels.
    vocab_size: word ids; 0 where there are none.
    mesh: the devices.
    architecture: of a pretrained encoder; None: there is none.

  Raises:
    ConfigError: as hidden_labels.
  """
  train = config.train
  n_labels = scored_labels(config.model, space)
  counts = space.train_counts[:n_labels]
  unseen = counts == 0
  hidden = hidden_labels(config, counts)

  priors = train.loss.first_priors(smoothed_priors(counts, space.n_train))
  describes = config.model.head.describes
  plan = plan_state(
    lambda rngs: build(
      config.model,
      vocab_size=vocab_size,
      n_labels=n_labels,
      architecture=architecture,
      # Of these heads, biases are relative to what descriptors make of labels.
      label_priors=priors if describes else None,
      unseen=unseen,
      hidden=hidden,
      dtype=jnp.dtype(train.compute_dtype.value),
      rngs=rngs,
    ),
    make_optimizer(train),
    mesh,
    train.freeze,
    train.average,
    fused_rows(train, counts),
  )
  return with_label_start(plan, None if describes else first_biases(priors))


@dataclasses.dataclass(frozen=True, eq=False)
class NeuralRun:
  """A neural model's run in its workdir.

  Attributes:
    config: of the run.
    corpus: with a split train.
    inputs: makes batches.
    workdir: where it is kept.
    mesh: the devices.
    plan: of the state.
  """

  config: Config
  corpus: Corpus
  inputs: Inputs
  workdir: Workdir
  mesh: jax.sharding.Mesh
  plan: StatePlan

  @classmethod
  def prepare(
    cls, config: Config, corpus: Corpus, inputs: Inputs, workdir: Workdir
  ) -> 'NeuralRun':
    """Lays the run out on the mesh of the config."""
    mesh = make_mesh(config.mesh)
    check_mesh(config, mesh)
    plan = plan_neural(
      config,
      corpus.label_space,
      inputs.vocab_size,
      mesh,
      workdir.architecture(),
    )
    return cls(config, corpus, inputs, workdir, mesh, plan)

  def scorer(self) -> ModelScorer:
    """A scorer that has no parameters yet."""
    n_labels = scored_labels(self.config.model, self.corpus.label_space)
    kind = self.config.train.loss.score_kind
    recall = self.config.eval.recall
    return ModelScorer(
      self.plan.graphdef, None, self.mesh, n_labels, kind, recall
    )

  def train(
    self,
    scorer: ModelScorer,
    preemption: Preemption,
    profile: tuple[int, int] | None = None,
  ) -> Position:
    """Trains from where the workdir stands to the end.

    Args:
      scorer: judges on dev; its parameters are set by that.
      preemption: entered; SIGTERM saves the state first.
      profile: first and last step to trace, in the workdir's profile/.

    Returns:
      Where training ended; its checkpoint is on disk.

    Raises:
      UserError: the loss or a gradient is not finite.
      Preempted: asked to stop; the state is saved.
    """
    config, corpus = self.config.train, self.corpus
    batches = self.inputs.train_batches(
      corpus.split('train'), corpus.label_space.n_trained
    )
    iterator = iter(batches.dataset())
    judge: Judge | None = None
    if 'dev' in corpus.splits:
      judge = dev_judge(scorer, self.inputs, corpus)
    with contextlib.ExitStack() as parts:
      # Left last: what is being saved is on disk before the signal tells.
      parts.enter_context(preemption.deferred())
      checkpoints = parts.enter_context(
        Checkpoints(self.workdir.checkpoints, config.keep)
      )
      state, at = self._start(checkpoints, iterator)
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
          MetricWriter(self.workdir.path, at.step, at.judged)
        ),
        progress=parts.enter_context(TrainingProgress(at.step, config.steps)),
        profile=parts.enter_context(Profile(self.workdir.profile, profile)),
        preemption=preemption,
      )
      _, at = loop.run(state, iterator, at)
      return at

  def _loss_weights(self) -> LabelWeights | None:
    """The weights of the labels it scores, on the mesh; None: all alike."""
    config, space = self.config, self.corpus.label_space
    weights = config.train.label_weights.build(
      space.train_counts[: scored_labels(config.model, space)],
      space.n_train,
      config.eval.propensity,
    )
    model = nnx.merge(self.plan.graphdef, self.plan.abstract.params)
    return place_weights(weights, self.mesh, model.head.axes)

  def _start(
    self, checkpoints: Checkpoints, iterator: grain.DatasetIterator
  ) -> tuple[TrainState, Position]:
    """The newest checkpoint, or a fresh state, or a warm start."""
    if checkpoints.steps:
      step = checkpoints.steps[-1]
      state, meta = checkpoints.restore(step, self.plan.abstract, iterator)
      at = Position(**meta)
      if is_host0():
        more = at.step < self.config.train.steps and not at.stopped
        logging.info(
          '%s at step %d of %d',
          'resuming' if more else 'training was finished',
          at.step,
          self.config.train.steps,
        )
      return state, at
    key = jax.random.fold_in(jax.random.key(self.config.seed), 2**31)
    at, source = Position(), self.config.train.init_from
    with jax.set_mesh(self.mesh):
      state = self.plan.init(key)
    embedding, vocab = self.config.model.embedding, self.inputs.vocab
    state, found = start_words(state, embedding, vocab)
    state = start_encoder(state, self.config)
    describer = None
    if source:
      space = self.corpus.label_space
      state, describer = warm_start(state, source, space, self.inputs)
    if self.config.model.head.describes:
      state = self._described(state, found, describer)
    state = self.plan.start_averages(state)
    if source:
      # The other run may go on: its best would be another one next time.
      meta = dataclasses.asdict(at)
      checkpoints.save(state, at.step, iterator, meta, at.best_step)
    # The first step must not overlap with it on several CPU devices.
    return jax.block_until_ready(state), at

  def _described(
    self,
    state: TrainState,
    found: np.ndarray | None,
    describer: Workdir | None,
  ) -> TrainState:
    """A fresh state with descriptors, of the words that it begins with.

    Args:
      state: with its word vectors, be they random, pretrained or another run's.
      found: as of start_words.
      describer: as of warm_start.
    """
    model, vocab = self.config.model, self.inputs.vocab
    space = self.corpus.label_space
    labels = space.labels[: scored_labels(model, space)]
    if vocab is None:
      return start_descriptors(state, label_features(labels, self.config))
    if self.config.data.tokens.pretrained:
      names = start_name_encoder(
        state, self.workdir, model.head.descriptor, describer
      )
      return start_descriptors(state, names.encode(labels))
    words = descriptor_words(state, vocab, found, describer)
    if is_host0():
      save_words(self.workdir.word_vectors, words)
    encoder = DescriptorEncoder.of(labels, model.head.descriptor, vocab, words)
    return start_descriptors(state, encoder.encode(labels))

  def _describe(
    self, batches: TrainBatches, step: int, doc_B: np.ndarray
  ) -> str:
    """Epoch, batch and documents of a step, for an error; all hosts call."""
    if jax.process_count() > 1:
      doc_B = multihost_utils.process_allgather(doc_B)
    ids = self.corpus.splits['train'].ids
    # Several processes may have read the same.
    read = dict.fromkeys(np.ravel(doc_B).tolist())
    names = [ids[doc] for doc in read if doc != PAD]
    epoch, batch = divmod(step - 1, batches.steps_per_epoch)
    more = len(names) - _SHOWN
    return (
      f'epoch {epoch}, batch {batch}, documents {", ".join(names[:_SHOWN])}'
      + (f' and {more} more' if more > 0 else '')
    )
