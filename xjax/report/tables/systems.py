"""Builds tables of the systems of a report: sources, costs and configs."""

from collections.abc import Iterator, Sequence
import datetime
import json
from typing import Any

from xjax.report.page.page import MISSING, Cell, Table, text_cell
from xjax.report.runs import SEED, Group, current_config

_LONGEST = 60  # maximum number of characters of a value
_UNITS = 'B', 'KB', 'MB', 'GB', 'TB'


def system_table(rows: Sequence[Sequence[str]]) -> Table:
  """Returns a table with a row per system.

  Args:
    rows: name, path, split and kind of scores of each system.
  """
  columns = 'system', 'read from', 'judged on', 'scores'
  return Table(columns, [list(map(text_cell, row)) for row in rows], n_text=4)


def cost_table(groups: Sequence[Group]) -> Table:
  """Returns a table of what each system has cost, with a row per run.

  Files, and runs of earlier versions of xjax, have no such record.
  """
  columns = (
    'system',
    'finished',
    'xjax',
    'fitting',
    'peak memory',
    'device memory',
    'model',
  )
  rows = []
  for group in groups:
    for run in group.runs:
      record = run.record
      seed = f'seed {run.config[SEED]}' if len(group.runs) > 1 else ''
      rows.append(
        [
          Cell(group.name, below=seed),
          Cell(record.finished[:10] or MISSING if record else MISSING),
          Cell(record.version if record else MISSING),
          _seconds(record.seconds if record else None),
          _bytes(record.peak_memory if record else None),
          _bytes(record.device_memory if record else None),
          _bytes(record.model_bytes if record else None),
        ]
      )
  return Table(columns, rows, n_text=3)


def _seconds(value: float | None) -> Cell:
  """Returns a cell with a duration, such as 0:01:23."""
  if value is None:
    return Cell(MISSING)
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
  """Returns a table of the fields in which the configs of systems differ.

  If parts of two configs have different kinds, only the kinds are shown.

  Returns:
    The table, with a row per field and a column per system; None if fewer than
    two systems have a config, or if the configs do not differ.
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
  """Yields the path and the values of each field that differs."""
  if all(value == values[0] for value in values):
    return
  if not all(isinstance(value, dict) for value in values):
    yield path, values
    return
  kinds = [value.get('kind') for value in values]
  if any(kind != kinds[0] for kind in kinds):
    yield f'{path}.kind'.removeprefix('.'), kinds
    return
  for name in dict.fromkeys(name for value in values for name in value):
    inner = [value.get(name) for value in values]
    yield from _differences(inner, f'{path}.{name}'.removeprefix('.'))


def _value_cell(value: Any) -> Cell:
  if value is None or value == '':
    return Cell(MISSING)
  text = value if isinstance(value, str) else json.dumps(value)
  return Cell(text if len(text) <= _LONGEST else f'{text[: _LONGEST - 3]}...')
