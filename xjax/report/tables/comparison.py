"""Shows a comparison of systems as tables, and writes it to files."""

from collections.abc import Iterator, Sequence
import dataclasses
import os
import pathlib
from typing import Any

from xjax.core.atomic import atomic_write, write_json
from xjax.data.files.csv_file import write_csv
from xjax.judge.comparison import FEWEST_LABELS, Gain, SystemDifference
from xjax.judge.judge import PROTOCOL
from xjax.judge.metrics.metric import is_weighed
from xjax.judge.metrics.significance import Interval
from xjax.judge.metrics.slices import ALL
from xjax.report.comparison import Compared, SeedEstimate
from xjax.report.page.latex import render_latex
from xjax.report.page.page import MISSING, Cell, Table, number_cell
from xjax.report.runs import protocols
from xjax.report.tables.plain import recall_lines
from xjax.report.tables.protocols import plain_table

# (bound, stars): a p-value below the bound gets these stars.
_STARS = ((0.01, '**'), (0.05, '*'))
_COLUMNS = (
  *('kind', 'slice', 'metric', 'system', 'baseline', 'value', 'change'),
  *('low', 'high', 'error', 'p', 'holm', 'note'),
)
JSON, CSV, LATEX = 'comparison.json', 'comparison.csv', 'comparison.tex'


def comparison_text(compared: Compared) -> str:
  """Returns the tables and remarks of a comparison as text."""
  differences, gains = (
    compared.comparison.differences,
    compared.comparison.gains,
  )
  base = compared.groups[0].name
  parts = [_heading(compared), plain_table(difference_table(differences, base))]
  if gains:
    parts.append(
      'Relative improvement in macro-F1, by training documents of a label\n'
      + plain_table(gain_table(gains, base))
    )
  if compared.seeds:
    parts.append(
      'Runs that differ in their seeds\n'
      + plain_table(seed_table(compared.seeds))
    )
  return '\n\n'.join([*parts, '\n'.join(_remarks(compared))])


def _heading(compared: Compared) -> str:
  first = compared.tested[compared.groups[0].name]
  split = f', {first.split}' if first.split else ''
  return (
    f'baseline {compared.groups[0].name}{split}: '
    f'{len(first.predictions):,} documents, '
    f'{len(first.predictions.labels):,} labels\nprotocol: {PROTOCOL}'
  )


def _remarks(compared: Compared) -> Iterator[str]:
  plan = compared.plan
  yield (
    f'{plan.level:.0%} intervals are by paired bootstrap over documents with '
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
    judged = protocols(group.first.metrics)
    if judged and judged != [PROTOCOL]:
      yield (
        f'{group.name} was judged under {", ".join(judged)}; all values here '
        f'are under {PROTOCOL}'
      )
    yield from (run.remark for run in group.runs if run.remark)
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


def _weight_remarks(compared: Compared) -> Iterator[str]:
  """Yields a line about the label weights, if a metric depends on them."""
  if any(map(is_weighed, compared.plan.metrics)):
    if any(run.weights_L is not None for run in compared.groups[0].runs):
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
  several = len({row.system for row in rows}) > 1
  holm = ('Holm p',) if several else ()
  return Table(
    ('slice', 'metric', 'system', baseline, 'value', 'difference', 'interval')
    + ('p', *holm, ''),
    [
      [
        *map(Cell, (row.slice, row.metric, row.system)),
        number_cell(row.baseline),
        number_cell(row.value),
        _signed(row.difference),
        _interval(row.interval),
        _p(row.p),
        *([_p(row.holm)] if several else ()),
        Cell(stars(row.holm)),
      ]
      for row in rows
    ],
    n_text=3,
  )


def value_table(compared: Compared) -> Table:
  """Returns a table of values: a row per slice and system, a column per metric.

  Stars after a value show that it differs significantly from the baseline's.
  """
  base, metrics = compared.groups[0].name, compared.plan.metrics
  rows_of: dict[str, dict[str, dict[str, Cell]]] = {}
  for row in compared.comparison.differences:
    slice_rows = rows_of.setdefault(row.slice, {base: {}})
    slice_rows[base][row.metric] = number_cell(row.baseline)
    slice_rows.setdefault(row.system, {})[row.metric] = number_cell(
      row.value, below=stars(row.holm)
    )
  rows, starts = [], []
  for name, systems in rows_of.items():
    starts.append(len(rows))
    rows += [
      [
        Cell(name if who == base else ''),
        Cell(who),
        *(values.get(metric, number_cell(None)) for metric in metrics),
      ]
      for who, values in systems.items()
    ]
  columns = 'slice', 'system', *metrics
  return Table(columns, rows, n_text=2, starts=frozenset(starts[1:]))


def gain_table(rows: Sequence[Gain], baseline: str) -> Table:
  """Returns a table of relative gains: a row per frequency bin and system."""
  several = len({row.system for row in rows}) > 1
  holm = ('Holm p',) if several else ()
  return Table(
    ('metric', 'system', 'labels', baseline, 'value', 'change', 'interval')
    + ('p', *holm, ''),
    [
      [
        *map(Cell, (row.metric, row.system)),
        Cell(f'{row.n_labels:,}', row.n_labels),
        number_cell(row.baseline),
        number_cell(row.value),
        _signed(row.relative, percent=True),
        _interval(row.interval, percent=True),
        _p(row.t_p),
        *([_p(row.holm)] if several else ()),
        Cell(stars(row.holm)),
      ]
      for row in rows
    ],
    n_text=2,
  )


def seed_table(rows: Sequence[SeedEstimate]) -> Table:
  """Returns a table of the means over runs that differ only in their seeds."""
  return Table(
    ('slice', 'metric', 'system', 'mean', 'standard error', 'runs'),
    [
      [
        *map(Cell, (row.slice, row.metric, row.system)),
        number_cell(row.estimate.mean),
        number_cell(row.estimate.error),
        Cell(str(row.estimate.n), row.estimate.n),
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


def _signed(value: float | None, percent: bool = False) -> Cell:
  if value is None:
    return Cell(MISSING)
  return Cell(f'{value:+.1%}' if percent else f'{value:+.4f}', value)


def _interval(interval: Interval | None, percent: bool = False) -> Cell:
  if interval is None:
    return Cell(MISSING)
  low, high = (
    _signed(end, percent).text for end in (interval.low, interval.high)
  )
  return Cell(f'[{low}, {high}]')


def _p(value: float | None) -> Cell:
  if value is None:
    return Cell(MISSING)
  return Cell('< 0.0001' if value < 5e-5 else f'{value:.4f}', value)


def save_comparison(compared: Compared, folder: str | os.PathLike) -> None:
  """Writes comparison.json, comparison.csv and comparison.tex to a folder."""
  folder = pathlib.Path(os.path.expanduser(folder))
  write_json(folder / JSON, comparison_json(compared))
  write_csv(folder / CSV, _COLUMNS, _csv_rows(compared))
  base, results = compared.groups[0].name, compared.comparison
  values = render_latex(value_table(compared), percent=True)
  tables = [difference_table(results.differences, base)]
  tables += [gain_table(results.gains, base)] if results.gains else []
  tables += [seed_table(compared.seeds)] if compared.seeds else []
  with atomic_write(folder / LATEX) as file:
    file.write('\n'.join([values, *map(render_latex, tables)]))


def comparison_json(compared: Compared) -> dict[str, Any]:
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


def _csv_rows(compared: Compared) -> Iterator[tuple[Any, ...]]:
  for row in compared.comparison.differences:
    yield (
      *('difference', row.slice, row.metric, row.system, row.baseline),
      *(row.value, row.difference, *_ends(row.interval)),
      *(row.p, row.holm, row.note),
    )
  for row in compared.comparison.gains:
    yield (
      *('gain', ALL, row.metric, row.system, row.baseline),
      *(row.value, row.relative, *_ends(row.interval)),
      *(row.t_p, row.holm, ''),
    )


def _ends(interval: Interval | None) -> tuple[Any, ...]:
  return (None,) * 3 if interval is None else dataclasses.astuple(interval)
