"""Builds tables of the systems of a report: sources, costs and configs."""

from collections.abc import Iterator, Sequence
import datetime
import json
from typing import Any

from xjax.report.page.page import MISSING, Cell, Table, text_cell
from xjax.report.runs import SEED, Group, current_config
from xjax.train.run_record import RunRecord

_LONGEST = 60  # maximum number of characters of a value
_ABSENT = object()  # stands for a field that a config does not have
_UNITS = 'B', 'KB', 'MB', 'GB', 'TB'


def system_table(rows: Sequence[Sequence[str]]) -> Table:
  """Returns a table of the name, path, split and scores of each system."""
  columns = 'system', 'read from', 'judged on', 'scores'
  return Table(columns, [list(map(text_cell, row)) for row in rows], n_text=4)


def cost_table(groups: Sequence[Group]) -> Table:
  """Returns a table of what each system has cost, with a row per run.

  Files, and runs of earlier versions of xjax, have no such record.
  """
  rows = []
  for group in groups:
    for run in group.runs:
      seed = f'seed {run.config[SEED]}' if len(group.runs) > 1 else ''
      rows.append([Cell(group.name, below=seed), *_costs(run.record)])
  columns = ['system', 'finished', 'xjax', 'fitting', 'memory', 'model', 'GPU']
  if all(row[-1].value is None for row in rows):  # no run used a GPU
    rows, columns = [row[:-1] for row in rows], columns[:-1]
  return Table(columns, rows)


def _costs(record: RunRecord | None) -> list[Cell]:
  if record is None:
    return [Cell(MISSING)] * 6
  return [
    Cell(record.finished[:10] or MISSING),
    Cell(record.version),
    _seconds(record.seconds),
    _bytes(record.peak_memory),
    _bytes(record.model_bytes),
    _bytes(record.device_memory),
  ]


def _seconds(value: float) -> Cell:
  """Returns a cell with a duration, such as 0:01:23."""
  if value < 60:
    return Cell(f'{value:.1f} s', value)
  return Cell(str(datetime.timedelta(seconds=round(value))), value)


def _bytes(value: int | None) -> Cell:
  """Returns a cell with a number of bytes, such as 12.3 MB."""
  if value is None:
    return Cell(MISSING)
  size, unit = float(value), 0
  while size >= 1000 and unit < len(_UNITS) - 1:
    size, unit = size / 1000, unit + 1
  return Cell(f'{size:.1f} {_UNITS[unit]}' if unit else f'{value} B', value)


def config_table(groups: Sequence[Group]) -> Table | None:
  """Returns a table of the fields in which configs differ, or None.

  If a part of two configs has different kinds, only the kinds are compared.
  """
  groups = [group for group in groups if group.first.config is not None]
  configs = [current_config(group.first.config) for group in groups]
  rows = [
    [Cell(path), *map(_value_cell, values)]
    for path, values in _differences(configs, '')
    if path != SEED or all(len(group.runs) == 1 for group in groups)
  ]
  if not rows:
    return None
  names = [group.name for group in groups]
  return Table(('field', *names), rows, n_text=1 + len(names))


def _differences(
  values: Sequence[Any], path: str
) -> Iterator[tuple[str, Sequence[Any]]]:
  """Yields path and values (_ABSENT if missing) of the fields that differ."""
  present = [value for value in values if value is not _ABSENT]
  if all(value == present[0] for value in present):
    return
  if not all(isinstance(value, dict) for value in present):
    yield path, values
    return
  kinds = [_field(value, 'kind') for value in values]
  if len({str(value.get('kind')) for value in present}) > 1:
    yield f'{path}.kind'.removeprefix('.'), kinds
  for kind in dict.fromkeys(map(str, kinds)):
    alike = [
      value if str(of) == kind else _ABSENT for value, of in zip(values, kinds)
    ]
    names = (name for value in alike if value is not _ABSENT for name in value)
    for name in dict.fromkeys(names):
      inner = [_field(value, name) for value in alike]
      yield from _differences(inner, f'{path}.{name}'.removeprefix('.'))


def _field(value: Any, name: str) -> Any:
  return _ABSENT if value is _ABSENT else value.get(name, _ABSENT)


def _value_cell(value: Any) -> Cell:
  if value is _ABSENT or value is None or value == '':
    return Cell(MISSING)
  text = value if isinstance(value, str) else json.dumps(value)
  return Cell(text if len(text) <= _LONGEST else f'{text[: _LONGEST - 3]}...')
