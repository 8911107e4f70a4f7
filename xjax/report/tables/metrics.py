"""Shows the metrics of systems as tables, and says why values are missing."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xjax.core.errors import ConfigError
from xjax.judge.criteria import main_metrics
from xjax.judge.judge import (
  INTERVALS,
  NOTES,
)
from xjax.report.page.page import Cell, Fold, Listing, Table, number_cell
from xjax.report.runs import Estimate, Group, group_metrics, protocols

_MAIN_DECIMALS = 3
# Slice -> metric -> estimate over the runs.
Slices = Mapping[str, Mapping[str, Estimate]]
# Slice -> metric -> [low, high].
Intervals = Mapping[str, Mapping[str, Sequence[float]]]
# Slice -> metric -> name of the system that is significantly the best.
Best = Mapping[str, Mapping[str, str]]
_COUNTS = {
  'n_docs': 'documents with gold',
  'n_skipped': 'documents without gold',
  'n_labels': 'labels',
}


def is_count(name: str) -> bool:
  """Returns whether a name in metrics.json is of a count, not of a metric."""
  return name.startswith('n_')


def main_table(
  tables: Mapping[str, Slices],
  columns: Sequence[str],
  colours: Mapping[str, str] | None = None,
  seeds: Mapping[str, str] | None = None,
  intervals: Mapping[str, Intervals] | None = None,
  best: Best | None = None,
) -> Table:
  """Returns the table of the main metrics, with a row per slice and system.

  Slices in which no system has a value are left out. A number after ± is the
  standard error over seeds, or else half of the width of an interval. Below a
  system's name is its text in `seeds`. Values of the systems in `best` are
  bold.
  """
  colours, seeds, intervals = colours or {}, seeds or {}, intervals or {}
  empty, rows = empty_slices(tables.values()), []
  for name in _union(tables.values()):
    values_of = {system: t[name] for system, t in tables.items() if name in t}
    for n, (system, values) in enumerate(values_of.items()):
      if name in empty:
        continue
      labels = values.get('n_labels', Estimate(None, None, 0)).mean
      ends = intervals.get(system, {}).get(name, {})
      winners = (best or {}).get(name, {})
      rows.append(
        [
          Cell(name if not n else '', below=_labels(labels) if not n else ''),
          Cell(
            system, below=seeds.get(system, ''), colour=colours.get(system, '')
          ),
          *(
            estimate_cell(
              values.get(m),
              ends.get(m),
              winners.get(m) == system and _leads(system, m, values_of),
            )
            for m in columns
          ),
        ]
      )
  starts = (n for n, row in enumerate(rows) if n and row[0].text)
  return Table(
    ('slice', 'system', *columns), rows, n_text=2, starts=frozenset(starts)
  )


def _leads(system: str, metric: str, values_of: Slices) -> bool:
  """Returns whether no other system has a larger value of a metric.

  A test uses one run per system. So the mean over the runs of another system
  may be larger. A system that was judged without the metric has no value.
  """
  means = {
    name: values[metric].mean
    for name, values in values_of.items()
    if metric in values and values[metric].mean is not None
  }
  return system in means and means[system] == max(means.values())


def estimate_cell(
  value: Estimate | None,
  interval: Sequence[float] | None = None,
  is_best: bool = False,
) -> Cell:
  """Returns a cell with a mean; its spread follows in the second line.

  Half of `interval`, [low, high], is the spread of a single run. The value is
  None if the system was judged without the metric.
  """
  if value is None or value.mean is None:
    return number_cell(None)
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


def empty_slices(tables: Iterable[Slices]) -> list[str]:
  """Returns the slices in which no system has a value, except counts."""
  full: dict[str, bool] = {}
  for table in tables:
    for name, values in table.items():
      has_value = any(
        value.mean is not None
        for metric, value in values.items()
        if not is_count(metric)
      )
      full[name] = full.get(name, False) or has_value
  return [name for name, is_full in full.items() if not is_full]


def _labels(n: int | float | None) -> str:
  return f'{n:,} labels' if n is not None else ''


def full_tables(groups: Sequence[Group]) -> list[Fold]:
  """Returns tables of all metrics, with a fold per protocol and slice."""
  names = _union(
    dict.fromkeys(protocols(group.first.metrics)) for group in groups
  )
  return [
    Fold(
      f'{slice_name}' + (f', protocol {protocol}' if len(names) > 1 else ''),
      [slice_table(groups, protocol, slice_name)],
    )
    for protocol in names
    for slice_name in _full_slices(groups, protocol)
  ]


def _full_slices(groups: Sequence[Group], protocol: str) -> list[str]:
  tables = [group_metrics(group, protocol) for group in groups]
  empty = empty_slices(tables)
  return [name for name in _union(tables) if name not in empty]


def slice_table(
  groups: Sequence[Group], protocol: str, slice_name: str
) -> Table:
  """Returns the table of a slice: a row per metric, a column per system."""
  values_of = {
    group.name: group_metrics(group, protocol).get(slice_name, {})
    for group in groups
  }
  rows = []
  for metric in _union(values_of.values()):
    rows.append(
      [
        Cell(_COUNTS.get(metric, metric)),
        *(
          _cell(
            values_of[group.name].get(metric),
            _interval(group, protocol, slice_name, metric),
          )
          for group in groups
        ),
      ]
    )
  heads = (f'{g.name}\n{g.seeds}'.rstrip() for g in groups)
  return Table(('metric', *heads), rows)


def _cell(value: Estimate | None, interval: Sequence[float] | None) -> Cell:
  if value is None:
    return number_cell(None)
  if value.error is not None and type(value.mean) is float:
    return number_cell(value.mean, spread=value.error)
  below = ''
  if interval is not None and value.mean is not None:
    below = f'[{interval[0]:.4f}, {interval[1]:.4f}]'
  return number_cell(value.mean, below=below)


def _interval(
  group: Group, protocol: str, slice_name: str, metric: str
) -> Sequence[float] | None:
  return interval_of(group.first.metrics, protocol, slice_name, metric)


def interval_of(
  metrics: Mapping[str, Any], protocol: str, slice_name: str, metric: str
) -> Sequence[float] | None:
  """Returns [low, high] of a metric; None if metrics.json has no interval."""
  return intervals_of(metrics, protocol).get(slice_name, {}).get(metric)


def intervals_of(metrics: Mapping[str, Any], protocol: str) -> Intervals:
  """Returns the intervals in a metrics.json; {} if it has no intervals."""
  return metrics.get(INTERVALS, {}).get(protocol, {})


def note_listing(
  groups: Sequence[Group], columns: Sequence[str] = (), protocol: str = ''
) -> Listing:
  """Returns a list that explains missing values, per run, slice and reason.

  A run that was judged without some metrics of `columns` has an item for them.
  """
  items = []
  for group in groups:
    for run in group.runs:
      judged = _union(run.metrics.get(protocol, {}).values())
      if absent := [metric for metric in columns if metric not in judged]:
        items.append(
          f'{run.name} was judged without {_shorten(absent)}; judge it again '
          'with `xjax evaluate`, with these --metrics and --ks, and give the '
          'module of a metric of your own in --import'
        )
      for slice_name, reasons in run.metrics.get(NOTES, {}).items():
        by_reason: dict[str, list[str]] = {}
        for metric, reason in reasons.items():
          by_reason.setdefault(reason, []).append(metric)
        items += [
          f'{run.name}, {slice_name}, {_shorten(metrics)}: {reason}'
          for reason, metrics in by_reason.items()
        ]
  return Listing(items)


def _shorten(metrics: Sequence[str], n: int = 6) -> str:
  more = f' and {len(metrics) - n} more' if len(metrics) > n else ''
  return ', '.join(metrics[:n]) + more


def _union(tables: Any) -> list[str]:
  """Returns the keys of several tables, in the order of first occurrence."""
  return list(dict.fromkeys(key for table in tables for key in table))
