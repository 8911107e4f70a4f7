"""Metrics of systems as tables, and why values are missing."""

from collections.abc import Mapping, Sequence
from typing import Any

from xjax.judge.judge import INTERVALS, NOTES
from xjax.report.page.page import Cell, Fold, Listing, Table, number_cell
from xjax.report.runs import Estimate, Group, group_metrics, protocols
from xjax.report.tables.plain import users_metrics

# What a reader looks at first, each at the first and at the usual cut-off.
_AT_K = ('P', 'R', 'RP', 'nDCG', 'PSP', 'macro-F1', 'coverage')
_OTHERS = ('R-Precision', 'micro-F1', 'macro-F1')
USUAL_K = 5
_NARROW = ',\n'  # between the ends of intervals where columns are many
# Slice -> metric -> what the runs say of it.
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
  sure: Mapping[str, Intervals] | None = None,
) -> Table:
  """A row per slice and system, a column per metric of those looked at first.

  The best of a slice is bold where there are several systems.

  Args:
    tables: name of each system -> its metrics, as of group_metrics.
    colours: name -> colour of its mark; None: no marks.
    seeds: name -> what stands below it; None: nothing.
    sure: name -> intervals of its metrics; None: there are none.
  """
  colours, seeds, sure = colours or {}, seeds or {}, sure or {}
  slices = _union(tables.values())
  columns = _main_columns([v for t in tables.values() for v in t.values()])
  rows = []
  for name in slices:
    found = {who: t[name] for who, t in tables.items() if name in t}
    best = {metric: _best(metric, found) for metric in columns}
    for n, (who, values) in enumerate(found.items()):
      labels = values.get('n_labels', Estimate(None, None, 0)).mean
      ends = sure.get(who, {}).get(name, {})
      rows.append(
        [
          Cell(name if not n else '', below=_labels(labels) if not n else ''),
          Cell(who, below=seeds.get(who, ''), colour=colours.get(who, '')),
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
  names = list(dict.fromkeys(metric for each in values for metric in each))
  ks = sorted({int(n[2:]) for n in names if n.startswith('P@')})
  if not ks:
    return [name for name in names if name in _OTHERS]
  k = USUAL_K if USUAL_K in ks else ks[-1]
  first = [f'P@{ks[0]}'] if ks[0] != k else []
  at_k = (f'{kind}@{k}' for kind in _AT_K)
  wanted = (*first, *at_k, *_OTHERS, *users_metrics(names, k))
  return [name for name in wanted if name in names]


def full_tables(groups: Sequence[Group]) -> list[Fold]:
  """Every metric of every slice under every protocol, to be unfolded."""
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
  """A row per metric of one slice, a column per system."""
  found = {
    group.name: group_metrics(group, protocol).get(slice_name, {})
    for group in groups
  }
  rows = []
  for metric in _union(found.values()):
    best = _best(metric, found)
    rows.append(
      [
        Cell(_COUNTS.get(metric, metric)),
        *(
          _cell(
            found[group.name].get(metric),
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
  """[low, high] of a metric where metrics.json has intervals, else None."""
  return intervals_of(metrics, protocol).get(slice_name, {}).get(metric)


def intervals_of(metrics: Mapping[str, Any], protocol: str) -> Intervals:
  """Slice -> metric -> [low, high] of a metrics.json; empty: it has none."""
  return metrics.get(INTERVALS, {}).get(protocol, {})


def _best(
  metric: str, found: Mapping[str, Mapping[str, Estimate]]
) -> float | None:
  """The largest, unless all are the same, or it is not for being large."""
  if metric in _COUNTS or metric.startswith('threshold'):
    return None
  means = [
    v[metric].mean
    for v in found.values()
    if metric in v and v[metric].mean is not None
  ]
  return max(means) if len(set(means)) > 1 else None


def note_listing(groups: Sequence[Group]) -> Listing:
  """Why values are missing, a point per system, slice and reason."""
  items = []
  for group in groups:
    for run in group.runs:
      for slice_name, reasons in run.metrics.get(NOTES, {}).items():
        by_reason: dict[str, list[str]] = {}
        for metric, reason in reasons.items():
          by_reason.setdefault(reason, []).append(metric)
        items += [
          f'{run.name}, {slice_name}: {_some(metrics)}: {reason}'
          for reason, metrics in by_reason.items()
        ]
  return Listing(items)


def _some(metrics: Sequence[str], most: int = 6) -> str:
  more = f' and {len(metrics) - most} more' if len(metrics) > most else ''
  return ', '.join(metrics[:most]) + more


def _union(tables: Any) -> list[str]:
  """The keys of several tables, in the order they are first met."""
  return list(dict.fromkeys(key for table in tables for key in table))
