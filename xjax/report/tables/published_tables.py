"""Published numbers beside ours, a table per printed table."""

import collections
from collections.abc import Collection, Mapping, Sequence
import dataclasses
import re

from xjax.judge.judge import judge
from xjax.judge.metrics.protocols import XJAX, kind_of
from xjax.report.page.page import Cell, Fold, Table, Text, number_cell
from xjax.report.runs import Estimate, Group, group_metrics
from xjax.report.tables.published import Paper, Published, published

_WIDEST = 12  # columns of metrics on a page
# A system, its colour, and its slices' metrics.
_Ours = tuple[Group, str, Mapping[str, Mapping[str, Estimate]]]


def published_folds(
  dataset: str, groups: Sequence[Group], colours: Mapping[str, str]
) -> list[Fold]:
  """A fold per printed table of a dataset, the first one open.

  Our systems come first, judged by the paper's conventions, then the table's
  rows in its order. Columns are the printed metrics, by slice.

  Args:
    dataset: a name in published.datasets().
    groups: our systems.
    colours: name of each -> its colour.
  """
  tables: dict[tuple, list[Published]] = {}
  for row in published():
    if row.dataset == dataset:
      tables.setdefault((row.paper, row.table, row.split), []).append(row)
  metrics: dict[Paper, dict[str, None]] = {}
  for (paper, *_), rows in tables.items():
    names = (metric for row in rows for metric in row.values)
    metrics.setdefault(paper, {}).update(dict.fromkeys(names))
  ours = {
    paper: [(g, colours[g.name], _judged(g, paper, names)) for g in groups]
    for paper, names in metrics.items()
  }
  return [
    Fold(
      f'{paper}, {f"Table {table}" if table else "benchmarks"} ({split})',
      [
        Text(f'{paper.title}. {_by_whom(paper, metrics[paper])}'),
        *_tables(rows, ours[paper]),
      ],
      open=not n,
    )
    for n, ((paper, table, split), rows) in enumerate(tables.items())
  ]


def _judged(
  group: Group, paper: Paper, metrics: Collection[str]
) -> dict[str, dict[str, Estimate]]:
  """Slice -> metric -> what the runs say of it, by the paper's conventions.

  What the tool does not print is by our own.
  """
  ks = {int(k) for name in metrics for k in re.findall(r'@(\d+)', name)}
  runs = []
  for run in group.runs:
    criteria = dataclasses.replace(
      run.criteria,
      ks=tuple(sorted(ks)) or run.criteria.ks,
      kinds=tuple(set(map(kind_of, metrics))),
      protocols=tuple(dict.fromkeys((paper.protocol, XJAX))),
      slices={},
      replicates=0,
    )
    found = judge(run.predictions, criteria)
    runs.append(dataclasses.replace(run, metrics=found))
  both = Group(group.name, tuple(runs))
  own, theirs = (group_metrics(both, p.name) for p in (XJAX, paper.protocol))
  return {name: values | theirs.get(name, {}) for name, values in own.items()}


def _by_whom(paper: Paper, metrics: Collection[str]) -> str:
  """Whose conventions ours follow, which are marked."""
  tool = paper.protocol
  if tool is XJAX:
    return 'Ours are marked, judged by our own conventions (xjax).'
  said = f'Ours are marked, judged by the conventions of {tool.title}'
  others = [name for name in metrics if not tool.prints(name)]
  return (
    f'{said}; {", ".join(others)}, which it does not print, by xjax.'
    if others
    else f'{said}.'
  )


def _tables(rows: Sequence[Published], ours: Sequence[_Ours]) -> list[Table]:
  """One, or several where a page is too narrow."""
  columns = list(
    dict.fromkeys((row.slice, metric) for row in rows for metric in row.values)
  )
  one_slice = len({name for name, _ in columns}) == 1
  n_parts = -(-len(columns) // _WIDEST)
  width = -(-len(columns) // n_parts)
  return [
    Table(
      ('system', *(m if one_slice else f'{n}\n{m}' for n, m in part)),
      [
        *(_our_row(each, part) for each in ours),
        *_printed_rows(rows, part),
      ],
      marked=frozenset(range(len(ours))),
    )
    for part in (columns[i : i + width] for i in range(0, len(columns), width))
  ]


def _our_row(ours: _Ours, columns: Sequence[tuple[str, str]]) -> list[Cell]:
  group, colour, found = ours
  cells = [_our_cell(found.get(name, {}).get(m)) for name, m in columns]
  split = f' ({group.first.split})' if group.first.split else ''
  who = Cell(group.name + split, below=group.seeds, colour=colour)
  return [who, *cells]


def _our_cell(value: Estimate | None) -> Cell:
  if value is None:
    return number_cell(None)
  error = '' if value.error is None else f'± {value.error:.4f}'
  return number_cell(value.mean, below=error)


def _printed_rows(
  rows: Sequence[Published], columns: Sequence[tuple[str, str]]
) -> list[list[Cell]]:
  """One per system: its slices stand in one row, as in print."""
  decimals = max(_decimals(v) for row in rows for v in row.values.values())
  seen = collections.Counter()
  systems: dict[tuple[str, int], dict[str, Published]] = {}
  for row in rows:
    # A system that is printed twice has two rows.
    key = row.system, seen[row.system, row.slice]
    systems.setdefault(key, {})[row.slice] = row
    seen[row.system, row.slice] += 1
  return [
    [
      Cell(name, below='; '.join(r.note for r in found.values() if r.note)),
      *(_printed_cell(found.get(at), m, decimals) for at, m in columns),
    ]
    for (name, _), found in systems.items()
  ]


def _decimals(value: float) -> int:
  return len(repr(value).partition('.')[2])


def _printed_cell(row: Published | None, metric: str, decimals: int) -> Cell:
  """With as many decimals as its table was printed with."""
  if row is None or metric not in row.values:
    return number_cell(None)
  error = row.errors.get(metric)
  below = '' if error is None else f'± {error:.4f}'
  value = row.values[metric]
  return Cell(f'{value:.{decimals}f}', value, below)
