"""Reports training to metrics.jsonl, TensorBoard, the terminal and profiles."""

from collections.abc import Iterator, Mapping
import contextlib
import json
import os
import pathlib
import socket
import struct
import sys
import time
from typing import Any

from absl import logging
import jax
import tqdm

from xjax.core.atomic import atomic_write, writing
from xjax.core.distributed import is_host0
from xjax.core.progress import Progress
from xjax.judge.criteria import main_metrics
from xjax.judge.judge import PROTOCOL
from xjax.train.run_record import RunRecord

# tensorboardX imports PyTorch if it is installed, which takes longer than
# training a small model. Writing numbers does not need PyTorch.
_torch = sys.modules.setdefault('torch', None)  # None blocks an import
try:
  from tensorboardX.proto.event_pb2 import Event, SessionLog
  from tensorboardX.record_writer import masked_crc32c
  from tensorboardX.summary import hparams, scalar
finally:
  if _torch is None:
    del sys.modules['torch']

# Fields of records that depend on the speed of the machine. Two runs of the
# same config can differ in these fields.
CLOCK_FIELDS = (
  *('documents_per_second', 'seconds', 'peak_memory', 'device_memory'),
)
# Fields of judge records that hold {slice: {metric: value}}.
_METRICS = 'metrics', 'raw_metrics'


class MetricWriter(contextlib.AbstractContextManager):
  """Appends records to metrics.jsonl and TensorBoard.

  A record is `{"kind": "train" | "judge", "step": int, ...}`. TensorBoard gets
  the settings of the run and, from each slice, only the main metrics.

  If averaged weights are judged, `metrics` of a judge record belong to the
  averaged weights, and `raw_metrics` to the raw weights. Otherwise, `metrics`
  belong to the raw weights, and there are no `raw_metrics`.

  Steps in the file never decrease. When a run is resumed at a step, the records
  that a killed run wrote after this step are removed.
  """

  def __init__(
    self,
    workdir: str | os.PathLike,
    step: int,
    judged: int,
    config: Mapping[str, Any] | None = None,
  ) -> None:
    """Opens the files of a run after `step` steps."""
    # `judged` is the step of the last judging in the checkpoint. It is less
    # than `step` if this step was not judged before the save.
    self._file = self._board = None
    if not is_host0():
      return
    self._path = pathlib.Path(workdir) / 'metrics.jsonl'
    with writing(self._path):
      if self._path.exists():
        _cut(self._path, {'train': step, 'judge': judged})
      self._file = self._path.open('a', encoding='utf-8')
    try:
      self._board = _Board(self._path.with_name('tb'), step + 1, config)
    except BaseException:
      self._file.close()
      raise

  def __exit__(self, *error: object) -> None:
    if self._file:
      with writing(self._path), self._file:
        self._board.close()

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
    shown = dict(values)
    for name in _METRICS:
      if name in shown:
        shown[name] = self._board.main(shown[name])
    self._board.add(dict(_scalars(shown, kind)), step)

  def sync(self) -> None:
    """Writes all records to disk; called before each checkpoint is saved."""
    if self._file:
      with writing(self._path):
        os.fsync(self._file.fileno())


class _Board:
  """Writes numbers for TensorBoard.

  tensorboardX's SummaryWriter writes in a thread. If the disk is full, the
  thread prints a traceback and ends, and training waits for the thread forever.
  This class writes in the thread that calls it, so errors reach the caller.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    first_step: int,
    config: Mapping[str, Any] | None = None,
  ) -> None:
    # TensorBoard reads the files of a folder in the order of their names. Two
    # files of one second differ in the digits after the point.
    name = f'events.out.tfevents.{time.time():.6f}.{socket.gethostname()}'
    self.path = folder / name
    self._best_metric = ''
    with writing(self.path):
      folder.mkdir(parents=True, exist_ok=True)
      self._file = self.path.open('wb')
    # TensorBoard then hides what earlier files have from first_step on.
    restart = SessionLog(status=SessionLog.START)
    self._write(Event(file_version='brain.Event:2'))
    self._write(Event(step=first_step, session_log=restart))
    if config is not None:
      self._best_metric = config['train'].get('best_metric', '')
      settings = _settings(config, '')
      # In TensorBoard, as in its tags, an underscore replaces @.
      best = f'judge/metrics/{self._best_metric}'.replace('@', '_')
      names = {best: 0} if self._best_metric else {}
      for summary in hparams(settings, names)[:2]:
        self._write(Event(summary=summary))

  def main(self, slices: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the main metrics of each slice, and the config's best metric."""
    slice_name, _, metric = self._best_metric.partition('/')
    names = {name: dict.fromkeys(main_metrics(slices[name])) for name in slices}
    if metric in slices.get(slice_name, {}):
      names[slice_name][metric] = None
    return {
      name: {metric: slices[name][metric] for metric in names[name]}
      for name in slices
    }

  def add(self, scalars: Mapping[str, float], step: int) -> None:
    for name, value in scalars.items():
      self._write(Event(step=step, summary=scalar(name, value)))
    with writing(self.path):
      self._file.flush()

  def close(self) -> None:
    with writing(self.path):
      self._file.close()

  def _write(self, event: Event) -> None:
    event.wall_time = time.time()
    data = event.SerializeToString()
    size = struct.pack('<Q', len(data))
    with writing(self.path):
      for part in (size, data):
        self._file.write(part + struct.pack('<I', masked_crc32c(part)))


def write_results(
  workdir: str | os.PathLike,
  config: Mapping[str, Any],
  metrics: Mapping[str, Mapping[str, Any]],
  record: RunRecord,
) -> None:
  """Writes the main results of a finished run to TensorBoard, by host 0."""
  if not is_host0():
    return
  board = _Board(pathlib.Path(workdir) / 'tb', record.steps + 1, config)
  for split, protocols in metrics.items():
    scalars = dict(_scalars(board.main(protocols[PROTOCOL]), split))
    board.add(scalars, record.steps)
  costs = 'seconds', 'peak_memory', 'device_memory', 'model_bytes'
  values = {name: getattr(record, name) for name in costs}
  board.add(dict(_scalars(values, 'run')), record.steps)
  board.close()


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


def _scalars(values: Mapping[str, Any], path: str) -> list[tuple[str, float]]:
  scalars = []
  for name, value in values.items():
    if isinstance(value, Mapping):
      scalars += _scalars(value, f'{path}/{name}')
    elif isinstance(value, int | float):
      scalars.append((f'{path}/{name}', value))
  return scalars


def _settings(value: Any, path: str) -> dict[str, str | float | bool]:
  """Returns the fields of a config by dotted path; lists become JSON."""
  if isinstance(value, Mapping):
    fields = {}
    for name, inner in value.items():
      fields |= _settings(inner, f'{path}.{name}'.removeprefix('.'))
    return fields
  if value is None:
    return {}
  simple = isinstance(value, str | int | float)
  return {path: value if simple else json.dumps(value)}
