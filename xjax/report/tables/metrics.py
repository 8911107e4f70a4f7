"""Shows the metrics of systems as tables, and says why values are missing."""

from collections.abc import Collection, Iterable, Mapping, Sequence
import re
from typing import Any

from xjax.core.errors import ConfigError
from xjax.judge.criteria import main_metrics
from xjax.judge.judge import INTERVALS, LISTS, NOTES, PROTOCOL, SEARCH
from xjax.judge.metrics.metric import TUNED
from xjax.judge.metrics.slices import ALL
from xjax.report.page.page import Collapsible
from xjax.report.runs import Estimate, SystemRuns, group_metrics, protocols
from xjax.report.table import (
  MISSING,
  Cell,
  Table,
  interval_text,
  number_cell,
  plain_text,
)

_MAIN_DECIMALS = 3
# Metric -> estimate over the runs of a system.
Values = Mapping[str, Estimate]
# Slice -> metric -> estimate over the runs.
Slices = Mapping[str, Values]
# Slice -> metric -> [low, high].
Intervals = Mapping[str, Mapping[str, Sequence[float]]]
# Slice -> metric -> name of the system that is significantly the best.
BestSystems = Mapping[str, Mapping[str, str]]
_COUNTS = {
  'n_docs': 'documents with gold',
  'n_skipped': 'documents without gold',
  'n_labels': 'labels',
}


def is_count(name: str) -> bool:
  """Returns whether a name in metrics.json is of a count, not of a metric."""
  return name.startswith('n_')


def main_table(
  groups: Sequence[SystemRuns],
  protocol: str,
  columns: Sequence[str],
  colours: Mapping[str, str],
  best: BestSystems,
) -> Table:
  """Returns the table of the main metrics, with a row per slice and system."""
  # After ± is the standard error over seeds, or else half of an interval.
  # Values in `best` are bold, if no other system has a larger mean: a test uses
  # one run per system.
  tables = {group: group_metrics(group, protocol) for group in groups}
  rows, starts, empty = [], [], empty_slices(tables.values())
  for name in _union(tables.values()):
    if name in empty:
      continue
    values_of = {group: t[name] for group, t in tables.items() if name in t}
    starts.append(len(rows))
    for group, values in values_of.items():
      first, labels = len(rows) == starts[-1], values.get('n_labels')
      known = first and labels is not None and labels.mean is not None
      below = f'{labels.mean:,} labels' if known else ''
      ends = intervals_of(group.first.metrics, protocol).get(name, {})
      row = [
        Cell(name * first, below=below),
        Cell(group.name, below=group.seeds, colour=colours[group.name]),
      ]
      for metric in columns:
        value, bold = values.get(metric), False
        if value and best.get(name, {}).get(metric) == group.name:
          means = [v[metric].mean for v in values_of.values() if metric in v]
          bold = value.mean == max(mean for mean in means if mean is not None)
        row.append(estimate_cell(value, ends.get(metric), bold))
      rows.append(row)
  columns = 'slice', 'system', *columns
  return Table(columns, rows, n_text=2, starts=frozenset(starts[1:]))


def estimate_cell(
  value: Estimate | None,
  interval: Sequence[float] | None = None,
  is_best: bool = False,
) -> Cell:
  """Returns a cell with a count, or with a mean and its spread."""
  # Half of `interval`, [low, high], is the spread of a single run. None is a
  # system that was judged without the metric.
  if value is None or value.mean is None:
    return number_cell(None)
  if type(value.mean) is int:
    return number_cell(value.mean)
  spread = value.error
  if spread is None and interval is not None:
    spread = (interval[1] - interval[0]) / 2
  return number_cell(value.mean, _MAIN_DECIMALS, spread=spread, best=is_best)


def main_columns(
  tables: Iterable[Slices], wanted: Sequence[str] = ()
) -> list[str]:
  """Returns the wanted metrics, or if () those of criteria.main_metrics."""
  names = _union(values for table in tables for values in table.values())
  for metric in wanted:
    if metric not in names or is_count(metric):
      known = ', '.join(name for name in names if not is_count(name))
      raise ConfigError(
        f'--metrics: no system has {metric!r}; if only its cut-off is missing, '
        f'add the cut-off by --ks; known metrics: {known}'
      )
  return list(dict.fromkeys(wanted)) or main_metrics(names)


def empty_slices(tables: Collection[Slices]) -> list[str]:
  """Returns the slices in which no system has a value, except counts."""
  full = {
    name
    for table in tables
    for name, values in table.items()
    for metric, value in values.items()
    if value.mean is not None and not is_count(metric)
  }
  return [name for name in _union(tables) if name not in full]


def metric_table(
  columns: Mapping[str, Mapping[str, Cell]], missing: str = ''
) -> Table:
  """Returns a table with a row per metric, from the cells of each column."""
  return Table.of(
    ('metric', *columns),
    [
      [metric, *(cells.get(metric, missing) for cells in columns.values())]
      for metric in _union(columns.values())
    ],
  )


def value_cells(
  metrics: Mapping[str, Any], protocol: str, slice_name: str
) -> dict[str, Cell]:
  """Returns the values of a metrics.json, by metric, with their intervals."""
  ends = intervals_of(metrics, protocol).get(slice_name, {})
  return {
    metric: number_cell(value, below=interval_text(ends.get(metric)))
    for metric, value in metrics[protocol].get(slice_name, {}).items()
  }


def full_tables(groups: Sequence[SystemRuns]) -> list[Collapsible]:
  """Returns tables of all metrics, with a fold per protocol and slice."""
  names = _union(protocols(group.first.metrics) for group in groups)
  folds = []
  for protocol in names:
    tables = [group_metrics(group, protocol) for group in groups]
    empty = empty_slices(tables)
    for name in _union(tables):
      if name not in empty:
        title = f'{name}, protocol {protocol}' if len(names) > 1 else name
        folds.append(Collapsible(title, [slice_table(groups, protocol, name)]))
  return folds


def slice_table(
  groups: Sequence[SystemRuns], protocol: str, slice_name: str
) -> Table:
  """Returns the table of a slice: a row per metric, a column per system."""
  columns = {}
  for group in groups:
    ends = intervals_of(group.first.metrics, protocol).get(slice_name, {})
    values = group_metrics(group, protocol).get(slice_name, {})
    columns[f'{group.name}\n{group.seeds}'.rstrip()] = {
      _COUNTS.get(metric, metric): _full_cell(value, ends.get(metric))
      for metric, value in values.items()
    }
  return metric_table(columns, MISSING)


def _full_cell(value: Estimate, interval: Sequence[float] | None) -> Cell:
  if value.error is not None and type(value.mean) is float:
    return number_cell(value.mean, spread=value.error)
  known = interval if value.mean is not None else None
  return number_cell(value.mean, below=interval_text(known))


def intervals_of(metrics: Mapping[str, Any], protocol: str) -> Intervals:
  """Returns the intervals in a metrics.json; {} if it has no intervals."""
  return metrics.get(INTERVALS, {}).get(protocol, {})


def note_lines(groups: Sequence[SystemRuns]) -> list[str]:
  """Returns a line for each run and reason why values are missing."""
  lines = []
  for run in (run for group in groups for run in group.runs):
    missing = missing_lines(run.metrics.get(NOTES, {}))
    lines += [f'{run.name}, {line}' for line in missing]
  return lines


def missing_lines(
  notes: Mapping[str, Mapping[str, str]], columns: Sequence[str] = ()
) -> list[str]:
  """Returns a line for each reason why values of the columns are missing."""
  slices: dict[tuple[str, str], list[str]] = {}
  for name, reasons in notes.items():
    metrics_of: dict[str, list[str]] = {}
    for metric, reason in reasons.items():
      if not columns or metric in (*columns, LISTS, SEARCH):
        metrics_of.setdefault(reason, []).append(metric)
    for reason, metrics in metrics_of.items():
      slices.setdefault((_shorten(metrics), reason), []).append(name)
  return [
    f'{", ".join(names)}, {metrics}: {reason}'
    for (metrics, reason), names in slices.items()
  ]


def _shorten(metrics: Sequence[str]) -> str:
  more = f' and {len(metrics) - 6} more' if len(metrics) > 6 else ''
  return ', '.join(metrics[:6]) + more


def _union(tables: Iterable[Iterable[str]]) -> list[str]:
  return list(dict.fromkeys(key for table in tables for key in table))


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


def levels_of(names: Iterable[str]) -> list[int]:
  """Returns the levels of the hierarchy that metrics are about, ascending."""
  numbers = (re.fullmatch(r'n_gold\[level=(\d+)\]', name) for name in names)
  return sorted({int(number[1]) for number in numbers if number})


def level_table(
  values_of: Mapping[str, Values], colours: Mapping[str, str]
) -> Table:
  """Returns a table with a row per level of the hierarchy and system."""
  levels = levels_of(_union(values_of.values()))
  columns = {
    metric: name
    for metric, name in _BY_LEVEL.items()
    if any(metric.format(levels[0]) in x for x in values_of.values())
  }
  rows = [
    [
      '' if n else str(level),
      Cell(system, colour=colours.get(system, '')),
      *(estimate_cell(values.get(metric.format(level))) for metric in columns),
    ]
    for level in levels
    for n, (system, values) in enumerate(values_of.items())
  ]
  starts = frozenset(range(len(values_of), len(rows), len(values_of)))
  names = 'level', 'system', *columns.values()
  return Table.of(names, rows, 2, starts=starts)


def path_table(
  values_of: Mapping[str, Values], colours: Mapping[str, str]
) -> Table:
  """Returns a table of the metrics that add ancestors, a row per system."""
  columns = [m for m in _BY_PATH if any(m in x for x in values_of.values())]
  rows = [
    [
      Cell(system, colour=colours.get(system, '')),
      *(estimate_cell(values.get(metric)) for metric in columns),
    ]
    for system, values in values_of.items()
  ]
  return Table(('system', *columns), rows)


def plain_levels(metrics: Mapping[str, Any]) -> str:
  """Returns tables by level as lines of text; '' if there are no levels."""
  values = metrics[PROTOCOL][ALL]
  if not levels_of(values):
    return ''
  estimates = {name: Estimate(value, None, 1) for name, value in values.items()}
  return '\n'.join(
    [
      'by level of the hierarchy (labels from the threshold of micro-F1 on)',
      plain_text(level_table({'model': estimates}, {})),
      'with ancestors',
      plain_text(path_table({'model': estimates}, {})),
    ]
  )
