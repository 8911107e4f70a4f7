"""Shows a comparison of systems as tables, and writes it to a file."""

from collections.abc import Iterator, Sequence
import dataclasses
import os
import pathlib
from typing import Any

from xjax.core.atomic import write_json
from xjax.judge.comparison import FEWEST_LABELS, Gain, SystemDifference
from xjax.judge.judge import PROTOCOL
from xjax.judge.metrics.metric import uses_propensities
from xjax.report.run_comparison import RunComparison, SeedEstimate
from xjax.report.table import MISSING, Cell, Table, number_cell, plain_text
from xjax.report.terminal.judgement import recall_lines

# (bound, stars): a p-value below the bound gets these stars.
_STARS = ((0.01, '**'), (0.05, '*'))


def comparison_text(compared: RunComparison) -> str:
  """Returns the tables and remarks of a comparison as text."""
  base = compared.groups[0].name
  first = compared.tested[base]
  split = f', {first.split}' if first.split else ''
  heading = (
    f'baseline {base}{split}: {len(first.predictions):,} documents, '
    f'{len(first.predictions.labels):,} labels\nprotocol: {PROTOCOL}'
  )
  tables = [
    f'{title}\n{plain_text(table)}'.lstrip()
    for title, table in _tables(compared).items()
  ]
  return '\n\n'.join([heading, *tables, '\n'.join(_remarks(compared))])


def _tables(compared: RunComparison) -> dict[str, Table]:
  base, results = compared.groups[0].name, compared.comparison
  tables = {
    '': difference_table(results.differences, base),
    'Relative improvement in macro-F1, by training documents of a label': (
      gain_table(results.gains, base)
    ),
    'Runs that differ in their seeds': seed_table(compared.seeds),
  }
  return {k: table for k, table in tables.items() if table.rows or not k}


def _remarks(compared: RunComparison) -> Iterator[str]:
  plan = compared.plan
  yield (
    f'95% intervals are by paired bootstrap over documents with '
    f'{plan.replicates:,} replicates; p-values are by two-sided approximate '
    f'randomization with {plan.iterations:,} iterations; the seed is '
    f'{plan.seed}'
  )
  if any(gain.t_p is not None for gain in compared.comparison.gains):
    yield (
      'p-values of bins are by macro t-test over labels, for bins with '
      f'{FEWEST_LABELS} or more labels'
    )
  stars = ', '.join(f'{star} p < {p:g}' for p, star in reversed(_STARS))
  several = len(compared.groups) > 2
  yield stars + (
    ", after Holm's correction over the systems" if several else ''
  )
  yield from _weight_remarks(compared)
  for group in compared.groups:
    tested = compared.tested[group.name].predictions
    if tested.is_approximate:
      yield (
        f'{group.name}: {tested.selection}; labels with high scores may be '
        'missing'
      )
    for line in recall_lines(tested.recalls):
      yield f'{group.name}: {line}'
    if len(group.runs) > 1:
      run = compared.tested[group.name]
      yield f'{group.name}: tests use {run.path}, the best run on dev'
  yield from _why_missing(compared.comparison.differences)


def _weight_remarks(compared: RunComparison) -> Iterator[str]:
  """Yields a line about the label weights, if a metric depends on them."""
  if any(map(uses_propensities, compared.plan.metrics)):
    if any(run.weight_of for run in compared.groups[0].runs):
      yield 'label weights are from --inv_prop'
    else:
      a, b = compared.plan.propensity
      yield f'propensities: A {a:g}, B {b:g}'


def _why_missing(rows: Sequence[SystemDifference]) -> Iterator[str]:
  metrics: dict[tuple[str, str], dict[str, None]] = {}
  for row in rows:
    if row.note:
      metrics.setdefault((row.slice, row.note), {})[row.metric] = None
  for (slice_name, note), names in metrics.items():
    yield f'{MISSING} {slice_name}, {", ".join(names)}: {note}'


def difference_table(rows: Sequence[SystemDifference], baseline: str) -> Table:
  """Returns a table of differences: a row per slice, metric and system."""
  return _change_table(
    ('slice', 'metric', 'system', baseline, 'value', 'difference'),
    [
      (row, (row.slice, row.metric, row.system), row.difference, row.p)
      for row in rows
    ],
    n_text=3,
  )


def gain_table(rows: Sequence[Gain], baseline: str) -> Table:
  """Returns a table of relative gains: a row per frequency bin and system."""
  return _change_table(
    ('metric', 'system', 'labels', baseline, 'value', 'change'),
    [
      (row, (row.metric, row.system, row.n_labels), row.relative, row.t_p)
      for row in rows
    ],
    n_text=2,
    percent=True,
  )


def _change_table(
  columns: Sequence[str],
  changes: Sequence[tuple[SystemDifference | Gain, tuple, Any, Any]],
  n_text: int,
  percent: bool = False,
) -> Table:
  """Returns a table of (row, its first cells, its change, its p-value)."""
  several = len({row.system for row, *_ in changes}) > 1
  form = '+.1%' if percent else '+.4f'
  rows = []
  for row, first, change, p in changes:
    ends = MISSING
    if row.interval is not None:
      ends = f'[{row.interval.low:{form}}, {row.interval.high:{form}}]'
    rows.append(
      [
        *first,
        number_cell(row.baseline),
        number_cell(row.value),
        None if change is None else Cell(f'{change:{form}}', change),
        ends,
        _p(p),
        *([_p(row.holm)] if several else ()),
        stars(row.holm),
      ]
    )
  columns = *columns, 'interval', 'p', *(['Holm p'] if several else ()), ''
  return Table.of(columns, rows, n_text)


def seed_table(rows: Sequence[SeedEstimate]) -> Table:
  """Returns a table of the means over runs that differ only in their seeds."""
  return Table.of(
    ('slice', 'metric', 'system', 'mean', 'standard error', 'runs'),
    [
      [
        *(row.slice, row.metric, row.system),
        number_cell(row.estimate.mean),
        number_cell(row.estimate.error),
        row.estimate.n,
      ]
      for row in rows
    ],
    n_text=3,
  )


def stars(p: float | None) -> str:
  """Returns the stars that show how significant a p-value is."""
  if p is None:
    return ''
  return next((star for bound, star in _STARS if p < bound), '')


def _p(value: float | None) -> Cell:
  if value is None:
    return Cell(MISSING)
  return Cell('< 0.0001' if value < 5e-5 else f'{value:.4f}', value)


def save_comparison(compared: RunComparison, folder: str | os.PathLike) -> None:
  """Writes comparison.json to a folder."""
  path = pathlib.Path(os.path.expanduser(folder)) / 'comparison.json'
  write_json(path, comparison_json(compared))


def comparison_json(compared: RunComparison) -> dict[str, Any]:
  """Returns the comparison as JSON values: settings, systems and tables."""
  first = compared.tested[compared.groups[0].name]
  return {
    'baseline': compared.groups[0].name,
    'split': first.split,
    'n_docs': len(first.predictions),
    'n_labels': len(first.predictions.labels),
    'plan': dataclasses.asdict(compared.plan),
    'systems': {
      group.name: {
        'runs': [str(run.path) for run in group.runs],
        'tested': str(compared.tested[group.name].path),
        'selected_by': compared.tested[group.name].predictions.selected_by,
        'recalls': compared.tested[group.name].predictions.recalls,
      }
      for group in compared.groups
    },
    'differences': [
      dataclasses.asdict(row) for row in compared.comparison.differences
    ],
    'gains': [dataclasses.asdict(row) for row in compared.comparison.gains],
    'seeds': [dataclasses.asdict(row) for row in compared.seeds],
  }
