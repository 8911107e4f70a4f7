"""Writes and reads the folder of an evaluation: predictions and metrics.

The code of metrics is imported where it is used, because commands that only
predict do not need it.
"""

from collections.abc import Mapping
import pathlib
from typing import Any

from xjax.core.atomic import write_json
from xjax.core.errors import DataError
from xjax.data.files.file_set import read_json, read_mark, writing_set
from xjax.data.files.tables import write_csv
from xjax.judge.predictions import Predictions

# The files in the folder of an evaluation. MARK lists the others (writing_set).
PREDICTIONS, METRICS, TABLE = 'predictions.npz', 'metrics.json', 'metrics.csv'
MARK = 'judged.json'
# A folder outside a workdir may have the calibration of the run that it judges.
# Its mark then has the name of the run's folder, such as `dev`, as a fact.
CALIBRATION, JUDGED = 'calibration.json', 'split'


def save_evaluation(
  folder: pathlib.Path,
  predictions: Predictions,
  metrics: Mapping[str, Any],
  facts: Mapping[str, Any] | None = None,
) -> None:
  """Writes an evaluation as one set, on host 0; an older one is replaced.

  `facts` are fields of judged.json that say what was judged.
  """
  with writing_set(pathlib.Path(folder) / MARK, facts or {}) as new:
    write_evaluation(new, predictions, metrics)


def write_evaluation(
  folder: pathlib.Path, predictions: Predictions, metrics: Mapping[str, Any]
) -> None:
  """Writes predictions.npz, metrics.json and metrics.csv, without a mark."""
  predictions.save(folder / PREDICTIONS)
  write_json(folder / METRICS, metrics)
  _write_table(folder / TABLE, metrics)


def read_value(folder: pathlib.Path, metric: str, remedy: str) -> float | None:
  """Reads the value 'slice/metric' of an evaluation under xjax's protocol.

  `remedy` is part of the message if the evaluation is incomplete or damaged.
  """
  from xjax.judge.judge import PROTOCOL

  read_mark(folder / MARK, remedy)
  slice_name, _, name = metric.partition('/')
  try:
    slices = read_json(folder / METRICS).get(PROTOCOL, {})
    value = slices.get(slice_name, {}).get(name)
    return None if value is None else float(value)
  except (AttributeError, TypeError, ValueError) as error:
    raise DataError(
      f'{folder / METRICS}: the metrics are not in the form of xjax; {remedy}'
    ) from error


def _write_table(path: pathlib.Path, metrics: Mapping[str, Any]) -> None:
  from xjax.judge.judge import INTERVALS, RECALLS
  from xjax.judge.metrics.protocols import PROTOCOLS

  intervals = metrics.get(INTERVALS, {})
  rows = []
  for protocol, slices in metrics.items():
    if protocol not in PROTOCOLS:
      continue
    for name, values in slices.items():
      ends = intervals.get(protocol, {}).get(name, {})
      rows += [
        (protocol, name, metric, value, *ends.get(metric, (None, None)))
        for metric, value in values.items()
      ]
  rows += [
    ('', name, step, share, None, None)
    for name, recalls in metrics.get(RECALLS, {}).items()
    for step, share in recalls.items()
  ]
  columns = 'protocol', 'slice', 'metric', 'value', 'low', 'high'
  write_csv(path, columns, rows)
