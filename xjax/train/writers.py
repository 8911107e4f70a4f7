"""Reports training to metrics.jsonl, TensorBoard, the terminal and profiles."""

from collections.abc import Iterable, Iterator, Mapping
import contextlib
import json
import os
import pathlib
import sys
import time
from typing import Any

from absl import logging
from flax.traverse_util import flatten_dict
import jax
import tqdm

from xjax.core.atomic import atomic_write, writing
from xjax.core.distributed import is_host0
from xjax.core.progress import Progress
from xjax.judge.criteria import main_metrics

# tensorboardX imports PyTorch if it is installed, which takes longer than
# training a small model. Writing numbers does not need PyTorch.
_torch = sys.modules.setdefault('torch', None)  # None blocks an import
try:
  from tensorboardX.event_file_writer import EventsWriter
  from tensorboardX.proto.event_pb2 import Event, SessionLog
  from tensorboardX.summary import scalar
finally:
  if _torch is None:
    del sys.modules['torch']

# Fields of judge records that hold {slice: {metric: value}}.
_METRICS = 'metrics', 'raw_metrics'


class MetricWriter(contextlib.AbstractContextManager):
  """Appends records to metrics.jsonl and TensorBoard.

  A record is `{"kind": "train" | "judge", "step": int, ...}`. From each slice,
  TensorBoard gets only the main metrics and `best_metric`, 'slice/metric'.

  If averaged weights are judged, `metrics` of a judge record belong to them,
  and `raw_metrics` to the raw weights.

  Steps in the file never decrease. When a run is resumed at a step, the records
  that a killed run wrote after this step are removed.
  """

  # tensorboardX's SummaryWriter writes in a thread. If the disk is full, the
  # thread prints a traceback and ends, and training waits for it forever.
  # EventsWriter writes in the thread that calls it, so errors reach the caller.

  def __init__(
    self,
    workdir: str | os.PathLike,
    step: int,
    judged: int,
    best_metric: str = '',
  ) -> None:
    """Opens the files of a run after `step` steps."""
    # `judged` is the step of the last judging in the checkpoint. It is less
    # than `step` if this step was not judged before the save.
    self._file = None
    if not is_host0():
      return
    self._path = pathlib.Path(workdir) / 'metrics.jsonl'
    self._board, self._best_metric = self._path.with_name('tb'), best_metric
    with writing(self._path):
      if self._path.exists():
        _cut(self._path, {'train': step, 'judge': judged})
      self._file = self._path.open('a', encoding='utf-8')
    try:
      with writing(self._board):
        self._board.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files of a folder in the order of their names.
        # Two files of one second differ in their last digits.
        prefix, suffix = f'{self._board}/events', f'.{time.time_ns()}'
        self._events = EventsWriter(prefix, suffix)
      # TensorBoard then hides what earlier files have after this step.
      restart = SessionLog(status=SessionLog.START)
      self._add_events([Event(step=step + 1, session_log=restart)])
    except BaseException:
      self._file.close()
      raise

  def __exit__(self, *error: object) -> None:
    if self._file:
      with writing(self._path), self._file, writing(self._board):
        self._events.close()

  def write(self, kind: str, step: int, **values: Any) -> None:
    """Adds a record to metrics.jsonl, and its numbers to TensorBoard."""
    # The name of a number is `kind` and the keys to it, joined by slashes.
    if not self._file:
      return
    record = {'kind': kind, 'step': step, **values}
    line = json.dumps(record, allow_nan=False)
    with writing(self._path):
      self._file.write(f'{line}\n')
      self._file.flush()
    shown = {
      name: self._main(value) if name in _METRICS else value
      for name, value in values.items()
    }
    self._add_events(
      Event(step=step, summary=scalar(name, value))
      for name, value in flatten_dict({kind: shown}, sep='/').items()
      if isinstance(value, int | float)
    )

  def sync(self) -> None:
    """Writes all records to disk; called before each checkpoint is saved."""
    if self._file:
      with writing(self._path):
        os.fsync(self._file.fileno())

  def _add_events(self, events: Iterable[Event]) -> None:
    with writing(self._board):
      for event in events:
        event.wall_time = time.time()
        self._events.write_event(event)
      self._events.flush()

  def _main(self, slices: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    slice_name, _, metric = self._best_metric.partition('/')
    return {
      name: {
        key: value
        for key, value in values.items()
        if key in main_metrics(values) or (name, key) == (slice_name, metric)
      }
      for name, values in slices.items()
    }


class TrainingProgress(Progress):
  """Shows a bar on a terminal; otherwise logs lines with the time left."""

  leave = True
  smoothing = 0.05

  def __init__(self, step: int, steps: int) -> None:
    """Starts the bar at a step; `steps` are those of the whole run."""
    super().__init__('training', steps, done=step, unit='step')
    self._start, self._first, self._steps = time.monotonic(), step, steps

  def show(self, step: int, loss: float, documents_per_second: float) -> None:
    text = f'loss {loss:.4f}, {documents_per_second:.0f} documents/s'
    if self._bar is not None:
      self._bar.set_postfix_str(text)
      return
    each = (time.monotonic() - self._start) / max(1, step - self._first)
    left = tqdm.tqdm.format_interval(each * (self._steps - step))
    self.say(f'step {step}/{self._steps}: {text}, {left} left')


class Profile(contextlib.AbstractContextManager):
  """Traces some steps with jax.profiler, on every process."""

  def __init__(
    self, folder: str | os.PathLike, steps: tuple[int, int] | None
  ) -> None:
    """Prepares a trace of first to last step; None traces none."""
    self._folder = os.fspath(folder)
    self._steps = range(0) if steps is None else range(steps[0], steps[1] + 1)
    self._runs = self._traced = False

  def __exit__(self, *error: object) -> None:
    self._stop()
    if self._steps and not self._traced:
      logging.warning(
        'no profile was written: training took none of the steps %d to %d',
        self._steps[0],
        self._steps[-1],
      )

  @contextlib.contextmanager
  def step(self, number: int) -> Iterator[None]:
    if number in self._steps and not self._runs:
      jax.profiler.start_trace(self._folder)
      self._runs = self._traced = True
    with jax.profiler.StepTraceAnnotation('train', step_num=number):
      yield

  def end(self, number: int, result: Any) -> None:
    """Ends the trace after `result`, if `number` is the last step to trace."""
    if self._runs and number == self._steps[-1]:
      jax.block_until_ready(result)
      self._stop()

  def _stop(self) -> None:
    if self._runs:
      self._runs = False
      jax.profiler.stop_trace()
      logging.info('profile of the steps: %s', self._folder)


def _cut(path: pathlib.Path, last: Mapping[str, int]) -> None:
  """Removes broken lines, and records after the last step of their kind."""
  kept = []
  with path.open(encoding='utf-8', errors='replace') as file:
    for line in file:
      try:
        record = json.loads(line)
        if line.endswith('\n') and record['step'] <= last[record['kind']]:
          kept.append(line)
      except (ValueError, KeyError, TypeError, RecursionError):
        continue  # the process was killed while it wrote this line
  with atomic_write(path) as file:
    file.writelines(kept)
