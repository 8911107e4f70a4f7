"""Records what a run has cost: seconds, memory, size, date and version."""

import contextlib
import dataclasses
import datetime
import resource
import sys
import time
import types

from xjax.core.atomic import WriteError, write_json
from xjax.core.distributed import is_host0
from xjax.core.errors import DataError
from xjax.data.files.file_set import read_json
from xjax.train.workdir import Workdir
from xjax.version import __version__


@dataclasses.dataclass(frozen=True)
class RunRecord:
  """Holds what a run has cost; it is saved as run.json.

  Attributes:
    seconds: time of fitting the model, summed over all starts of the run. The
      time since the last start is missing if that start was killed.
    peak_memory: the most memory of a process of the run, in bytes.
    device_memory: the same of an accelerator; None if the device does not tell.
    model_bytes: size of the parameters of a neural model, or of the files of
      another model.
    finished: time of the end, as ISO 8601 in UTC; '' before the end.
    version: version of xjax that wrote the record.
  """

  seconds: float = 0.0
  peak_memory: int = 0
  device_memory: int | None = None
  steps: int = 0
  model_bytes: int = 0
  finished: str = ''
  version: str = __version__

  @classmethod
  def read(cls, workdir: Workdir) -> 'RunRecord | None':
    """Reads run.json; returns None if there is none, as in older workdirs."""
    path = workdir.record
    if not path.is_file():
      return None
    values = read_json(path)
    for field in dataclasses.fields(cls):
      if not _fits(values.get(field.name), field.type):
        raise DataError(
          f'{path}: {field.name} is missing or has a wrong type; remove the '
          'file, which only records what the run has cost'
        )
    names = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: values[name] for name in names})

  def with_time(self, seconds: float) -> 'RunRecord':
    """Adds seconds, and the memory that this process has used so far."""
    device = [x for x in (self.device_memory, device_memory()) if x is not None]
    return dataclasses.replace(
      self,
      seconds=self.seconds + seconds,
      peak_memory=max(self.peak_memory, peak_memory()),
      device_memory=max(device, default=None),
      version=__version__,
    )


def _fits(value: object, kind: object) -> bool:
  number = float if kind is float else int
  if kind is str:
    return isinstance(value, str)
  if value is None:
    return kind not in (int, float)
  is_number = isinstance(value, int | number) and not isinstance(value, bool)
  return is_number and 0 <= value < float('inf')


class RunClock(contextlib.AbstractContextManager):
  """Measures the time of a `with` block that fits a model.

  If the block raises an error, its time is saved. Otherwise `save` saves it.
  """

  def __init__(self, workdir: Workdir) -> None:
    self._workdir = workdir
    saved = RunRecord.read(workdir)
    self._is_recorded = saved is not None
    self.record = saved or RunRecord()

  def __enter__(self) -> 'RunClock':
    self._start = time.monotonic()
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: types.TracebackType | None,
  ) -> None:
    self._timed = self.record.with_time(time.monotonic() - self._start)
    if error is not None:
      # The error is more important than a record that cannot be written.
      with contextlib.suppress(WriteError):
        self.save(self.unfinished())

  def is_new(self, steps: int, judged: bool) -> bool:
    """Returns whether the record lacks a run that has taken so many steps.

    `judged` says whether the run was judged before this start. If such a run
    has no record, an earlier version of xjax fitted it, in an unknown time. So
    it stays without a record.
    """
    if not self._is_recorded:
      return not judged
    return not self.record.finished or self.record.steps != steps

  def unfinished(self) -> RunRecord:
    """Returns the record of a run that is not finished, after the block."""
    return dataclasses.replace(self._timed, finished='')

  def finished(self, steps: int, model_bytes: int) -> RunRecord:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
    return dataclasses.replace(
      self._timed, steps=steps, model_bytes=model_bytes, finished=now
    )

  def save(self, record: RunRecord) -> None:
    """Saves a record of the run as run.json; only host 0 writes."""
    if is_host0():
      write_json(self._workdir.record, dataclasses.asdict(record))


def peak_memory() -> int:
  """Returns the most memory that this process has used so far, in bytes."""
  most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  return most if sys.platform == 'darwin' else 1024 * most


def device_memory() -> int | None:
  """Returns the most memory in use on one device, in bytes; None on a CPU."""
  import jax  # label trees are loaded without it

  stats = [device.memory_stats() or {} for device in jax.local_devices()]
  peaks = [s['peak_bytes_in_use'] for s in stats if 'peak_bytes_in_use' in s]
  return max(peaks, default=None)
