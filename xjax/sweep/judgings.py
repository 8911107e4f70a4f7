"""Reads the metrics of a run from its workdir, during and after training."""

import json
import pathlib

from xjax.core.errors import DataError
from xjax.judge.files.evaluation import read_value
from xjax.train.workdir import Workdir


class Judgings:
  """Reads a run's judgings (evaluations on dev), also while it is training."""

  def __init__(self, workdir: pathlib.Path, metric: str) -> None:
    """Takes a workdir, which need not exist yet, and a 'slice/metric'."""
    self._path = workdir / 'metrics.jsonl'
    self._slice, _, self._metric = metric.partition('/')
    self._seen: tuple[int, int] | None = None
    self._values: list[tuple[int, float | None]] = []

  def read(self) -> list[tuple[int, float | None]]:
    """Returns (step, value) of each judging so far; the value may be None."""
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
    """Returns [(step, value)] of a judging's line, and [] for any other line.

    A line that is not complete yet counts as another line.
    """
    try:
      record = json.loads(line)
      if record['kind'] != 'judge':
        return []
      return [(record['step'], record['metrics'][self._slice][self._metric])]
    except (ValueError, KeyError, TypeError, RecursionError):
      return []


def final_value(workdir: pathlib.Path, metric: str) -> float:
  """Returns the dev metric ('slice/metric') of a run's best checkpoint.

  Raises:
    DataError: the run was not judged on dev, or the metric has no value.
  """
  folder = Workdir.at(workdir).evaluation('dev')
  if not folder.is_dir():
    raise DataError(
      f'{workdir}: was not judged on dev; check that the corpus has a dev split'
    )
  value = read_value(folder, metric, 'judge the run again')
  if value is None:
    raise DataError(f'{workdir}: {metric} has no value on dev')
  return value
