"""Published numbers beside ours, a table per printed table."""

import collections
from collections.abc import Mapping, Sequence

from xjax.report.collect import Estimate, Group, group_metrics
from xjax.report.page import Cell, Fold, Table, Text, number_cell
from xjax.report.published import Published, published

_WIDEST = 12  # columns of metrics on a page
# A system, its colour, and its slices' metrics.
_Ours = tuple[Group, str, Mapping[str, Mapping[str, Estimate]]]


def published_folds(
  dataset: str,
  groups: Sequence[Group],
  colours: Mapping[str, str],
  protocol: str,
) -> list[Fold]:
  """A fold per printed table of a dataset, the first one open.

  Our systems come first, then the table's rows in its order. Columns are the
  printed metrics, by slice.

  Args:
    dataset: a name in published.datasets().
    groups: our systems.
    colours: name of each -> its colour.
    protocol: by which ours are judged.
  """
  ours = [
    (group, colours[group.name], group_metrics(group, protocol))
    for group in groups
  ]
  tables: dict[tuple, list[Published]] = {}
  for row in published():
    if row.dataset == dataset:
      tables.setdefault((row.paper, row.table, row.split), []).append(row)
  return [
    Fold(
      f'{paper}, {f"Table {table}" if table else "benchmarks"} ({split})',
      [Text(f'{paper.title}. Ours are marked.'), *_tables(rows, ours)],
      open=not n,
    )
    for n, ((paper, table, split), rows) in enumerate(tables.items())
  ]


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
