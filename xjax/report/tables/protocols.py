"""Conventions side by side: a column per protocol, and why they differ."""

from collections.abc import Mapping, Sequence
import re
import textwrap
from typing import Any

from xjax.judge.judge import LISTS, NOTES, REASONS, SEARCH
from xjax.judge.metrics.protocols import PROTOCOLS
from xjax.report.page.page import Cell, Table, number_cell
from xjax.report.tables.metrics import interval_of
from xjax.report.tables.plain import align

WIDTH = 100  # of lines on the screen, where possible


def protocol_table(metrics: Mapping[str, Any], slice_name: str) -> Table:
  """A row per metric of a slice, a column per protocol.

  Args:
    metrics: as from judge.judge.judge.
    slice_name: one of its slices.

  Returns:
    The table; empty cells: the tool does not print that metric. Of a slice in
    which no metric has a value, the counts.
  """
  found = _of_slice(metrics, slice_name)
  every = _metrics(found)
  if all(map(is_empty, found.values())):
    every = [m for m in every if m.startswith('n_')]
  rows = [
    [
      Cell(metric),
      *(value_cell(metrics, name, slice_name, metric) for name in found),
    ]
    for metric in every
  ]
  return Table(('metric', *found), rows)


def _of_slice(
  metrics: Mapping[str, Any], slice_name: str
) -> dict[str, Mapping[str, Any]]:
  """Protocol -> metric -> value."""
  names = [name for name in metrics if name in PROTOCOLS]
  return {name: metrics[name].get(slice_name, {}) for name in names}


def _metrics(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
  """All there are, in the order of a table."""
  return list(dict.fromkeys(m for values in found.values() for m in values))


def metrics_table(metrics: Mapping[str, Any], protocol: str) -> Table:
  """A row per metric, a column per slice, under one protocol."""
  slices = metrics[protocol]
  every = _metrics(slices)
  rows = [
    [Cell(metric), *(value_cell(metrics, protocol, s, metric) for s in slices)]
    for metric in every
  ]
  return Table(('metric', *slices), rows)


def value_cell(
  metrics: Mapping[str, Any], protocol: str, slice_name: str, metric: str
) -> Cell:
  """A value with its interval; empty where there is no such metric."""
  values = metrics[protocol].get(slice_name, {})
  if metric not in values:
    return Cell('')
  sure = interval_of(metrics, protocol, slice_name, metric)
  below = f'[{sure[0]:.4f}, {sure[1]:.4f}]' if sure else ''
  return number_cell(values[metric], below=below)


def plain_table(table: Table, width: int | None = None) -> str:
  """The table as lines of text.

  Args:
    table: any.
    width: of the lines, at most: columns that do not fit stand below, beside
      the text columns again; None: no limit.
  """
  heads = [' '.join(name.split()) for name in table.columns]
  rows = [
    [f'{cell.text} {cell.below}'.rstrip() for cell in row] for row in table.rows
  ]
  blocks = _blocks([heads, *rows], table.n_text, width)
  return '\n\n'.join('\n'.join(align(b, table.n_text)) for b in blocks)


def _blocks(
  rows: Sequence[Sequence[str]], n_text: int, width: int | None
) -> list[list[list[str]]]:
  """The rows cut into blocks of columns."""
  widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
  text, room = list(range(n_text)), width or sum(widths)
  blocks = [text]
  for column in range(n_text, len(widths)):
    taken = sum(widths[i] for i in (*blocks[-1], column)) - 2
    if taken > room and len(blocks[-1]) > n_text:
      blocks.append(text)
    blocks[-1] = [*blocks[-1], column]
  return [[[row[i] for i in block] for row in rows] for block in blocks]


def why_they_differ(metrics: Mapping[str, Any], slice_name: str) -> list[str]:
  """A point per reason, with the protocols and the metrics that it is about."""
  found: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
  for protocol, slices in metrics.get(REASONS, {}).items():
    for metric, sentences in slices.get(slice_name, {}).items():
      for sentence in sentences.split('; '):
        shared = re.sub(rf'\b{protocol}\b', _THEM, sentence)
        protocols, which = found.setdefault(shared, ({}, {}))
        protocols[protocol], which[metric] = None, None
  order = _metrics(_of_slice(metrics, slice_name))
  return [
    _told(shared, list(protocols), sorted(which, key=order.index))
    for shared, (protocols, which) in found.items()
  ]


_THEM = '{them}'  # where a sentence names the other protocol


def _told(shared: str, protocols: list[str], metrics: list[str]) -> str:
  names = ', '.join(protocols)
  if _THEM in shared:
    return _point(f'{_shown(metrics)}: {shared.replace(_THEM, names)}.')
  return _point(f'{names}, {_shown(metrics)}: {shared}.')


def why_missing(metrics: Mapping[str, Any], slice_name: str) -> list[str]:
  """A point per reason why values are missing, with the metrics."""
  notes = metrics.get(NOTES, {}).get(slice_name, {})
  found: dict[str, list[str]] = {}
  for metric, reason in notes.items():
    found.setdefault(reason, []).append(metric)
  first, *_ = _of_slice(metrics, slice_name).values()
  of_lists = {notes.get(LISTS), notes.get(SEARCH)}
  one_reason = is_empty(first) and len(set(found) - of_lists) == 1
  points = []
  for reason, which in found.items():
    every = one_reason and reason not in of_lists
    points.append(
      _point(f'{"all metrics" if every else _shown(which)}: {reason}.')
    )
  return points


def is_empty(values: Mapping[str, Any]) -> bool:
  """Whether a slice has counts alone, and no metric has a value."""
  return all(v is None for m, v in values.items() if not m.startswith('n_'))


def _point(text: str) -> str:
  return textwrap.fill(
    text,
    WIDTH,
    initial_indent='- ',
    subsequent_indent='  ',
    break_on_hyphens=False,
  )


def _shown(metrics: Sequence[str]) -> str:
  """Metrics, those of the same cut-offs together: `P R nDCG @1,3,5, F1`."""
  ks: dict[str, list[str]] = {}
  for metric in metrics:
    kind = re.sub(r'@\d+', '@', metric)
    ks.setdefault(kind, []).extend(re.findall(r'@(\d+)', metric))
  together: dict[str, list[str]] = {}
  for kind, each in ks.items():
    together.setdefault(','.join(each), []).append(kind.replace('@', ''))
  return ', '.join(
    ' '.join(kinds) + (f' @{each}' if each else '')
    for each, kinds in together.items()
  )
