"""Runs the training loop: takes steps, logs, judges, saves and stops."""

import collections
from collections.abc import Callable
import dataclasses
import math
import time
from typing import Any

from flax import nnx
import grain
import jax
from jax.sharding import NamedSharding, PartitionSpec
import numpy as np
import optax

from xjax.core.errors import Preempted, UserError
from xjax.core.mesh import put_batch, share_of
from xjax.networks.batch import TokenBatch
from xjax.train.checkpoint import Checkpoints
from xjax.train.neural_train import NeuralTrain
from xjax.train.preemption import Preemption
from xjax.train.run_record import device_memory, peak_memory
from xjax.train.state import TrainState
from xjax.train.step import StepMetrics, TrainStep
from xjax.train.writers import MetricWriter, Profile, TrainingProgress


@dataclasses.dataclass(frozen=True)
class Position:
  """Holds the position of the loop, saved as the meta of a checkpoint."""

  step: int = 0  # optimizer steps taken
  loss_sum: float = 0.0  # of the losses since the last log line
  loss_count: int = 0  # number of losses in loss_sum
  judged: int = 0  # step of the last judging (evaluation on dev)
  best_step: int | None = None  # None before the first judging
  best_value: float | None = None  # of the parameters' mean, if it was judged
  misses: int = 0  # number of judgings since the best one
  stopped: bool = False  # whether patience has run out

  def after_judging(self, value: float, patience: int) -> 'Position':
    """Returns the position after judging; patience 0 never stops early."""
    # Lists that are equally good may differ in the last bits of their means.
    if self.best_value is None or value > self.best_value + 1e-12:
      return dataclasses.replace(
        self, judged=self.step, best_step=self.step, best_value=value, misses=0
      )
    misses = self.misses + 1
    stopped = 0 < patience <= misses
    return dataclasses.replace(
      self, judged=self.step, misses=misses, stopped=stopped
    )


SliceMetrics = dict[str, dict[str, Any]]  # {slice: {metric: value}}

# Computes the metrics of parameters on dev. The second argument is a function
# that is called between batches.
Judge = Callable[[nnx.State, Callable[[], None]], SliceMetrics]

_Pending = collections.deque[tuple[int, StepMetrics, np.ndarray]]


@dataclasses.dataclass
class Loop:
  """Runs the steps of training; other objects log, judge and save.

  At each step, the loop first logs, then judges, then saves. So the records of
  all steps up to a checkpoint are written before the checkpoint. A run that is
  killed and resumed writes the same records as an uninterrupted run.
  """

  config: NeuralTrain
  train_step: TrainStep
  mesh: jax.sharding.Mesh
  key: jax.Array  # of all steps
  schedule: optax.Schedule  # learning rate by step, for the log
  # Takes a step and its doc_B, and returns a text about these documents.
  describe: Callable[[int, np.ndarray], str]
  judge: Judge | None  # None without a dev split
  checkpoints: Checkpoints
  writer: MetricWriter
  progress: TrainingProgress
  profile: Profile
  preemption: Preemption  # its context has been entered

  def run(
    self, state: TrainState, iterator: grain.DatasetIterator, at: Position
  ) -> tuple[TrainState, Position]:
    """Trains from a state, which is donated, to the end or until patience ends.

    `iterator` has yielded at.step batches, with the rows of this process only.
    A UserError says that the loss or a gradient is not finite; Preempted, that
    SIGTERM or Ctrl-C came and that the state is saved.
    """
    # Steps must not overlap on several CPU devices: the devices share few
    # threads, and overlapping steps would deadlock.
    serial = jax.default_backend() == 'cpu' and self.mesh.size > 1
    readers = share_of(self.mesh).readers
    pending: _Pending = collections.deque()
    self._saved = at if at.step else None
    self._clock, self._documents = time.monotonic(), 0
    # If the run was stopped between a step and the judging of this step, the
    # judging comes first.
    at = self._judge_and_save(state, iterator, at)
    everywhere = NamedSharding(self.mesh, PartitionSpec())
    key = jax.jit(lambda key: key, out_shardings=everywhere)(self.key)
    with jax.set_mesh(self.mesh):
      while at.step < self.config.steps and not at.stopped:
        with self.profile.step(at.step + 1):
          batch: TokenBatch = next(iterator)
          placed = put_batch(batch, self.mesh)
          # The guard raises an error if a step would copy an array to, from or
          # between devices without an explicit request.
          with jax.transfer_guard('disallow'):
            state, metrics = self.train_step(state, placed, key)
        at = dataclasses.replace(at, step=at.step + 1)
        self.profile.end(at.step, (state, metrics))
        if serial:
          jax.block_until_ready((state, metrics))
        pending.append((at.step, metrics, batch.doc_B))
        self._documents += int(batch.mask_B.sum()) * readers
        preempted = self.preemption.reached()
        due = preempted or self._due(at.step)
        at = self._check_losses(pending, at, 0 if due else 1)
        self.progress.update()
        if at.step % self.config.log_every == 0:
          at = self._log(at)
        if preempted:
          self._leave(state, iterator, at)
        at = self._judge_and_save(state, iterator, at)
    return state, at

  def _due(self, step: int) -> bool:
    config = self.config
    periods = (config.log_every, config.judge_every, config.checkpoint_every)
    return step >= config.steps or any(step % n == 0 for n in periods)

  def _check_losses(
    self, pending: _Pending, at: Position, lag: int
  ) -> Position:
    """Checks and sums the losses of all steps except the last `lag`."""
    # Fetching a loss waits for its step. With a lag of one step, the device
    # computes the next step meanwhile. Before logging and saving, the lag is 0.
    total, count = at.loss_sum, at.loss_count
    while len(pending) > lag:
      step, metrics, doc_B = pending.popleft()
      loss, norm = float(metrics.loss), float(metrics.grad_norm)
      if not math.isfinite(loss) or not math.isfinite(norm):
        raise UserError(
          f'training stopped at step {step}: loss {loss}, gradient norm '
          f'{norm}; '
          f'{self.describe(step, doc_B)}. The last checkpoint is from before '
          'this step. Start a new run in a new workdir, with a lower '
          'train.learning_rate or with train.clip_norm. With train.init_from, '
          'the new run can start from that checkpoint'
        )
      total, count, self._norm = total + loss, count + 1, norm
    return dataclasses.replace(at, loss_sum=total, loss_count=count)

  def _log(self, at: Position) -> Position:
    loss = at.loss_sum / at.loss_count
    seconds = time.monotonic() - self._clock
    speed = self._documents / seconds
    self.writer.write(
      'train',
      at.step,
      loss=loss,
      learning_rate=float(self.schedule(at.step - 1)),
      grad_norm=self._norm,
      documents_per_second=speed,
      seconds=seconds,
      **_memory(),
    )
    self.progress.show(at.step, loss, speed)
    self._clock, self._documents = time.monotonic(), 0
    return dataclasses.replace(at, loss_sum=0.0, loss_count=0)

  def _judge_and_save(
    self, state: TrainState, iterator: grain.DatasetIterator, at: Position
  ) -> Position:
    """Judges and saves, if due; the speed in the log leaves this out."""
    start = time.monotonic()
    last = at.step >= self.config.steps
    judging = last or at.step % self.config.judge_every == 0
    if self.judge and at.judged < at.step and judging:
      try:
        metrics = self._judge_parameters(state, at.step)
      except Preempted:
        # _leave raises an error, so the next line has metrics.
        self._leave(state, iterator, at)
      at = self._record_metrics(metrics, at, time.monotonic() - start)
      is_best = at.best_step == at.step
    else:
      is_best = False
    regular = at.step and at.step % self.config.checkpoint_every == 0
    if is_best or regular or last or at.stopped:
      self._save(state, iterator, at)
    self._clock += time.monotonic() - start
    return at

  def _judge_parameters(
    self, state: TrainState, step: int
  ) -> dict[str, SliceMetrics]:
    """Judges the parameters, and also their mean if the mean differs."""
    check = self.preemption.check
    if not self.config.average.differs(step):
      return {'metrics': self.judge(state.params, check)}
    return {
      'metrics': self.judge(state.averaged_params(), check),
      'raw_metrics': self.judge(state.params, check),
    }

  def _record_metrics(
    self, metrics: dict[str, SliceMetrics], at: Position, seconds: float
  ) -> Position:
    slice_name, _, metric = self.config.best_metric.partition('/')
    value = metrics['metrics'][slice_name][metric]
    if value is None:
      raise UserError(
        f'config.train.best_metric={self.config.best_metric} has no value on '
        f'dev at step {at.step}; choose another metric, or a larger eval.depth'
      )
    self.writer.write('judge', at.step, split='dev', **metrics, seconds=seconds)
    at = at.after_judging(value, self.config.patience)
    text = f'step {at.step}: dev {self.config.best_metric} {value:.4f}'
    if 'raw_metrics' in metrics:
      raw = metrics['raw_metrics'][slice_name][metric]
      text += f' of averaged weights ({raw:.4f} of raw weights)'
    if at.best_step == at.step:
      text += ', the best so far'
    else:
      text += f', the best was {at.best_value:.4f} at step {at.best_step}'
    if at.stopped:
      text += (
        f'; judgings without a better value: {at.misses}, so training stops'
      )
    self.progress.say(text)
    return at

  def _save(
    self, state: TrainState, iterator: grain.DatasetIterator, at: Position
  ) -> None:
    if at == self._saved:
      return
    self.writer.sync()
    meta = dataclasses.asdict(at)
    self.checkpoints.save(state, at.step, iterator, meta, at.best_step)
    self._saved = at

  def _leave(
    self, state: TrainState, iterator: grain.DatasetIterator, at: Position
  ) -> None:
    self._save(state, iterator, at)
    self.checkpoints.wait()
    self.preemption.leave(
      f'saved step {at.step}; start the run again to resume'
    )


def _memory() -> dict[str, int]:
  device = device_memory()
  on_device = {} if device is None else {'device_memory': device}
  return {'peak_memory': peak_memory(), **on_device}
