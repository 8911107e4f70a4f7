"""Shows the metrics of systems as tables, and says why values are missing."""

from collections.abc import Mapping, Sequence
from typing import Any

from xjax.judge.judge import ECE, INTERVALS, NOTES
from xjax.report.page.page import Cell, Fold, Listing, Table, number_cell
from xjax.report.runs import Estimate, Group, group_metrics, protocols
from xjax.report.tables.plain import users_metrics

# The main table has the metrics of _AT_K at the usual cut-off, and the metrics
# of _OTHERS, which have no cut-off. It also has P at the smallest cut-off.
_AT_K = ('P', 'R', 'RP', 'nDCG', 'PSP', 'macro-F1', 'coverage')
_OTHERS = ('R-Precision', 'micro-F1', 'macro-F1')
USUAL_K = 5
_NARROW = ',\n'  # separates the ends of an interval in tables with many columns
# Slice -> metric -> estimate over the runs.
Slices = Mapping[str, Mapping[str, Estimate]]
# Slice -> metric -> [low, high].
Intervals = Mapping[str, Mapping[str, Sequence[float]]]
_COUNTS = {
  'n_docs': 'documents with gold',
  'n_skipped': 'documents without gold',
  'n_labels': 'labels',
}


def main_table(
  tables: Mapping[str, Slices],
  colours: Mapping[str, str] | None = None,
  seeds: Mapping[str, str] | None = None,
  intervals: Mapping[str, Intervals] | None = None,
) -> Table:
  """Returns the table of the main metrics, with a row per slice and system.

  If there are several systems, the best value of each metric is bold in each
  slice.

  Args:
    tables: name of a system -> its metrics, as returned by group_metrics.
    colours: name of a system -> colour of its mark; None for no marks.
    seeds: name of a system -> text below the name; None for no texts.
    intervals: name of a system -> intervals of its metrics; None for none.
  """
  colours, seeds, intervals = colours or {}, seeds or {}, intervals or {}
  slices = _union(tables.values())
  columns = _main_columns([v for t in tables.values() for v in t.values()])
  rows = []
  for name in slices:
    values_of = {system: t[name] for system, t in tables.items() if name in t}
    best = {metric: _best(metric, values_of) for metric in columns}
    for n, (system, values) in enumerate(values_of.items()):
      labels = values.get('n_labels', Estimate(None, None, 0)).mean
      ends = intervals.get(system, {}).get(name, {})
      rows.append(
        [
          Cell(name if not n else '', below=_labels(labels) if not n else ''),
          Cell(
            system, below=seeds.get(system, ''), colour=colours.get(system, '')
          ),
          *(
            _cell(values.get(m), ends.get(m), best[m], _NARROW) for m in columns
          ),
        ]
      )
  starts = (n for n, row in enumerate(rows) if n and row[0].text)
  return Table(
    ('slice', 'system', *columns), rows, n_text=2, starts=frozenset(starts)
  )


def _labels(n: int | float | None) -> str:
  return f'{n:,} labels' if n is not None else ''


def _main_columns(values: Sequence[Mapping[str, Estimate]]) -> list[str]:
  names = _union(values)
  ks = sorted({int(n[2:]) for n in names if n.startswith('P@')})
  if not ks:
    return [name for name in names if name in _OTHERS]
  k = USUAL_K if USUAL_K in ks else ks[-1]
  first = [f'P@{ks[0]}'] if ks[0] != k else []
  at_k = (f'{kind}@{k}' for kind in _AT_K)
  columns = (*first, *at_k, *_OTHERS, *users_metrics(names, k))
  return [name for name in columns if name in names]


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
    for slice_name in _union(group_metrics(g, protocol) for g in groups)
  ]


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
    best = _best(metric, values_of)
    rows.append(
      [
        Cell(_COUNTS.get(metric, metric)),
        *(
          _cell(
            values_of[group.name].get(metric),
            _interval(group, protocol, slice_name, metric),
            best,
          )
          for group in groups
        ),
      ]
    )
  heads = (f'{g.name}\n{g.seeds}'.rstrip() for g in groups)
  return Table(('metric', *heads), rows)


def _cell(
  value: Estimate | None,
  interval: Sequence[float] | None,
  best: float | None,
  between: str = ', ',
) -> Cell:
  if value is None:
    return number_cell(None)
  below = ''
  if value.error is not None and type(value.mean) is float:
    below = f'± {value.error:.4f}'
  elif interval is not None and value.mean is not None:
    below = f'[{interval[0]:.4f}{between}{interval[1]:.4f}]'
  is_best = best is not None and value.mean == best
  return number_cell(value.mean, below=below, best=is_best)


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


def _best(
  metric: str, values_of: Mapping[str, Mapping[str, Estimate]]
) -> float | None:
  """Returns the largest value of a metric, or None.

  The function returns None if all values are equal, or if a larger value is not
  better.
  """
  if metric in _COUNTS or metric.startswith(('threshold', ECE)):
    return None
  means = [
    v[metric].mean
    for v in values_of.values()
    if metric in v and v[metric].mean is not None
  ]
  return max(means) if len(set(means)) > 1 else None


def note_listing(groups: Sequence[Group]) -> Listing:
  """Returns a list that explains missing values.

  The list has an item per run, slice and reason.
  """
  items = []
  for group in groups:
    for run in group.runs:
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
