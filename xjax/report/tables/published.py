"""The result tables of five papers as data, to stand beside our own numbers.

A file of papers/ is one paper: a row per table, dataset, split, slice and
system, and a column per metric, named as in metrics.json. Values are fractions
as printed, neither averaged nor corrected; `<metric> se` is the standard error
printed with it. What the text of a paper does not give is empty.

PSP and PSnDCG stand for the ratio over the best achievable: that is what the
tables hold, although the formulas printed beside some leave it out.
"""

from collections.abc import Mapping
import csv
import dataclasses
import functools
import importlib.resources
import re

from xjax.judge.metrics.protocols import LMTC, NAPKINXC, PYXCLIB, XJAX, Protocol

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
