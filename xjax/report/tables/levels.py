"""Shows the metrics of labels with parents: by level, and with ancestors."""

from collections.abc import Iterable, Mapping
import re
from typing import Any

from xjax.judge.judge import PROTOCOL
from xjax.judge.metrics.metric import TUNED
from xjax.judge.metrics.slices import ALL
from xjax.report.page.page import Cell, Table, number_cell
from xjax.report.runs import Estimate
from xjax.report.tables.align import align
from xjax.report.tables.metrics import estimate_cell

# Metrics that add ancestors, or that ask for parents.
_BY_PATH = (
  *('hP', 'hR', 'hF1', f'hF1{TUNED}'),
  *('consistency', f'consistency{TUNED}'),
)
# Metric by level -> how its column is called.
_BY_LEVEL = {
  'n_labels[level={}]': 'labels',
  'n_gold[level={}]': 'gold',
  'micro-P[level={}]': 'micro-P',
  'micro-R[level={}]': 'micro-R',
  'micro-F1[level={}]': 'micro-F1',
  f'micro-F1[level={{}}]{TUNED}': f'micro-F1{TUNED}',
}
_COUNTS = 2  # the first columns of _BY_LEVEL are counts
# Metric of the slice `all` -> estimate over the runs of a system.
Values = Mapping[str, Estimate]


def levels_of(names: Iterable[str]) -> list[int]:
  """Returns the levels of the hierarchy that metrics are about, ascending."""
  numbers = (re.fullmatch(r'n_gold\[level=(\d+)\]', name) for name in names)
  return sorted({int(number[1]) for number in numbers if number})


def level_table(
  values_of: Mapping[str, Values], colours: Mapping[str, str]
) -> Table:
  """Returns a table with a row per level of the hierarchy and system.

  The metrics are those of the slice `all`; some system has them by level.
  """
  levels = levels_of(name for values in values_of.values() for name in values)
  columns = {
    metric: name
    for metric, name in _BY_LEVEL.items()
    if any(metric.format(levels[0]) in x for x in values_of.values())
  }
  rows = []
  for level in levels:
    for system, values in values_of.items():
      cells = [values.get(metric.format(level)) for metric in columns]
      first = f'{level}' if system == next(iter(values_of)) else ''
      who = Cell(system, colour=colours.get(system, ''))
      rows.append([Cell(first), who, *map(_cell, cells)])
  starts = (n for n, row in enumerate(rows) if n and row[0].text)
  return Table(
    ('level', 'system', *columns.values()),
    rows,
    n_text=2,
    starts=frozenset(starts),
  )


def path_table(
  values_of: Mapping[str, Values], colours: Mapping[str, str]
) -> Table:
  """Returns a table of the metrics that add ancestors, a row per system."""
  columns = [m for m in _BY_PATH if any(m in x for x in values_of.values())]
  return Table(
    ('system', *columns),
    [
      [
        Cell(system, colour=colours.get(system, '')),
        *(_cell(values.get(metric)) for metric in columns),
      ]
      for system, values in values_of.items()
    ],
  )


def _cell(value: Estimate | None) -> Cell:
  if value is not None and type(value.mean) is int:
    return number_cell(value.mean)
  return estimate_cell(value)


def plain_levels(metrics: Mapping[str, Any]) -> str:
  """Returns a table by level as lines of text; '' if there are no levels."""
  values = metrics[PROTOCOL][ALL]
  levels = levels_of(values)
  if not levels:
    return ''
  columns = {
    metric: name
    for metric, name in _BY_LEVEL.items()
    if metric.format(levels[0]) in values
  }
  rows = [('level', *columns.values())]
  for level in levels:
    cells = [values[metric.format(level)] for metric in columns]
    counts = [f'{count:,}' for count in cells[:_COUNTS]]
    rows.append((f'{level}', *counts, *map(_share, cells[_COUNTS:])))
  by_path = [
    f'{name} {_share(values[name])}' for name in _BY_PATH if name in values
  ]
  return '\n'.join(
    [
      'by level of the hierarchy (labels above the threshold of micro-F1)',
      *align(rows, 1),
      *([f'with ancestors: {", ".join(by_path)}'] if by_path else []),
    ]
  )


def _share(value: float | None) -> str:
  return '-' if value is None else f'{value:.3f}'
