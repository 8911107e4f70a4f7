"""What a run's folder tells of how good it is, while it trains and after."""

import json
import pathlib

from xjax.core.errors import DataError
from xjax.judge.judge import PROTOCOL
from xjax.judge.predict import METRICS
from xjax.train.workdir import Workdir, read_json


class Judgings:
  """The judgings on dev of a run, read again where more are there."""

  def __init__(self, workdir: pathlib.Path, metric: str) -> None:
    """Watches the run in a workdir, which may not be there yet.

    Args:
      workdir: of the run.
      metric: 'slice/metric'.
    """
    self._path = workdir / 'metrics.jsonl'
    self._slice, _, self._metric = metric.partition('/')
    self._seen: tuple[int, int] | None = None
    self._values: list[tuple[int, float | None]] = []

  def read(self) -> list[tuple[int, float | None]]:
    """Step and value of every judging so far; None: it cannot be told."""
    try:
      stat = self._path.stat()
      seen = stat.st_mtime_ns, stat.st_size
      if seen != self._seen:
        lines = self._path.read_text('utf-8', errors='replace').splitlines()
        self._values = [v for line in lines for v in self._value(line)]
        self._seen = seen
    except FileNotFoundError:
      pass
    return self._values

  def _value(self, line: str) -> list[tuple[int, float | None]]:
    """One, or none where the line is another record or half of one."""
    try:
      record = json.loads(line)
      if record['kind'] != 'judge':
        return []
      return [(record['step'], record['metrics'][self._slice][self._metric])]
    except (ValueError, KeyError, TypeError):
      return []


def final_value(workdir: pathlib.Path, metric: str) -> float:
  """The value on dev of the checkpoint that a finished run judges best.

  Args:
    workdir: of the run.
    metric: 'slice/metric'.

  Raises:
    DataError: it was not judged on dev, or the metric could not be told.
  """
  folder = Workdir.at(workdir).evaluation('dev')
  if not folder.is_dir():
    raise DataError(f'{workdir}: was not judged on dev: has it such a split?')
  slice_name, _, name = metric.partition('/')
  table = read_json(folder / METRICS).get(PROTOCOL, {}).get(slice_name, {})
  if table.get(name) is None:
    raise DataError(f'{workdir}: {metric} cannot be told on dev')
  return float(table[name])
