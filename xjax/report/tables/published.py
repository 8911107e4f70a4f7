"""The result tables of five papers as data, to stand beside our own numbers.

A file of papers/ is one paper: a row per table, dataset, split, slice and
system, and a column per metric, named as in metrics.json. Values are fractions
as printed, neither averaged nor corrected; `<metric> se` is the standard error
printed with it. What the text of a paper does not give is empty.

PSP and PSnDCG stand for the ratio over the best achievable: that is what the
tables hold, although the formulas printed beside some leave it out.
"""

import collections
from collections.abc import Collection, Mapping, Sequence
import csv
import dataclasses
import functools
import importlib.resources
import re

from xjax.judge.judge import judge
from xjax.judge.metrics.contract import Protocol, kind_of
from xjax.judge.metrics.protocols import LMTC, NAPKINXC, PYXCLIB, XJAX
from xjax.report.page.page import Cell, Fold, Table, Text, number_cell
from xjax.report.runs import Estimate, Group, group_metrics

_ERROR = ' se'
_KEYS = ('table', 'dataset', 'split', 'slice', 'system', 'note')


@dataclasses.dataclass(frozen=True)
class Paper:
  """Where numbers were printed.

  Attributes:
    file: name in papers/, without its ending.
    authors: short.
    year: None where the copy at hand has no date.
    title: of the paper.
    protocol: the tool whose conventions its numbers follow; our own where the
      paper says of none that they differ.
  """

  file: str
  authors: str
  year: int | None
  title: str
  protocol: Protocol = XJAX

  def __str__(self) -> str:
    return f'{self.authors} {self.year}' if self.year else self.authors


PAPERS = (
  Paper(
    'chalkidis2019',
    'Chalkidis et al.',
    2019,
    'Large-Scale Multi-Label Text Classification on EU Legislation',
    LMTC,
  ),
  Paper(
    'tail_labels',
    'Anonymous ACL submission',
    None,
    'Re-evaluating Extreme Multi-label Text Classification Methods in Tail '
    'Label Prediction',
  ),
  Paper(
    'bertalis',
    'Bertalis et al.',
    None,
    'Hierarchical Text Classification (HTC) vs. eXtreme Multilabel '
    'Classification (XML): Two Sides of the Same Medal',
  ),
  Paper(
    'schultheis2022',
    'Schultheis et al.',
    2022,
    'Beyond Standard Performance Measures in Extreme Multi-label '
    'Classification',
    NAPKINXC,
  ),
  Paper(
    'bhatia2016',
    'Bhatia et al.',
    2016,
    'The Extreme Classification Repository: Multi-label Datasets & Code',
    PYXCLIB,
  ),
)


@dataclasses.dataclass(frozen=True)
class Published:
  """One system's row of a printed table.

  Attributes:
    paper: where.
    table: its number; '' for tables without one.
    dataset: name, one spelling for all papers.
    split: test, but for one table on dev.
    slice: all, frequent, few or zero.
    system: as the paper calls it.
    values: metric -> fraction.
    errors: metric -> standard error of the value, where printed.
    note: on what was printed; mostly ''.
  """

  paper: Paper
  table: str
  dataset: str
  split: str
  slice: str
  system: str
  values: Mapping[str, float]
  errors: Mapping[str, float]
  note: str


@functools.cache
def published() -> tuple[Published, ...]:
  """All rows, in the papers' order."""
  folder = importlib.resources.files('xjax.report') / 'papers'
  rows = []
  for paper in PAPERS:
    text = (folder / f'{paper.file}.csv').read_text('utf-8')
    rows += [_row(paper, row) for row in csv.DictReader(text.splitlines())]
  return tuple(rows)


def _row(paper: Paper, row: Mapping[str, str]) -> Published:
  numbers = {
    name: float(text)
    for name, text in row.items()
    if name not in _KEYS and text
  }
  return Published(
    paper=paper,
    **{key: row[key] for key in _KEYS},
    values={m: v for m, v in numbers.items() if not m.endswith(_ERROR)},
    errors={
      m.removesuffix(_ERROR): v
      for m, v in numbers.items()
      if m.endswith(_ERROR)
    },
  )


def datasets() -> tuple[str, ...]:
  """The datasets there are numbers of, sorted."""
  return tuple(sorted({row.dataset for row in published()}))


def find_dataset(name: str) -> str | None:
  """The dataset of this name, whatever its case and punctuation."""
  spelled = {_plain(known): known for known in datasets()}
  return spelled.get(_plain(name))


def _plain(name: str) -> str:
  return re.sub(r'[^a-z0-9.]', '', name.casefold())


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
