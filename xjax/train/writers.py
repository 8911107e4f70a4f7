"""What a run tells while it trains: metrics.jsonl, TensorBoard, the terminal.

Host 0 alone writes; elsewhere all but a profile does nothing.
"""

from collections.abc import Iterator, Mapping
import contextlib
import json
import os
import pathlib
import time
import types
from typing import Any

from absl import logging
import jax
import tensorboardX
import tqdm

from xjax.core.atomic import atomic_write
from xjax.core.distributed import is_host0
from xjax.core.progress import Progress

# Fields of records that differ from run to run.
CLOCK_FIELDS = ('documents_per_second', 'seconds')


class MetricWriter(contextlib.AbstractContextManager):
  """Appends records to metrics.jsonl and TensorBoard.

  A record is `{"kind": "train" | "judge", "step": int, ...}`; a judge record's
  `metrics` are of the averaged weights once there are any, with `raw_metrics`
  of the raw ones beside them, and else of the raw ones. Steps never go
  down in the file: opening it for a run resumed at a step cuts off what a
  killed run wrote after that.
  """

  def __init__(
    self, workdir: str | os.PathLike, step: int, judged: int
  ) -> None:
    """Opens the files of a run that is at this step.

    Args:
      workdir: of the run.
      step: optimizer steps taken.
      judged: step of the last judging that the run knows of; it is less than
        step, too, where the state was saved before it was judged.
    """
    self._file = self._board = None
    if not is_host0():
      return
    workdir = pathlib.Path(workdir)
    path = workdir / 'metrics.jsonl'
    if path.exists():
      _cut(path, {'train': step, 'judge': judged})
    self._file = path.open('a', encoding='utf-8')
    self._board = tensorboardX.SummaryWriter(
      str(workdir / 'tb'), purge_step=step + 1, write_to_disk=True
    )

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: types.TracebackType | None,
  ) -> None:
    if self._file:
      self._file.close()
      self._board.close()

  def write(self, kind: str, step: int, **values: Any) -> None:
    """Adds a record.

    Args:
      kind: 'train' or 'judge'.
      step: of the run.
      **values: JSON; numbers, at any depth, go to TensorBoard as well, named
        by their keys.
    """
    if not self._file:
      return
    record = {'kind': kind, 'step': step, **values}
    json.dump(record, self._file, allow_nan=False)
    self._file.write('\n')
    self._file.flush()
    for name, value in _scalars(values, kind):
      self._board.add_scalar(name, value, step)

  def sync(self) -> None:
    """Puts all records on disk, before the checkpoint that counts on them."""
    if self._file:
      os.fsync(self._file.fileno())


class TrainingProgress(Progress):
  """A bar with loss and speed on a terminal; else lines with the time left."""

  leave = True
  smoothing = 0.05

  def __init__(self, step: int, steps: int) -> None:
    """Begins at a step, towards a number of steps."""
    super().__init__('training', steps, done=step, unit='step')
    self._start, self._first, self._steps = time.monotonic(), step, steps

  def show(self, step: int, loss: float, documents_per_second: float) -> None:
    """Tells how it goes."""
    text = f'loss {loss:.4f}, {documents_per_second:.0f} documents/s'
    if self._bar is not None:
      self._bar.set_postfix_str(text)
      return
    pace = (time.monotonic() - self._start) / max(1, step - self._first)
    left = tqdm.tqdm.format_interval(pace * (self._steps - step))
    self.say(f'step {step}/{self._steps}: {text}, {left} left')


class Profile(contextlib.AbstractContextManager):
  """Traces some steps with jax.profiler, on every process; left, it is written.

  TensorBoard's profile plugin, XProf and Perfetto show such traces.
  """

  def __init__(
    self, folder: str | os.PathLike, steps: tuple[int, int] | None
  ) -> None:
    """Prepares a trace in a folder, of the first to the last of these steps."""
    self._folder = os.fspath(folder)
    self._steps = range(0) if steps is None else range(steps[0], steps[1] + 1)
    self._runs = self._traced = False

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: types.TracebackType | None,
  ) -> None:
    self._stop()
    if self._steps and not self._traced:
      logging.warning('none of the steps to be profiled was taken')

  @contextlib.contextmanager
  def step(self, number: int) -> Iterator[None]:
    """Traces what is done within, if this step is to be traced."""
    if number in self._steps and not self._runs:
      jax.profiler.start_trace(self._folder)
      self._runs = self._traced = True
    with jax.profiler.StepTraceAnnotation('train', step_num=number):
      yield

  def end(self, number: int, result: Any) -> None:
    """Ends the trace after its last step, once the step's result is there."""
    if self._runs and number == self._steps[-1]:
      jax.block_until_ready(result)
      self._stop()

  def _stop(self) -> None:
    if self._runs:
      self._runs = False
      jax.profiler.stop_trace()
      logging.info('steps were profiled: %s', self._folder)


def _cut(path: pathlib.Path, last: Mapping[str, int]) -> None:
  """Keeps the whole records up to the last step of their kind."""
  kept = []
  with path.open(encoding='utf-8', errors='replace') as file:
    for line in file:
      try:
        record = json.loads(line)
        if line.endswith('\n') and record['step'] <= last[record['kind']]:
          kept.append(line)
      except (ValueError, KeyError, TypeError):
        continue  # cut short by the kill
  with atomic_write(path) as file:
    file.writelines(kept)


def _scalars(values: Mapping[str, Any], path: str) -> list[tuple[str, float]]:
  found = []
  for name, value in values.items():
    if isinstance(value, Mapping):
      found += _scalars(value, f'{path}/{name}')
    elif isinstance(value, int | float):
      found.append((f'{path}/{name}', value))
  return found
