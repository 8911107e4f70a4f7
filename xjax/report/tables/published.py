"""Compares systems with the results that are printed in papers.

Each file in papers/ has the numbers of one paper. A file has a row per table,
dataset, split, slice and system, and a column per metric. Values are the
printed values, as fractions; they are neither averaged nor corrected. The
column `<metric> se` has the standard errors that are printed with the values,
and `<metric> sd` the standard deviations. A cell is empty if the paper has no
value.

PSP and PSnDCG are divided by the best achievable value, as the printed values
are, although the formulas in some papers leave this out.
"""

import collections
from collections.abc import Collection, Mapping, Sequence
import csv
import dataclasses
import functools
import importlib.resources
import re

from xjax.judge.judge import judge
from xjax.judge.metrics.metric import Protocol, cut_offs, metric_kind
from xjax.judge.metrics.protocols import PROTOCOLS, XJAX
from xjax.report.page.page import Collapsible, Paragraph
from xjax.report.runs import Estimate, SystemRuns, group_metrics
from xjax.report.table import Cell, Table, number_cell

_ERROR, _DEVIATION = ' se', ' sd'
_KEYS = ('table', 'dataset', 'split', 'slice', 'system', 'note')


@dataclasses.dataclass(frozen=True)
class Paper:
  file: str  # name in papers/, without its suffix
  authors: str
  year: str  # '' if the paper has no date
  title: str
  protocol: Protocol  # XJAX if no convention that differs is mentioned
  deviates: bool  # whether ± is a deviation, with ddof 0, not an error

  def __str__(self) -> str:
    return f'{self.authors} {self.year}'.rstrip()


@functools.cache
def papers() -> tuple[Paper, ...]:
  """Returns the papers of papers/index.csv."""
  return tuple(
    Paper(
      **{name: row[name] for name in ('file', 'authors', 'year', 'title')},
      protocol=PROTOCOLS[row['protocol']],
      deviates=bool(row['deviates']),
    )
    for row in _rows('index')
  )


def _rows(name: str) -> list[dict[str, str]]:
  path = importlib.resources.files('xjax.report') / 'papers' / f'{name}.csv'
  return list(csv.DictReader(path.read_text('utf-8').splitlines()))


@dataclasses.dataclass(frozen=True)
class PublishedRow:
  paper: Paper
  table: str  # its number; '' if it has none
  dataset: str  # spelt the same for all papers
  split: str  # test, except for one table on dev
  slice: str  # all, frequent, few or zero
  system: str
  values: Mapping[str, float]  # metric -> fraction
  errors: Mapping[str, float]  # metric -> the number after ±
  note: str  # usually ''


@functools.cache
def published() -> tuple[PublishedRow, ...]:
  """Returns the rows of all papers, in the order of papers()."""
  return tuple(_row(p, row) for p in papers() for row in _rows(p.file))


def _row(paper: Paper, row: Mapping[str, str]) -> PublishedRow:
  numbers = {
    name: float(text)
    for name, text in row.items()
    if name not in _KEYS and text
  }
  spread = _DEVIATION if paper.deviates else _ERROR
  return PublishedRow(
    paper=paper,
    **{key: row[key] for key in _KEYS},
    values={m: v for m, v in numbers.items() if not m.endswith(spread)},
    errors={
      m.removesuffix(spread): v
      for m, v in numbers.items()
      if m.endswith(spread)
    },
  )


def datasets() -> tuple[str, ...]:
  """Returns the sorted names of the datasets that have published numbers."""
  return tuple(sorted({row.dataset for row in published()}))


def find_dataset(name: str) -> str | None:
  """Returns the dataset called `name`; case and punctuation do not count."""
  dataset_of = {_plain(dataset): dataset for dataset in datasets()}
  return dataset_of.get(_plain(name))


_SIZE = re.compile(r'-([\d.]+)([KM])$')
_UNITS = {'K': 1_000, 'M': 1_000_000}


def label_count(dataset: str) -> int | None:
  """Returns the number of labels in a dataset's name, such as 670,000."""
  size = _SIZE.search(dataset)
  return round(float(size[1]) * _UNITS[size[2]]) if size else None


def _plain(name: str) -> str:
  return re.sub(r'[^a-z0-9.]', '', name.casefold())


# One of the user's systems, its colour, and slice -> metric -> estimate.
_Ours = tuple[SystemRuns, str, Mapping[str, Mapping[str, Estimate]]]


def published_folds(
  dataset: str, groups: Sequence[SystemRuns], colours: Mapping[str, str]
) -> list[Collapsible]:
  """Returns a fold per printed table: the user's systems, then the paper's."""
  tables: dict[tuple, list[PublishedRow]] = {}
  for row in published():
    if row.dataset == dataset:
      tables.setdefault((row.paper, row.table, row.split), []).append(row)
  metrics: dict[Paper, dict[str, None]] = {}
  for (paper, *_), rows in tables.items():
    names = (metric for row in rows for metric in row.values)
    metrics.setdefault(paper, {}).update(dict.fromkeys(names))
  our_rows = {
    paper: [(g, colours[g.name], _judge_group(g, paper, names)) for g in groups]
    for paper, names in metrics.items()
  }
  return [
    Collapsible(
      f'{paper}, {f"Table {table}" if table else "benchmarks"} ({split})',
      [
        Paragraph(f'{paper.title}. {_conventions(paper, metrics[paper])}'),
        _table(rows, our_rows[paper]),
      ],
      open=not n,
    )
    for n, ((paper, table, split), rows) in enumerate(tables.items())
  ]


def _judge_group(
  group: SystemRuns, paper: Paper, metrics: Collection[str]
) -> dict[str, dict[str, Estimate]]:
  """Judges a system by a paper's conventions: slice -> metric -> estimate."""
  # Metrics that the paper's tool does not print follow xjax's protocol.
  runs = []
  for run in group.runs:
    criteria = dataclasses.replace(
      run.criteria,
      ks=cut_offs(metrics) or run.criteria.ks,
      kinds=tuple(set(map(metric_kind, metrics))),
      protocols=tuple(dict.fromkeys((paper.protocol, XJAX))),
      slices={},
      replicates=0,
    )
    judged = judge(run.predictions, criteria)
    runs.append(dataclasses.replace(run, metrics=judged))
  judged_group = SystemRuns(group.name, tuple(runs))
  ours, theirs = (
    group_metrics(judged_group, p.name) for p in (XJAX, paper.protocol)
  )
  return {name: values | theirs.get(name, {}) for name, values in ours.items()}


def _conventions(paper: Paper, metrics: Collection[str]) -> str:
  marked = 'The marked rows are your systems, judged by the'
  if paper.protocol is XJAX:
    spread = (
      ' Numbers after ± are standard deviations over runs. Their denominator '
      'is not stated; for your systems, it is the number of runs.'
    )
    return f'{marked} protocol of xjax.{spread * paper.deviates}'
  tool = paper.protocol
  sentence = f'{marked} conventions of {tool.title}.'
  others = [name for name in metrics if not tool.prints(name)]
  if others:
    sentence += (
      f' This tool does not print {", ".join(others)}; for these metrics, the '
      'protocol of xjax is used.'
    )
  return sentence


def _table(rows: Sequence[PublishedRow], ours: Sequence[_Ours]) -> Table:
  columns = list(
    dict.fromkeys((row.slice, metric) for row in rows for metric in row.values)
  )
  one_slice = len({name for name, _ in columns}) == 1
  return Table.of(
    ('system', *(m if one_slice else f'{n}\n{m}' for n, m in columns)),
    [
      *(_our_row(system, columns, rows[0].paper) for system in ours),
      *_printed_rows(rows, columns),
    ],
    marked=frozenset(range(len(ours))),
  )


def _spread(number: float | None) -> str:
  return '' if number is None else f'± {number:.4f}'


def _our_row(
  ours: _Ours, columns: Sequence[tuple[str, str]], paper: Paper
) -> list[Cell]:
  group, colour, values_of = ours
  split = f' ({group.first.split})' if group.first.split else ''
  row = [Cell(group.name + split, below=group.seeds, colour=colour)]
  for name, metric in columns:
    value = values_of.get(name, {}).get(metric, Estimate(None, None, 0))
    spread = value.deviation if paper.deviates else value.error
    row.append(number_cell(value.mean, below=_spread(spread)))
  return row


def _printed_rows(
  rows: Sequence[PublishedRow], columns: Sequence[tuple[str, str]]
) -> list[list[Cell]]:
  printed = [value for row in rows for value in row.values.values()]
  decimals = max(len(repr(value).partition('.')[2]) for value in printed)
  seen = collections.Counter()
  systems: dict[tuple[str, int], dict[str, PublishedRow]] = {}
  for row in rows:
    # If the paper prints a system twice for a slice, the system gets two rows.
    key = row.system, seen[row.system, row.slice]
    systems.setdefault(key, {})[row.slice] = row
    seen[row.system, row.slice] += 1
  table = []
  for (name, _), row_of in systems.items():
    notes = '; '.join(row.note for row in row_of.values() if row.note)
    cells = [Cell(name, below=notes)]
    for slice_name, metric in columns:
      row = row_of.get(slice_name)
      value = row.values.get(metric) if row else None
      below = _spread(row.errors.get(metric)) if value is not None else ''
      cells.append(number_cell(value, decimals, below=below))
    table.append(cells)
  return table
