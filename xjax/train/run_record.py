"""Records what a run has cost: seconds, memory, size, date and version."""

import contextlib
import dataclasses
import datetime
import os
import resource
import sys
import time

from xjax.core.atomic import WriteError, write_json
from xjax.core.distributed import is_host0
from xjax.core.errors import DataError
from xjax.data.files.file_set import read_json
from xjax.train.workdir import Workdir
from xjax.version import __version__


@dataclasses.dataclass(frozen=True)
class RunRecord:
  """Holds what a run has cost, over all its starts; saved as run.json."""

  # The time of a start that was killed is missing.

  seconds: float = 0.0
  peak_memory: int = 0  # the most memory of a process of the run, in bytes
  device_memory: int | None = None  # of an accelerator, if the device tells
  steps: int = 0
  model_bytes: int = 0  # of a neural model's parameters, or another's files
  finished: str = ''  # time of the end, as ISO 8601 in UTC; '' before the end
  version: str = __version__  # of xjax that wrote the record
  # The current folder of the last start, and the workdir at that time, both
  # absolute: the paths in config.json belong to them. '' if not recorded.
  folder: str = ''
  workdir: str = ''

  @classmethod
  def read(cls, workdir: Workdir) -> 'RunRecord | None':
    path = workdir.record
    if not path.is_file():
      return None
    values = {'folder': '', 'workdir': '', **read_json(path)}
    for name, kind in cls.__annotations__.items():
      number = int | float if kind is float else kind
      if not isinstance(values.get(name), number):
        raise DataError(
          f'{path}: {name} is missing or has a wrong type; remove the file, '
          'which only records what the run has cost'
        )
    return cls(**{name: values[name] for name in cls.__annotations__})

  def save(self, workdir: Workdir) -> None:
    """Writes run.json, on host 0, with the folders of this start."""
    if is_host0():
      places = {'folder': os.getcwd(), 'workdir': str(workdir.path)}
      write_json(workdir.record, dataclasses.asdict(self) | places)

  def with_time(self, seconds: float) -> 'RunRecord':
    """Adds seconds, and the memory that this process has used so far."""
    device = [x for x in (self.device_memory, device_memory()) if x is not None]
    return dataclasses.replace(
      self,
      seconds=self.seconds + seconds,
      peak_memory=max(self.peak_memory, peak_memory()),
      device_memory=max(device, default=None),
      finished='',
      version=__version__,
    )

  def ended(self, steps: int, model_bytes: int) -> 'RunRecord':
    """Returns the record of a run that ends now."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
    return dataclasses.replace(
      self, steps=steps, model_bytes=model_bytes, finished=now
    )


class RunClock(contextlib.AbstractContextManager):
  """Measures a `with` block; saves its time here only after an error."""

  def __init__(self, workdir: Workdir) -> None:
    self._workdir = workdir
    self.before = RunRecord.read(workdir) or RunRecord()

  def __enter__(self) -> 'RunClock':
    self._start = time.monotonic()
    return self

  def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
    # The record of a run that is not finished.
    self.record = self.before.with_time(time.monotonic() - self._start)
    if kind is not None:
      # The error is more important than a record that cannot be written.
      with contextlib.suppress(WriteError):
        self.record.save(self._workdir)

  def is_new(self, steps: int) -> bool:
    """Returns whether run.json lacks a run that has taken so many steps."""
    return not self.before.finished or self.before.steps != steps


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
