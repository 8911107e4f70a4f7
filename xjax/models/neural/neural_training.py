"""Assembles the first state and the training loop of a run."""

from collections.abc import Callable
import contextlib
import dataclasses
from typing import Any

from absl import logging
from flax import nnx
import grain
import jax
from jax.experimental import multihost_utils
import numpy as np

from xjax.core.distributed import is_host0
from xjax.core.progress import Progress
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.data.label_trees.levels import LabelLevels
from xjax.data.schema import Corpus
from xjax.judge.calibration import cross_fitted
from xjax.judge.judge import PROTOCOL, judge
from xjax.judge.make_predictions import predict
from xjax.losses.loss import LabelWeights
from xjax.models.contract import DEV, Config, Run
from xjax.models.neural.level_stages import LEVEL
from xjax.models.neural.neural_scorer import NeuralScorer
from xjax.models.neural.proposals import first_rows
from xjax.models.neural.proposer import Proposer
from xjax.networks.pretrained.descriptor_encoder import DescriptorEncoder
from xjax.train.batches.candidates import TrainShortlists
from xjax.train.batches.dense import TrainBatches
from xjax.train.batches.inputs import read_label_vectors
from xjax.train.checkpoint import Checkpoints
from xjax.train.initial.descriptors import (
  descriptor_word_vectors,
  save_words,
  start_descriptors,
  start_name_encoder,
  start_view_names,
)
from xjax.train.initial.label_vectors import start_label_vectors
from xjax.train.initial.pretrained_encoder import start_encoder
from xjax.train.initial.start_words import start_words
from xjax.train.initial.warm_start import LoadedParameters, warm_start
from xjax.train.loop import Judge, Loop, Position
from xjax.train.optimizer import make_optimizer, make_schedule
from xjax.train.state import TrainState, with_rows
from xjax.train.step import make_train_step, place_weights
from xjax.train.workdir import Workdir
from xjax.train.writers import MetricWriter, Profile, TrainingProgress

_SHOWN = 16  # an error lists at most this many document ids


@dataclasses.dataclass(frozen=True, eq=False)
class NeuralTraining:
  run: Run
  corpus: Corpus
  scorer: NeuralScorer  # gets the parameters to judge on dev
  proposer: Proposer | None  # None if all labels are scored
  shortlists: TrainShortlists | None  # in training; None for all labels
  levels: LabelLevels | None  # of clusters, if the head has levels

  @property
  def config(self) -> Config:
    return self.run.config

  def train(self) -> Position:
    """Trains to the last step, from the newest checkpoint if there is one.

    The checkpoint of the position that is returned is on disk; so is the state
    after Preempted.
    """
    config, corpus = self.config.train, self.corpus
    preemption, folder = self.run.preemption, self.run.folder
    batches = self.scorer.reader.train_batches(
      corpus.split('train'),
      corpus.label_space.n_trained,
      batch_size=config.batch_size,
      seed=self.config.seed,
      accumulate=config.accumulate,
      shortlists=self.shortlists,
    )
    iterator = iter(batches.dataset())
    judge_dev = self._dev_judge() if DEV in corpus.splits else None
    with contextlib.ExitStack() as parts:
      # A signal must not end the process before the checkpoints are closed,
      # because saves may not be on disk until then. So the context of
      # preemption is entered first and left last.
      parts.enter_context(preemption.deferred())
      checkpoints = parts.enter_context(
        Checkpoints(folder.checkpoints, config.keep)
      )
      with Progress('building the model'):
        state, position = self._start(checkpoints, iterator, preemption.check)
      preemption.check()
      loop = Loop(
        config=config,
        train_step=make_train_step(
          self.scorer.plan,
          make_optimizer(config),
          config.loss.build(),
          self.scorer.mesh,
          config.accumulate,
          self._loss_weights(),
        ),
        mesh=self.scorer.mesh,
        key=jax.random.key(self.config.seed),
        schedule=make_schedule(config),
        describe=lambda step, doc_B: self._describe(batches, step, doc_B),
        judge=judge_dev,
        checkpoints=checkpoints,
        writer=parts.enter_context(
          MetricWriter(
            folder.path, position.step, position.judged, config.best_metric
          )
        ),
        progress=parts.enter_context(
          TrainingProgress(position.step, config.steps)
        ),
        profile=parts.enter_context(Profile(folder.profile, self.run.profile)),
        preemption=preemption,
      )
      _, position = loop.run(state, iterator, position)
      return position

  def _dev_judge(self) -> Judge:
    scorer, config = self.scorer, self.config.eval
    split, space = self.corpus.splits[DEV], self.corpus.label_space
    # The features of dev are computed once, though dev is judged often.
    documents = Documents.of_split(split).remembering()

    def judge_dev(
      params: nnx.State, between: Callable[[], None]
    ) -> dict[str, dict[str, Any]]:
      scorer.params = params
      predictions = predict(
        scorer,
        split,
        space,
        config.depth,
        documents=documents,
        on_block=lambda _: between(),
      )
      # Each fold of dev is calibrated by the other folds, so that the metrics
      # of probabilities are not too good.
      shown_NK = cross_fitted(predictions, config.calibration)
      return judge(predictions, config.criteria(), None, shown_NK)[PROTOCOL]

    return judge_dev

  def _loss_weights(self) -> LabelWeights | None:
    config, space = self.config, self.corpus.label_space
    weights = config.train.label_weights.build(
      space.train_counts[: self.scorer.n_labels],
      space.n_train,
      config.eval.propensity,
    )
    return place_weights(weights, self.scorer.mesh, self.scorer.label_axes)

  def _start(
    self,
    checkpoints: Checkpoints,
    iterator: grain.DatasetIterator,  # is moved to the checkpoint's position
    check: Callable[[], None],  # raises an error if the run has to stop
  ) -> tuple[TrainState, Position]:
    if checkpoints.steps:
      return self._resumed(checkpoints, iterator)
    # 2^31 makes first parameters independent of all steps.
    key = jax.random.fold_in(jax.random.key(self.config.seed), 2**31)
    source, above = self.config.train.init_from, None
    if self.proposer and self.config.model.shortlist.starts:
      above = self.proposer.scorer
      source = str(self.run.folder.stage(LEVEL).path)
    position, plan = Position(), self.scorer.plan
    with jax.set_mesh(self.scorer.mesh):
      state = plan.init(key)
    model, vocab = self.config.model, self.scorer.reader.vocab
    # A warm start replaces words and the encoder, so it comes later.
    state, has_vector = start_words(state, model.embedding, vocab)
    state = start_encoder(state, model)
    taken, space = LoadedParameters(), self.corpus.label_space
    if source:
      state, taken = warm_start(state, source, space, vocab, self.levels)
    # The vectors of labels are trained on the encoder that the run starts with.
    if model.head.pretraining:
      state = start_label_vectors(
        state,
        model,
        seed=self.config.seed,
        hierarchy=model.hierarchy(space),
        tokenizer=vocab,
        architecture=self.run.folder.architecture(),
        taken=taken,
        check=check,
      )
    if above and model.shortlist.bootstrap:
      kernel_LD, bias_L = first_rows(
        above, self.shortlists, self.config, self.corpus
      )
      state = with_rows(state, kernel=kernel_LD, bias=bias_L)
    if model.head.describes:
      state = self._add_descriptors(state, has_vector, taken.descriptor_run)
    state = start_view_names(state, space, vocab)
    state = plan.start_averages(state)
    if source:
      # The state is saved at once. Without this save, a restart would read
      # init_from again, and the best checkpoint of that run may have changed.
      meta = dataclasses.asdict(position)
      checkpoints.save(state, position.step, iterator, meta, position.best_step)
    # On several CPU devices, the first step and the work above share few
    # threads. They would deadlock if they ran at the same time.
    return jax.block_until_ready(state), position

  def _resumed(
    self, checkpoints: Checkpoints, iterator: grain.DatasetIterator
  ) -> tuple[TrainState, Position]:
    step = checkpoints.steps[-1]
    state, meta = checkpoints.restore(step, self.scorer.plan.abstract, iterator)
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

  def _add_descriptors(
    self,
    state: TrainState,
    has_vector: np.ndarray | None,  # of words; from start_words
    descriptor_run: Workdir | None,  # has the descriptors; from warm_start
  ) -> TrainState:
    """Adds the embedded descriptors of labels and concepts to a first state."""
    model, reader = self.config.model, self.scorer.reader
    folder, vocab = self.run.folder, reader.vocab
    space, n_labels = self.corpus.label_space, self.scorer.n_labels
    labels = nodes = space.labels[:n_labels]
    if model.reads_parents:
      nodes = model.hierarchy(space).labels
    # Labels are embedded as without a graph, because other names in a batch
    # change the last bits of a vector.
    parts = labels, nodes[n_labels:]
    # Without a vocabulary, the run reads vectors, of labels too.
    if vocab is None:
      rows = read_label_vectors(
        nodes, self.config.data, reader.dim, model.reads_parents
      )
      return start_descriptors(state, rows[:n_labels], rows[n_labels:])
    if self.config.data.tokens.pretrained:
      names = start_name_encoder(state, folder, model, descriptor_run)
      return start_descriptors(state, *map(names.encode, parts))
    words = descriptor_word_vectors(state, vocab, has_vector, descriptor_run)
    if is_host0():
      with folder.recording(folder.word_vectors):
        save_words(folder.word_vectors, words)
    encoder = DescriptorEncoder.of(labels, model.head.descriptor, vocab, words)
    return start_descriptors(state, *map(encoder.encode, parts))

  def _describe(
    self, batches: TrainBatches, step: int, doc_B: np.ndarray
  ) -> str:
    """Describes a step in an error message; all processes must call this."""
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
